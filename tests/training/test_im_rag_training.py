"""Configurations, transcripts, stop models and alarms of IM-RAG's trainings."""

import dataclasses
import json
from pathlib import Path

import pytest

from im_rag_parts import config, records
from multihop.errors import BadInput
from multihop.metrics.progress import Tracker
from multihop.strategies.im_rag import Critic, Fixed, prompts
from multihop.testing import ScriptedLM
from multihop.text import Hit, Passage, Question
from multihop.trace import Answer, LMCall, Search, Thought, fold, trace
from multihop.training.im_rag import alarms, critic, parts, transcripts
from multihop.training.im_rag.config import parse


def changed(chosen, table, **values):
    return dataclasses.replace(
        chosen, **{table: dataclasses.replace(getattr(chosen, table), **values)}
    )


# --- Configuration ---------------------------------------------------------------------------

SETS = {"sets": [{"name": "a", "licence": "b", "questions": ["c"], "index": "d"}]}


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({}, "data.sets"),
        ({"data": SETS, "model": {"method": "full"}}, "adapters"),
        ({"data": SETS, "rl": {"group": 1}}, "rl.group"),
        ({"data": SETS, "rl": {"window": 90}}, "rl.window"),
        ({"data": SETS, "reward": {"scorer": "cosine"}}, "reward.encoder"),
        ({"data": SETS, "loop": {"kk": 1}}, "loop.kk"),
        ({"data": SETS, "output": {"folder": ""}}, "output.folder"),
    ],
)
def test_a_wrong_configuration_is_refused(tables, told):
    with pytest.raises(BadInput, match=told):
        parse(tables)


def test_the_papers_reward_is_a_mode():
    chosen = parse({"data": SETS, "reward": {"mode": "paper"}})
    assert parts.weights(chosen).format == 0
    assert parts.tracker(chosen, lambda _: None).removal == "always"


# --- Cold start ------------------------------------------------------------------------------


def test_a_transcript_asks_for_what_is_missing_and_then_answers(tmp_path):
    made = transcripts.cold_start(config(tmp_path))
    assert {lesson.question for lesson in made.lessons} == {f"q{n}" for n in range(10)}
    first = next(lesson for lesson in made.lessons if lesson.question == "q0")
    *queries, read = first.examples
    assert [e.skill for e in first.examples] == ["query"] * len(queries) + ["read"]
    assert all(e.completion.startswith(" ") and e.completion.endswith("\n") for e in first.examples)
    assert read.completion == " Pune\n"
    assert "- Ann Rao: Ann Rao was a director, born in Pune." in read.prompt
    assert queries[0].prompt.startswith(prompts.HEAD)
    assert queries[1].prompt.startswith(queries[0].prompt + queries[0].completion)
    [part] = made.parts
    assert part.questions == 10
    assert part.examples == sum(len(lesson.examples) for lesson in made.lessons)


async def test_lessons_are_the_very_prompts_of_the_loop(tmp_path):
    chosen = config(tmp_path)
    made = await transcripts._cold_start(chosen)
    one = made.lessons[0]
    said = [e.completion.removesuffix("\n") for e in one.examples]
    lm = ScriptedLM(*said)
    corpora = parts.Corpora(chosen.data.sets)
    [record] = [r for r in records() if r["id"] == one.question]
    loop = parts.loop(chosen, lm, corpora.retrievers[0], Fixed(len(said) - 1))
    await trace(loop, Question(record["question"], one.question))
    await corpora.aclose()
    assert lm.prompts == [e.prompt for e in one.examples]


def test_transcripts_that_found_too_little_are_left_out(tmp_path):
    chosen = changed(config(tmp_path), "loop", max_turns=1)
    with pytest.raises(BadInput, match="least_recall"):
        transcripts.cold_start(chosen)
    half = changed(chosen, "data", least_recall=0.5)
    assert transcripts.cold_start(half).kept > 0


def test_the_questioner_may_learn_to_say_that_it_is_enough(tmp_path):
    chosen = changed(changed(config(tmp_path), "loop", action=True, max_turns=3), "data")
    made = transcripts.cold_start(chosen)
    said = [e.completion for lesson in made.lessons for e in lesson.examples]
    assert f" {prompts.ENOUGH}\n" in said
    assert made.lessons[0].examples[0].prompt.startswith(prompts.HEAD_ACTION)


def test_runs_that_ended_well_are_repeated_as_transcripts(tmp_path):
    from multihop import runs

    record = records()[0]
    question = Question(record["question"], "q0", ("Pune",), gold_ids=("f0", "p0"), extra={})
    steps = [
        Search("Clay film", (), (), ()),
        Thought("Ann Rao directed it."),
        Search("Ann Rao", (), (), ()),
        Answer("Pune", "answered"),
    ]
    good = fold(question, "ircot", steps)
    runs.start(tmp_path / "ran", {"strategy": "ircot"})
    runs.append(runs.trace_file(tmp_path / "ran", 0), good)
    chosen = changed(config(tmp_path), "data", rules=False, runs=(str(tmp_path / "ran"),))
    [lesson] = transcripts.cold_start(chosen).lessons
    assert [e.completion for e in lesson.examples] == [" Clay film\n", " Ann Rao\n", " Pune\n"]


def test_held_out_questions_are_refused(tmp_path):
    held = tmp_path / "dev.jsonl"
    held.write_text(json.dumps(records()[3]) + "\n")
    with pytest.raises(BadInput, match="never"):
        transcripts.cold_start(changed(config(tmp_path), "data", never=(str(held),)))


# --- Answerer --------------------------------------------------------------------------------


def ran(name, found, gold=("f0", "p0")):
    """A run that found so many of two gold passages."""
    call = LMCall("answer", "m", f"prompt of {name}\nAnswer:", (" x",), ("stop",), 0.0)
    passages = [Passage(n, n, n) for n in gold[:found]]
    ids = tuple(p.id for p in passages)
    search = Search("q", tuple(Hit(p, 1.0) for p in passages), ids, ids)
    question = Question("Where?", name, ("Pune",), gold_ids=gold)
    return fold(
        question, "im-rag", [Thought("q", kind="query"), search, Answer("x", "answered", call=call)]
    )


def test_the_answerer_learns_the_gold_answer_from_what_was_found(tmp_path):
    chosen = config(tmp_path)
    asked = [parts.Asked(ran(f"q{n}", 2).question, 0) for n in range(3)]
    made = transcripts.answering(
        chosen, asked, {a.question.id: ran(a.question.id, 2) for a in asked}
    )
    assert [[e.completion for e in lesson.examples] for lesson in made.lessons] == [[" Pune\n"]] * 3
    assert made.lessons[0].examples[0].prompt == "prompt of q0\nAnswer:"


@pytest.mark.parametrize(("share", "kept"), [(0.3, 3), (0.0, 0), (0.5, 7)])
def test_rows_without_all_gold_passages_have_a_limited_share(tmp_path, share, kept):
    chosen = changed(config(tmp_path), "data", missing=share)
    runs = {f"q{n}": ran(f"q{n}", 2 if n < 7 else 1) for n in range(30)}
    asked = [parts.Asked(run.question, 0) for run in runs.values()]
    made = transcripts.answering(chosen, asked, runs)
    assert made.kept == 7 + kept
    assert made.dropped == 30 - 7 - kept
    assert {f"q{n}" for n in range(7)} <= {lesson.question for lesson in made.lessons}


# --- Stop models -----------------------------------------------------------------------------


def monologues(count=40):
    """Runs of two turns, some of which are done after the first."""
    made = []
    for n in range(count):
        words = f"Where was builder{n} of ship{n} born?"
        both = Passage("f0", "f", f"ship{n} builder{n} born there"), Passage("p0", "p", "and more")
        first, second = (both, ()) if n % 2 else (both[:1], both[1:])
        steps = []
        ids = ()
        for number, shown in enumerate((first, second)):
            ids += tuple(p.id for p in shown)
            steps += [
                Thought(f"query {number}", kind="query"),
                Search(
                    f"query {number}",
                    tuple(Hit(p, 1.0) for p in shown),
                    tuple(p.id for p in shown),
                    ids,
                ),
            ]
        question = Question(words, f"q{n}", ("x",), gold_ids=("f0", "p0"))
        made.append(fold(question, "im-rag", [*steps, Answer("x", "answered")]))
    return made


def test_every_beginning_of_a_monologue_is_a_row():
    found = critic.rows(monologues(4), Tracker())
    assert [(row.question, row.enough, row.gain) for row in found] == [
        ("q0", False, 1.0),
        ("q0", True, 1.0),
        ("q1", True, 1.0),
        ("q1", True, 0.0),
        ("q2", False, 1.0),
        ("q2", True, 1.0),
        ("q3", True, 1.0),
        ("q3", True, 0.0),
    ]


def test_a_critic_learns_when_it_is_enough_and_decides_so():
    pytest.importorskip("sklearn")
    runs = monologues()
    model = critic.fit(critic.rows(runs, Tracker()), "enough", strength=10.0)
    assert model.made["accuracy"] > model.made["accuracy_always"]
    assert model.made["auc"] > 0.9
    from multihop.metrics.progress import turns

    policy = Critic(model)
    decided = [policy.decide(r.question, turns(r)[:1]).answer for r in runs]
    assert decided == [bool(n % 2) for n in range(len(runs))]
    gain = critic.fit(critic.rows(runs, Tracker()), "gain")
    assert gain.target == "gain"
    assert gain.made["r2"] > 0.5


def test_a_critic_of_too_little_is_refused():
    pytest.importorskip("sklearn")
    with pytest.raises(BadInput, match="2 questions"):
        critic.fit(critic.rows(monologues(2), Tracker()), "enough")


# --- Alarms ----------------------------------------------------------------------------------


def steps(many=20, **changes):
    line = {
        "loss": 0.0, "norm": 1.0, "reward": 0.5, "idle": 0.0, "entropy": 1.0,
        "tokens_learned": 9.0, "query_tokens": 8.0,
    }  # fmt: skip
    return [{**line, **changes} for _ in range(many)]


@pytest.mark.parametrize(
    ("records", "told"),
    [
        (steps(1, norm=float("nan")), "norm is nan"),
        (steps(20) + steps(20, reward=0.1), "reward fell from 0.500 to 0.100"),
        (steps(20, idle=1.0), "equal reward"),
        (steps(20, entropy=0.001), "entropy"),
        (steps(20, query_tokens=23.0), "no end"),
        (steps(19, idle=1.0), ""),
        (steps(40), ""),
        (steps(20, entropy=0.0, tokens_learned=0.0), ""),
        ([], ""),
    ],
)
def test_alarms(tmp_path, records, told):
    found = alarms.alarm(records, config(tmp_path))
    assert told in found
    assert bool(found) == bool(told)


@pytest.mark.parametrize(
    ("scores", "falls"),
    [([3, 2, 1, 0], True), ([3, 2, 1], False), ([3, 2, 2, 0], False), ([1, 5, 4, 3, 2], True)],
)
def test_f1_that_falls_three_times_is_seen(scores, falls):
    assert alarms.falling(scores, 3) is falls
    assert not alarms.falling(scores, 0)


# --- The commands ----------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.slow
def test_all_of_it_by_the_commands(tmp_path, multihop):
    pytest.importorskip("peft")
    from tiny_hf import tiny_llama

    tiny_llama(tmp_path / "tiny")
    config(tmp_path)
    text = """
[model]
base = "./tiny"
r = 4
[loop]
k = 1
n_candidates = 4
max_turns = 2
words = 10
max_query_tokens = 24
max_answer_tokens = 6
[data]
valid = 0.2
missing = 0.9
[[data.sets]]
name = "own"
licence = "CC0-1.0"
questions = ["train10.jsonl"]
index = "index"
[train]
epochs = 1
max_tokens = 1024
[start]
questioner = "START"
[rl]
steps = 2
questions = 1
group = 2
window = 512
max_tokens = 1024
slots = 2
[output]
folder = "run"
"""
    path = tmp_path / "im_rag.toml"
    path.write_text(text.replace("START", ""))
    assert multihop("train", "coldstart", str(path)).code == 0
    path.write_text(text.replace("START", "run/coldstart/adapters/questioner"))
    assert multihop("train", "questioner", str(path)).code == 0
    assert multihop("train", "answerer", str(path)).code == 0
    assert (tmp_path / "run" / "adapters" / "answerer" / "card.json").exists()
    card = json.loads((tmp_path / "run" / "adapters" / "questioner" / "card.json").read_text())
    assert card["form"]["preset"] == "im-rag"
    assert card["name"] == "questioner"
    done = multihop("train", "critic", str(path))
    assert done.code in (0, 2)  # a model that finds nothing has one outcome alone
    assert Path(tmp_path / "run" / "questioner" / "curves.html").exists()
