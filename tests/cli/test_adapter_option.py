"""--adapter, and the adapter that the default model has by itself."""

import json
from pathlib import Path

import pytest

from adapter_folders import CARD, adapter_folder
from multihop import names
from multihop.cli.adapters import Wishes, choose, unchecked
from multihop.errors import BadInput
from multihop.lms import adapters
from multihop.lms.adapters import Adapter, BaseModel


@pytest.fixture
def ours(tmp_path, monkeypatch) -> Path:
    """A packaged adapter for the default model."""
    monkeypatch.setattr(adapters, "files", lambda _: tmp_path / "package")
    return adapter_folder(tmp_path / "package" / "data" / "adapters" / "loop")


def traces(result) -> dict:
    return json.loads(result.out)


@pytest.mark.usefixtures("ours")
def test_the_default_model_has_its_adapter_by_itself() -> None:
    assert choose(None, Wishes()).name == "loop"
    assert choose(None, Wishes(preset="trained", strategies=("nor", "ircot"))).name == "loop"
    assert choose(None, Wishes(strategy_options={"words": "9"})).name == "loop"
    assert choose("none", Wishes()) is None


@pytest.mark.usefixtures("ours")
@pytest.mark.parametrize(
    "wishes",
    [
        Wishes(preset="default"),
        Wishes(preset="official"),
        Wishes(demonstrations=True),
        Wishes(strategy_options={"shots": "2"}),
        Wishes(strategy_options={"family": "flan"}),
        Wishes(strategy_options={"adapter": "mine"}),
        Wishes(model_options={"adapters": '{"mine": "mine.gguf"}'}),
        Wishes(model_options={"chat": "true"}),
        Wishes(strategies=("ircot", "silent")),
        Wishes(strategies=("ircot", "self-ask")),
        Wishes(model="local:other.gguf"),
        Wishes(model="openai:gpt@http://localhost/v1"),
    ],
)
def test_who_asks_for_something_else_gets_the_base_model(wishes) -> None:
    assert choose(None, wishes) is None


def test_without_a_packaged_adapter_the_default_is_the_base_model() -> None:
    if not adapters.packaged():
        assert choose(None, Wishes()) is None


@pytest.mark.usefixtures("ours")
def test_a_named_adapter_is_packaged_or_a_folder_or_a_servers(tmp_path) -> None:
    folder = adapter_folder(tmp_path / "mine", name="mine")
    server = Wishes(model="openai:smol@http://localhost/v1")
    assert choose("loop", Wishes(model="local:other.gguf")).name == "loop"
    assert choose(str(folder), Wishes()).name == "mine"
    assert isinstance(choose(str(folder), server), Adapter)
    assert choose("theirs", server) == "theirs"
    assert choose("bare", Wishes(model_options={"adapters": '{"bare": "x.gguf"}'})) == "bare"
    with pytest.raises(BadInput, match="No adapter is named 'theirs'"):
        choose("theirs", Wishes())
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(BadInput, match=r"has no card\.json"):
        choose(str(empty), server)
    with pytest.raises(BadInput, match="give one of the two"):
        choose("loop", Wishes(strategy_options={"adapter": "x"}))


def test_what_a_server_has_loaded_is_told_to_be_unchecked(tmp_path) -> None:
    adapter = adapters.read_adapter(adapter_folder(tmp_path / "a"))
    assert "cannot be compared with the card" in unchecked(adapter, "openai:smol")
    assert unchecked("theirs", "openai:smol") == ""
    assert unchecked(adapter, names.DEFAULT_LM) == ""


def test_ask_with_an_adapter_shows_and_records_it(multihop, index, script, tmp_path) -> None:
    folder = adapter_folder(tmp_path / "a")
    result = multihop(
        *("ask", "Where was Lost Gravity built?", "--index", index, "-m", script),
        *("--adapter", str(folder), "--json"),
    )
    assert result.code == 0
    assert "ircot · trained · scripted" in result.err
    assert "json · loop" in result.err
    assert "cannot be compared with the card" in result.err
    trace = traces(result)
    assert trace["settings"]["adapter"] == "loop"
    assert trace["settings"]["adapter_digest"] == CARD.digest
    calls = [step["call"] for step in trace["steps"] if step.get("call")]
    assert {call["adapter"] for call in calls} == {"loop"}
    assert calls[0]["prompt"].startswith("Wikipedia Title: ")  # no demonstrations


def test_ask_without_one_is_as_before(multihop, index, script) -> None:
    result = multihop(
        *("ask", "Where was Lost Gravity built?", "--index", index, "-m", script, "--json"),
    )
    trace = traces(result)
    assert trace["settings"]["preset"] == "default"
    assert trace["settings"]["adapter"] is None
    assert "ircot · default · scripted" in result.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--preset", "official"), "preset 'official' writes others"),
        (("--strategy-option", "words=200"), "words is 200 now and was 70"),
        (("--strategy-option", "shots=1"), "shots is 1 now and was 0"),
        (("--demonstrations", "FILE"), "demonstrations were given"),
    ],
)
def test_other_prompts_are_refused(multihop, script, tmp_path, options, message) -> None:
    folder = adapter_folder(tmp_path / "a")
    shots = tmp_path / "shots.txt"
    shots.write_text("Wikipedia Title: Ulm\nUlm.\n\nQ: Where?\nA: So the answer is: Ulm.\n")
    options = (str(shots) if option == "FILE" else option for option in options)
    given = ("-s", "nor", "-m", script, "--adapter", str(folder))
    result = multihop("ask", "Where?", *given, *options)
    assert result.code == 2
    assert message in result.err
    assert "--adapter none" in result.err
    assert len(result.err.strip().splitlines()) <= 2  # the warning about servers, and this


def test_eval_keeps_runs_of_different_adapters_apart(multihop, index, script, tmp_path) -> None:
    questions = tmp_path / "q.jsonl"
    questions.write_text('{"id": "1", "question": "Where is it?", "answers": ["Germany"]}\n')
    into = tmp_path / "run"
    asked = ("eval", str(questions), "--index", index, "-m", script, "--into", str(into))
    folder = adapter_folder(tmp_path / "a")
    assert multihop(*asked, "--adapter", str(folder)).code == 0
    settings = json.loads((into / "run.json").read_text())["settings"]
    assert (settings["adapter"], settings["adapter_digest"]) == ("loop", CARD.digest)
    refused = multihop(*asked, "--adapter", str(adapter_folder(tmp_path / "b", files=OTHER)))
    assert refused.code == 2
    assert "holds a run with settings.adapter_digest" in refused.err


OTHER = {"adapter.gguf": "0" * 64}


def test_another_base_model_is_refused(multihop, index, tmp_path) -> None:
    pytest.importorskip("xllamacpp")
    folder = adapter_folder(tmp_path / "a", base=BaseModel(name="Qwen2", digest="0" * 64))
    result = multihop("ask", "Where?", "--index", index, "--adapter", str(folder))
    if "is not installed" not in result.err:
        assert "was trained on Qwen2 (SHA-256 000000000000...)" in result.err
    assert result.code == 2


def test_openai_is_asked_for_plain_completions(tmp_path, monkeypatch) -> None:
    pytest.importorskip("aiohttp")
    adapter = adapters.read_adapter(adapter_folder(tmp_path / "a"))
    lm = names.open_lm("openai:smol@http://localhost:1/v1", adapter=adapter)
    assert lm.identity["api"] == "completions"
    with pytest.raises(BadInput, match="trained on plain prompts"):
        names.open_lm("openai:smol@http://localhost:1/v1", {"api": "chat"}, adapter=adapter)


def test_doctor_lists_packaged_adapters_and_finds_damaged_ones(multihop, ours) -> None:
    result = multihop("doctor")
    assert "adapter loop" in result.out
    assert "for SmolLM2-135M-Instruct, 3 files" in result.out
    (ours / "adapter.gguf").write_bytes(b"damaged")
    result = multihop("doctor")
    assert "--  adapter loop" in result.out
    assert "is not the file that its card names" in result.out
    assert result.code == 0


@pytest.mark.embedded
@pytest.mark.torch
def test_the_demo_answers_with_the_packaged_adapter(multihop, tmp_path, monkeypatch) -> None:
    for package in ("torch", "gguf", "xllamacpp"):
        pytest.importorskip(package)
    from multihop.lms.gguf import DEFAULT
    from multihop.training import card, finish
    from tiny_gguf import one_matrix

    base, weights = finish.base_model(DEFAULT)
    monkeypatch.setattr(adapters, "files", lambda _: tmp_path / "package")
    card.write(
        one_matrix(tmp_path / "best", "model.layers.0.self_attn.q_proj", 576, 576),
        tmp_path / "package" / "data" / "adapters" / "loop",
        name="loop",
        base=base,
        weights=weights,
        training=CARD.training,
        licence="Apache-2.0",
    )
    kept = tmp_path / "runs"
    for options, named in (((), "loop"), (("--adapter", "none"), None)):
        result = multihop("demo", *options)
        assert result.code == 0
        assert ("local:SmolLM2-135M-Instruct · loop ·" in result.err) is (named == "loop")
        [*_, line] = next(kept.glob("asks-*/traces.jsonl")).read_text().splitlines()
        trace = json.loads(line)
        assert trace["settings"]["adapter"] == named
        calls = [step["call"] for step in trace["steps"] if step.get("call")]
        assert {call["adapter"] for call in calls} == {named}
