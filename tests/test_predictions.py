"""Prediction files follow the rules of the scripts that read them.

The readers here do what the official scripts do before they score: which keys and types they
take, in which order, and what they say of a question that is missing.
"""

import json
from dataclasses import replace

import pytest

from conftest import rows, shared
from multihop import names, runs
from multihop.errors import BadInput
from multihop.metrics import pid
from multihop.metrics.official import dataset_report, drop_report, support_report
from multihop.metrics.traces import em, f1
from multihop.predictions import FORMATS, write
from multihop.prompts.answers import official_evaluated
from multihop.text import Hit, Passage, Question
from multihop.trace import Answer, Search, Trace

ULM = Passage("ulm", "Ulm", "Ulm is a city.")


def made(name, text="Ulm", *, dataset="hotpotqa", answers=(), gold=("Ulm",), passages=(ULM,)):
    ids = tuple(p.id for p in passages)
    reason = "" if text else "The reader wrote nothing."
    return Trace(
        Question("Where?", id=name, answers=gold, extra={"dataset": dataset}),
        "oner",
        steps=(
            Search("q", tuple(Hit(p, 1.0) for p in passages), ids, ids),
            Answer(text, "answered", answers=answers, reason=reason),
        ),
    )


def failed(name, dataset="hotpotqa"):
    return replace(made(name, dataset=dataset), steps=(), error="LMError: gone")


def folder(path, *traces, count=None):
    asked = {"count": len(traces) if count is None else count}
    runs.start(path, {"strategy": "oner", "questions": asked})
    runs.append(path / runs.TRACES, *traces)
    return path


def in_order(*ids):
    return [Question("Where?", id=name) for name in ids]


def lines(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


# --- HotpotQA and 2WikiMultihopQA: one object of objects by id -------------------------------


@pytest.mark.parametrize("form", ["hotpotqa", "2wikimultihopqa"])
def test_every_part_is_an_object_by_id_and_the_answer_is_a_text(tmp_path, form) -> None:
    run = folder(
        tmp_path / "r",
        made("a", dataset=form),
        made("b", "Ulm, Bonn", dataset=form, answers=("Ulm", "Bonn")),
    )
    done = write(run, tmp_path / "p.json")
    found = json.loads((tmp_path / "p.json").read_text())
    assert found["answer"] == {"a": "Ulm", "b": "Ulm Bonn"}
    parts = {"answer", "sp", "evidence"} if form == "2wikimultihopqa" else {"answer", "sp"}
    assert set(found) == parts
    for part in parts - {"answer"}:  # the scripts make tuples of what the lists hold
        assert {name: set(map(tuple, given)) for name, given in found[part].items()} == {
            "a": set(),
            "b": set(),
        }
    assert (done.questions, done.missing) == (2, 0)
    assert "not predicted" in done.notes[0]


@pytest.mark.parametrize("form", ["hotpotqa", "2wikimultihopqa", "musique"])
def test_the_file_scores_as_the_run_does(tmp_path, form) -> None:
    run = folder(
        tmp_path / "r",
        made("a", "Ulm", dataset=form),
        made("b", "Bonn on Rhine", dataset=form, gold=("Bonn", "Bonn am Rhein")),
        made("c", "yes it is", dataset=form, gold=("yes",)),
    )
    write(run, tmp_path / "p", questions=in_order("a", "b", "c"))
    if form == "musique":
        given = {line["id"]: line["predicted_answer"] for line in lines(tmp_path / "p")}
    else:
        given = json.loads((tmp_path / "p").read_text())["answer"]
    traces = [trace for _, trace in runs.read(run / runs.TRACES)]
    report = dataset_report(form, {t.question.id: t.question.answers for t in traces}, given)
    assert report["em"] == pytest.approx(sum(map(em, traces)) / 3, abs=1e-3)
    assert report["f1"] == pytest.approx(sum(map(f1, traces)) / 3, abs=1e-3)


# --- MuSiQue: lines in the gold file's order -------------------------------------------------


def test_musique_s_lines_stand_in_the_order_of_the_questions(tmp_path) -> None:
    run = folder(tmp_path / "r", made("b", dataset="musique"), made("a", "", dataset="musique"))
    write(run, tmp_path / "p.jsonl", questions=in_order("a", "b"))
    assert lines(tmp_path / "p.jsonl") == [
        {
            "id": name,
            "predicted_answer": text,
            "predicted_support_idxs": [],
            "predicted_answerable": bool(text),
        }
        for name, text in (("a", ""), ("b", "Ulm"))
    ]
    with pytest.raises(BadInput, match="wants the questions in their file's order"):
        write(run, tmp_path / "p.jsonl")


def test_twins_of_musique_full_have_one_id_in_the_file(tmp_path) -> None:
    twins = ("2hop__1_2", "2hop__1_2/unanswerable")
    run = folder(tmp_path / "r", *(made(name, dataset="musique") for name in twins))
    write(run, tmp_path / "p.jsonl", questions=in_order(*twins))
    assert [line["id"] for line in lines(tmp_path / "p.jsonl")] == ["2hop__1_2"] * 2


def test_a_real_slice_of_musique_is_matched_line_by_line(tmp_path) -> None:
    path = shared("data/raw/musique_ans_v1.0_dev.slice.jsonl")
    asked = names.open_questions(f"musique:{path}")
    run = folder(
        tmp_path / "r",
        *(
            replace(made(q.id), question=q)  # finished in another order than asked
            for q in sorted(asked, key=lambda q: q.id[::-1])
        ),
    )
    write(run, tmp_path / "p.jsonl", questions=asked)
    gold = lines(path)
    assert [line["id"] for line in lines(tmp_path / "p.jsonl")] == [line["id"] for line in gold]


# --- DROP and IIRC, StrategyQA, FanOutQA -----------------------------------------------------


def test_drop_and_iirc_take_a_text_or_a_list_of_texts(tmp_path) -> None:
    run = folder(
        tmp_path / "r",
        made("a", dataset="iirc"),
        made("b", "Ulm, Bonn", dataset="iirc", answers=("Ulm", "Bonn")),
    )
    write(run, tmp_path / "p.json")
    assert json.loads((tmp_path / "p.json").read_text()) == {"a": "Ulm", "b": ["Ulm", "Bonn"]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *(("yes", True), ("No.", False), ("True", True), ("false, because", False)),
        *(("Yes, it is", True), ("maybe", None), ("", None), ("not", None), ("...", None)),
    ],
)
def test_strategyqa_s_answers_are_true_false_or_null(tmp_path, text, said) -> None:
    run = folder(tmp_path / "r", made("a", text, dataset="strategyqa"))
    done = write(run, tmp_path / "p.json")
    assert json.loads((tmp_path / "p.json").read_text()) == {"a": {"answer": said}}
    assert any("neither yes nor no" in note for note in done.notes) == (said is None)


def test_strategyqa_s_paragraphs_are_given_where_they_bear_its_ids(tmp_path) -> None:
    known = Passage("Ulm, Germany-3", "Ulm, Germany", "A city.")
    run = folder(
        tmp_path / "r",
        made("a", "yes", dataset="strategyqa", passages=(known,)),
        made("b", "no", dataset="strategyqa", passages=()),
    )
    done = write(run, tmp_path / "p.json")
    assert json.loads((tmp_path / "p.json").read_text()) == {
        "a": {"answer": True, "paragraphs": ["Ulm, Germany-3"]},
        "b": {"answer": False, "paragraphs": []},
    }
    assert not any("Paragraphs are left out" in note for note in done.notes)


def test_strategyqa_s_records_all_have_the_same_keys_or_the_script_stops(tmp_path) -> None:
    known = Passage("Ulm-3", "Ulm", "A city.")
    run = folder(
        tmp_path / "r",
        made("a", "yes", dataset="strategyqa", passages=(known,)),
        made("b", "no", dataset="strategyqa"),
    )
    done = write(run, tmp_path / "p.json")
    found = json.loads((tmp_path / "p.json").read_text())
    assert {tuple(record) for record in found.values()} == {("answer",)}
    assert any("Paragraphs are left out" in note for note in done.notes)


def test_fanoutqa_takes_lines_of_id_and_answer(tmp_path) -> None:
    run = folder(tmp_path / "r", made("a", "Ulm: 1; Bonn: 2", dataset="fanoutqa"))
    write(run, tmp_path / "p.jsonl")
    assert lines(tmp_path / "p.jsonl") == [{"id": "a", "answer": "Ulm: 1; Bonn: 2"}]


# --- IRCoT's own -----------------------------------------------------------------------------


def test_golden_predictions_go_through_a_file_of_the_release_and_score_the_same(tmp_path) -> None:
    wrong, checked = [], 0
    for row in rows("golden/evaluate_set.jsonl"):
        golds, given = row["input"]["ground_truths"], row["input"]["predictions"]
        expected = row["expected"]["plain"]
        if row["input"]["prediction_type"] != "answer" or "error" in expected:
            continue
        traces = [
            made(
                name,
                said if isinstance(said, str) else ", ".join(map(str, said)),
                answers=() if isinstance(said, str) else tuple(map(str, said)),
            )
            for name, said in given.items()
        ]
        write(folder(tmp_path / row["id"], *traces), tmp_path / "p.json", "ircot")
        read = json.loads((tmp_path / "p.json").read_text())
        ours = drop_report(golds, {q: official_evaluated(p) for q, p in read.items()})
        checked += 1
        if ours != pytest.approx(expected, abs=1e-9):
            wrong.append(row["id"])
    assert wrong == []
    assert checked >= 6


def test_retrieval_is_written_as_the_release_names_paragraphs(tmp_path) -> None:
    run = folder(tmp_path / "r", made("a"), made("b", passages=()))
    write(run, tmp_path / "p.json", "ircot_pids")
    found = json.loads((tmp_path / "p.json").read_text())
    assert found == {"a": [pid("Ulm", "Ulm is a city.")], "b": []}
    assert support_report([(found["a"], found["a"])])["para_recall"] == 1


# --- All of them -----------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMATS)
def test_a_question_without_prediction_is_refused_and_left_out_or_empty_when_allowed(
    tmp_path, form
) -> None:
    run = folder(tmp_path / "r", made("a", "yes"), failed("b"))
    asked = in_order("a", "b")
    with pytest.raises(BadInput, match=r"1 questions have no prediction, first 'b'"):
        write(run, tmp_path / "p", form, questions=asked)
    assert not (tmp_path / "p").exists()
    done = write(run, tmp_path / "p", form, questions=asked, allow_missing=True)
    assert (done.questions, done.missing) == (1, 1)
    text = (tmp_path / "p").read_text()
    assert ('"b"' in text) == FORMATS[form].complete
    assert any("1 questions have no prediction" in note for note in done.notes)


def test_questions_not_asked_yet_are_missed_without_their_file_too(tmp_path) -> None:
    run = folder(tmp_path / "r", made("a"), count=3)
    with pytest.raises(BadInput, match="2 questions have no prediction: they failed"):
        write(run, tmp_path / "p")


def test_a_question_that_failed_and_then_succeeded_is_there_once(tmp_path) -> None:
    run = folder(tmp_path / "r", failed("a"), made("a"), count=1)
    assert write(run, tmp_path / "p").questions == 1


@pytest.mark.parametrize("form", FORMATS)
def test_odd_texts_survive_as_ascii(tmp_path, form) -> None:
    odd = 'yes "\u2028\ud800\x00é'
    run = folder(tmp_path / "r", made("a", odd))
    write(run, tmp_path / "p", form, questions=in_order("a"))
    text = (tmp_path / "p").read_bytes().decode("ascii")
    if form not in ("strategyqa", "ircot_pids"):
        assert json.dumps(odd) in text
    assert text.count("\n") == 1


def test_what_cannot_be_written_is_said_in_one_line(tmp_path) -> None:
    run = folder(tmp_path / "r", made("a", dataset="bamboogle"))
    with pytest.raises(
        BadInput, match=r"no format follows .*\(bamboogle\). Choose one with --form"
    ):
        write(run, tmp_path / "p")
    with pytest.raises(BadInput, match=r"No format is named 'squad'\. Known: hotpotqa"):
        write(run, tmp_path / "p", "squad")
    with pytest.raises(BadInput, match="'a' that is not among those of --questions"):
        write(run, tmp_path / "p", "drop", questions=in_order("z"))
    with pytest.raises(BadInput, match="does not exist"):
        write(run, tmp_path / "none" / "p", "drop")
    mixed = folder(tmp_path / "m", made("a"), made("b", dataset="musique"))
    with pytest.raises(BadInput, match=r"\(hotpotqa, musique\)"):
        write(mixed, tmp_path / "p")


def test_the_verb_writes_the_file_and_says_what_it_lacks(multihop, tmp_path) -> None:
    run = folder(tmp_path / "r", made("a"))
    done = multihop("predictions", str(run), str(tmp_path / "p.json"))
    assert (done.code, done.out) == (0, "")
    assert done.err.splitlines() == [
        f"{tmp_path / 'p.json'}: 1 predictions.",
        "Supporting sentences are not predicted: sp_* and joint_* mean nothing.",
    ]
    asked = tmp_path / "q.jsonl"
    asked.write_text('{"id": "a", "question": "Where?"}\n')
    done = multihop(
        *("predictions", str(run), str(tmp_path / "p.jsonl"), "--format", "musique"),
        *("--questions", str(asked)),
    )
    assert done.code == 0, done.err
    assert lines(tmp_path / "p.jsonl")[0]["id"] == "a"
    folder(tmp_path / "two" / "x", made("a"))
    folder(tmp_path / "two" / "y", made("a"))
    done = multihop("predictions", str(tmp_path / "two"), str(tmp_path / "p"))
    assert done.code == 2
    assert "holds several runs" in done.err
