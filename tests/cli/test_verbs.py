"""The other verbs: help, eval, score, show, doctor, demo's parts; and their documentation."""

import importlib.util
import json
from pathlib import Path

import click
import pytest

from conftest import ROOT
from multihop import names, runs
from multihop.cli import COMMANDS, cli
from multihop.cli.render import snippet, visible
from multihop.testing import scripted_lm
from multihop.text import Question
from multihop.trace import Answer, Trace

QUESTIONS = [
    {"id": "a", "question": "Where was Lost Gravity made?", "answers": ["Germany"]},
    {"id": "b", "question": "Who is not Germany?", "answers": ["Ulm"]},
]


@pytest.fixture
def questions(tmp_path: Path) -> str:
    path = tmp_path / "questions.jsonl"
    for record in QUESTIONS:
        record["gold_paragraph_ids"] = ["lost", "mack"]
    path.write_text("".join(json.dumps(record) + "\n" for record in QUESTIONS))
    return str(path)


def reference() -> str:
    spec = importlib.util.spec_from_file_location("cli_reference", ROOT / "docs/cli_reference.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.reference()


def test_the_reference_in_the_docs_is_what_the_commands_say() -> None:
    written = (ROOT / "docs" / "cli.md").read_text("utf-8")
    assert written == reference(), "docs/cli.md is out of date: run make docs"


def test_every_option_has_help() -> None:
    root = click.Context(cli, **cli.context_settings)
    for name, (_, short) in COMMANDS.items():
        command = cli.get_command(root, name)
        assert command, name
        assert short.endswith("."), name
        assert command.help, name
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert option.help, f"{name} {option.name}"


def test_help_and_version_answer(multihop) -> None:
    assert "Usage: multihop" in multihop("--help").out
    assert "Usage: multihop ask" in multihop("ask", "-h").out
    assert multihop("--version").out.startswith("multihop, version 0.")


def test_eval_runs_strategies_and_shows_them_side_by_side(
    multihop, index, script, questions, tmp_path
) -> None:
    into = str(tmp_path / "run")
    done = multihop(
        *("eval", questions, "--index", index, "-m", script),
        *("-s", "nor,ircot", "--into", into, "--metric", "all_gold@15"),
    )
    assert done.code == 0
    rows = {line[:20].strip(): line[20:].split() for line in done.out.splitlines()}
    assert rows[""] == ["nor", "ircot"]
    assert rows["em %"] == ["50.0", "±", "50.0", "50.0", "±", "50.0"]
    assert rows["all gold@15 %"][-3:] == ["50.0", "±", "50.0"]
    assert rows["finished"] == ["2", "2"]
    assert "4 of 4 done" in done.err.splitlines()
    assert sorted(p.name for p in Path(into).iterdir()) == ["ircot", "nor"]

    again = multihop("score", into, "--metric", "all_gold@15")
    assert {line[:20].strip() for line in again.out.splitlines()} == rows.keys()
    found = json.loads(multihop("score", into, "--json").out)
    assert [r["strategy"] for r in found] == ["ircot", "nor"]
    assert found[0]["means"]["em"] == {
        "mean": 0.5,
        "standard_error": 0.5,
        "n": 2,
        "unscored": 0,
    }
    table = multihop("score", into, "--markdown").out.splitlines()
    assert table[:3] == [
        "|  | ircot | nor |",
        "| --- | ---: | ---: |",
        "| em % | 50.0 ± 50.0 | 50.0 ± 50.0 |",
    ]


def test_the_same_eval_command_goes_on_in_the_same_folder(
    multihop, index, script, questions, tmp_path
) -> None:
    command = ("eval", questions, "--index", index, "-m", script, "--limit", "1")
    first, second = multihop(*command), multihop(*command)
    assert first.out == second.out
    [folder] = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("questions-ircot-")
    assert len(list(runs.read(folder / runs.TRACES))) == 1
    multihop(*command, "-k", "2")
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_eval_with_failures_reports_them_and_is_no_full_success(
    multihop, index, script, tmp_path
) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('{"id": "f", "question": "Fail?"}\n{"id": "g", "question": "Who?"}\n')
    done = multihop("eval", str(path), "--index", index, "-m", script)
    assert done.code == 1
    assert "ircot: 1 failed" in done.out
    assert "  f: LMError: The model fell over." in done.out
    assert "f: LMError: The model fell over." in done.err.splitlines()


def test_eval_of_which_everything_fails_is_one_line_of_reason(
    multihop, index, script, tmp_path
) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('{"id": "f", "question": "Fail?"}\n')
    done = multihop("eval", str(path), "--index", index, "-m", script)
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[-1].startswith(
        "multihop: All 1 questions failed, the last with LMError: The model fell over."
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "There are no questions"),
        ('{"question": "A?"}\n{"qestion": "B?"}\n', "q.jsonl:2"),
        ('{"question": "A?"}\nnot json\n', "q.jsonl:2"),
    ],
)
def test_a_bad_question_file_is_refused_before_anything_runs(
    multihop, script, tmp_path, content, words
) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(content)
    done = multihop("eval", str(path), "-s", "nor", "-m", script)
    assert done.code == 2
    assert words in done.err
    assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def kept(folder: Path) -> Path:
    runs.start(folder, {"strategy": "nor"})
    for name, said, error in [("one", "1", ""), ("a:b", "2", ""), ("bad", "", "LMError: x\x1b[2J")]:
        steps = (Answer(said, "answered"),) if said else ()
        trace = Trace(Question(f"Question {name}?", id=name), "nor", steps=steps, error=error)
        runs.append(folder / runs.TRACES, trace)
    return folder


def test_show_lists_a_run_and_replays_one_by_line_or_id(multihop, tmp_path) -> None:
    folder = kept(tmp_path / "run")
    listed = multihop("show", str(folder))
    assert [line.split()[:2] for line in listed.out.splitlines()] == [
        ["1", "one"],
        ["2", "a:b"],
        ["3", "bad"],
    ]
    for what in (f"{folder}:2", f"{folder}:a:b", f"{folder / runs.TRACES}:2"):
        assert "Question a:b?" in multihop("show", what).out
    assert json.loads(multihop("show", f"{folder}:one", "--json").out)["question"]["id"] == "one"
    assert len(multihop("show", str(folder), "--json").out.splitlines()) == 3
    failed = multihop("show", str(folder), "--failed")
    assert "failed   LMError: x␛[2J" in failed.out
    missing = multihop("show", f"{folder}:4")
    assert (missing.code, missing.err.strip()) == (
        2,
        f"multihop: {folder / runs.TRACES}: has no line 4 and no question with this id.",
    )


def test_show_passes_over_a_torn_last_line(multihop, tmp_path) -> None:
    path = kept(tmp_path / "run") / runs.TRACES
    path.write_bytes(path.read_bytes()[:-20])
    assert len(multihop("show", str(path.parent)).out.splitlines()) == 2


def test_show_of_several_runs_names_them(multihop, tmp_path) -> None:
    kept(tmp_path / "both" / "a")
    kept(tmp_path / "both" / "b")
    done = multihop("show", str(tmp_path / "both"))
    assert done.code == 2
    assert "holds several runs; name one" in done.err


def test_score_of_no_run_says_so(multihop, tmp_path) -> None:
    done = multihop("score", str(tmp_path))
    assert done.code == 2
    assert "holds no run" in done.err


def test_doctor_tries_what_it_is_given(multihop, index, script) -> None:
    done = multihop("doctor", "--index", index, "--model", script)
    assert done.code == 0
    lines = {line[4:26].strip(): line for line in done.out.splitlines()}
    assert lines["retriever"].startswith("ok")
    assert "4 passages" in lines["retriever"]
    assert lines["model"].startswith("ok")
    assert lines["packages"].startswith("ok")
    assert "tantivy" in lines["packages"]


def test_doctor_fails_on_what_does_not_work(multihop, tmp_path) -> None:
    done = multihop("doctor", "--index", str(tmp_path / "none"), "--model", "openi:x")
    assert done.code == 1
    bad = [line for line in done.out.splitlines() if line.startswith("!!")]
    assert len(bad) == 2
    assert "Did you mean 'openai'?" in bad[1]


def test_doctor_names_the_command_that_mends_a_missing_package(multihop, monkeypatch) -> None:
    from multihop.cli import doctor

    real = doctor.version

    def version(package: str) -> str:
        if package in ("aiohttp", "tantivy"):
            raise doctor.PackageNotFoundError(package)
        return real(package)

    monkeypatch.setattr(doctor, "version", version)
    done = multihop("doctor")
    assert done.code == 1  # tantivy is needed
    lines = [line.strip() for line in done.out.splitlines()]
    assert "pip install 'multihop'" in lines
    assert "pip install 'multihop[openai]'" in lines


@pytest.mark.parametrize("selected", ["", ":1", ":q1"])
def test_a_run_without_a_finished_question_is_said_to_be_one(multihop, tmp_path, selected) -> None:
    runs.start(tmp_path / "run", {"strategy": "nor", "questions": {"count": 3}})
    shown = multihop("show", f"{tmp_path / 'run'}{selected}")
    assert (shown.code, shown.err) == (
        2,
        f"multihop: {tmp_path / 'run'}: no question of this run is finished yet.\n",
    )
    assert "not asked yet    3" in multihop("score", str(tmp_path / "run")).out


def test_the_demo_s_index_is_kept_where_caches_are(monkeypatch, tmp_path) -> None:
    from multihop.cli.demo import shipped_index

    monkeypatch.setenv("MULTIHOP_CACHE_DIR", str(tmp_path / "caches"))
    assert shipped_index().parent == tmp_path / "caches"


def test_demo_lists_its_questions_and_knows_no_other(multihop) -> None:
    listed = multihop("demo", "--list")
    assert listed.code == 0
    assert "bridge-01" in listed.out
    done = multihop("demo", "bridge-00001")
    assert done.code == 2
    assert "No shipped question is named 'bridge-00001'. Did you mean" in done.err


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 中 \u200d", "plain ü 中 \u200d"),
        ("a\x1b[31mb", "a␛[31mb"),
        ("a\r\nb\nc\td", "a b c d"),
        ("a\rb", "a b"),
        ("\x00\x7f\x85\x9b", "␀<U+007F><U+0085><U+009B>"),
        ("\u202eevil\u2066", "<U+202E>evil<U+2066>"),
        ("\udcff\U000e0041", "<U+DCFF><U+E0041>"),
    ],
)
def test_what_a_terminal_would_obey_is_made_visible(text, shown) -> None:
    assert visible(text) == shown


def test_line_ends_may_be_kept_and_nothing_else() -> None:
    assert visible("a\nb\tc\rd\x1b", lines=True) == "a\nb\tc␍d␛"


def test_a_snippet_is_one_line_cut_at_a_word() -> None:
    assert snippet("one\ntwo  three", 100) == "one two three"
    assert snippet("one two three", 9) == "one two …"


DEAD = "openai:model@http://127.0.0.1:9/v1"
"""The discard port: nobody answers."""


def test_a_dead_model_server_is_one_clear_line(multihop, index, questions) -> None:
    options = ("--index", index, "-m", DEAD, "-o", "max_retries=0")
    done = multihop("ask", "Where?", *options, "--quiet")
    assert (done.code, done.out) == (2, "")
    [line] = done.err.splitlines()
    assert DEAD in line
    assert "cannot be reached" in line
    done = multihop("eval", questions, *options)
    assert (done.code, done.out) == (2, "")
    last = done.err.splitlines()[-1]
    assert last.startswith("multihop: All 2 questions failed, the last with LMUnavailable: ")
    assert "cannot be reached" in last


def test_a_dead_server_among_many_questions_stops_the_run_early(multihop, index, tmp_path) -> None:
    path = tmp_path / "many.jsonl"
    path.write_text("".join(f'{{"question": "Q{n}?"}}\n' for n in range(200)))
    done = multihop(
        *("eval", str(path), "--index", index, "-m", DEAD, "-o", "max_retries=0"),
        *("--give-up-after", "3", "--into", str(tmp_path / "run")),
    )
    assert done.code == 2
    assert "3 questions in a row failed" in done.err.splitlines()[-1]
    assert len(list(runs.read(tmp_path / "run" / runs.TRACES))) < 10


# --- What decides a run, and what must not be in its folder ----------------------------------


def test_an_edited_script_is_another_run(multihop, index, tmp_path, questions) -> None:
    script = tmp_path / "model.json"
    script.write_text('{"rules": [{"prompt": "", "text": "So the answer is: Ulm."}]}')
    command = ("eval", questions, "--index", index, "-m", f"scripted:{script}")
    into = ("--into", str(tmp_path / "run"))
    assert multihop(*command, *into).code == 0
    first = multihop(*command).err
    script.write_text('{"rules": [{"prompt": "", "text": "So the answer is: Bonn."}]}')
    done = multihop(*command, *into)
    assert done.code == 2
    assert "holds a run with parts.model.script" in done.err
    assert multihop(*command).err.splitlines()[-1] != first.splitlines()[-1]


def test_keys_and_headers_are_not_recorded_and_make_no_other_run(
    multihop, index, script, tmp_path, monkeypatch
) -> None:
    (tmp_path / "q.jsonl").write_text('{"id": "1", "question": "Where?"}')

    def opened(path: str, *, headers: dict[str, str], api_key: str = "", max_tokens: int = 1):
        return scripted_lm(path)

    monkeypatch.setattr("multihop.testing.scripted_lm", opened)
    command = ("eval", str(tmp_path / "q.jsonl"), "--index", index, "-m", script)
    into = ("--into", str(tmp_path / "run"))
    for secret in ("hush-1", "hush-2"):
        headers = f'headers={{"Authorization": "Bearer {secret}"}}'
        options = ("-o", headers, "-o", f"api-key={secret}", "-o", "max_tokens=9")
        done = multihop(*command, *into, *options)
        assert done.code == 0
    kept = json.loads((tmp_path / "run" / runs.RUN).read_text())
    assert kept["parts"]["model_options"] == {"max_tokens": "9"}
    assert not [p for p in tmp_path.rglob("*.json*") if "hush" in p.read_text()]


@pytest.mark.parametrize(
    ("option", "hidden"),
    [
        *((name, True) for name in ("headers", "api_key", "key", "aws_secret_access_key")),
        *((name, True) for name in ("token", "auth_token", "password", "client_secret")),
        *((name, False) for name in ("key_env", "max_tokens", "stop_token", "keywords", "keep")),
    ],
)
def test_options_that_open_a_door_are_told_from_those_that_decide(option, hidden) -> None:
    assert (option not in names.told({option: "x"})) == hidden


def test_names_in_files_cannot_move_the_cursor(multihop, index, script, tmp_path) -> None:
    path = tmp_path / "a\x1b[2Jb.jsonl"
    path.write_text(json.dumps({"id": "q\x1b[2J\n1", "question": "Fail?"}) + "\n")
    done = multihop("eval", str(path), "--index", index, "-m", script)
    assert done.code == 2
    assert "q␛[2J 1: LMError" in done.err
    path.write_text(json.dumps({"id": "q\x1b[2J", "question": "Where?"}) + "\n")
    done = multihop("eval", str(path), "--index", index, "-m", script)
    assert "/a␛[2Jb-ircot" in done.err
    shown = multihop("show", done.err.split("Run folder: ")[1].strip().replace("␛", "\x1b"))
    assert "\x1b" not in done.err + done.out + shown.err + shown.out
