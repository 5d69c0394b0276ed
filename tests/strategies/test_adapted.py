"""Strategies with an adapter write the prompts that it was trained on, and no others."""

from dataclasses import replace

import pytest

from adapter_folders import CARD, adapter_folder
from multihop.errors import BadInput
from multihop.lms.adapters import PromptForm, read_adapter
from multihop.prompts.own import own_demonstrations
from multihop.strategies import Demonstrations, make
from multihop.strategies.rules import TRAINED, preset
from multihop.testing import ScriptedLM
from multihop.text import Hit, Passage, Question
from multihop.trace import trace

LONG = Passage("p", "Mack Rides", " ".join(f"w{n}" for n in range(300)))


def strategy(lm, **settings):
    return make("ircot", lm=lm, retriever=Always(), **settings)


class Always:
    """Finds the same passage for every query."""

    name = "always"

    async def search(self, queries, k):
        return [[Hit(LONG, 1.0)] for _ in queries]

    async def aclose(self) -> None:
        pass


async def test_the_card_fills_the_preset_and_every_call_names_the_adapter(tmp_path) -> None:
    lm = ScriptedLM("One thing.", "So the answer is: Ulm.", " Ulm")
    adapter = read_adapter(adapter_folder(tmp_path / "a", form=PromptForm(reader="direct")))
    result = await trace(strategy(lm, adapter=adapter), Question("Where is it?"))
    first, second, read = lm.prompts
    assert first.startswith("Wikipedia Title: Mack Rides\n")
    assert first.endswith("\n\nQ: Where is it?\nA:")
    assert "w69" in first
    assert "w70" not in first
    assert second == f"{first} One thing."
    assert read == first.replace("Q: ", "Q: Answer the following question.\n")
    assert {request.adapter for request in lm.requests} == {"loop"}
    assert result.answer.text == "Ulm"
    assert result.settings["preset"] == "trained"
    assert result.settings["adapter"] == "loop"
    assert result.settings["adapter_digest"] == adapter.card.digest
    assert result.settings["shots"] == 0


async def test_the_reader_that_reasons_is_sent_the_loops_own_prompt() -> None:
    lm = ScriptedLM("So the answer is: Ulm.", "It is in Ulm. So the answer is: Ulm.")
    await trace(strategy(lm, adapter=CARD), Question("Where is it?"))
    assert lm.prompts[0] == lm.prompts[1]


async def test_the_preset_can_be_had_without_an_adapter() -> None:
    lm = ScriptedLM("So the answer is: Ulm.", "Ulm.")
    result = await trace(strategy(lm, preset="trained", reader="direct"), Question("Where?"))
    assert lm.prompts[1].endswith("\n\nQ: Answer the following question.\nWhere?\nA:")
    assert result.settings["adapter"] is None
    assert "adapter_digest" not in result.settings


async def test_a_name_alone_is_taken_at_its_word() -> None:
    lm = ScriptedLM("So the answer is: Ulm.", "So the answer is: Ulm.")
    result = await trace(strategy(lm, adapter="on-a-server", preset="paper"), Question("Where?"))
    assert lm.requests[0].adapter == "on-a-server"
    assert "adapter_digest" not in result.settings


SHOTS = Demonstrations.from_cot(own_demonstrations())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"preset": "official"}, "; preset 'official' writes others. Leave the preset out"),
        ({"preset": "default"}, "preset 'default' writes others"),
        ({"preset": preset("paper")}, "preset 'paper' writes others"),
        ({"family": "flan"}, "family 'flan' writes others"),
        ({"demonstrations": SHOTS}, "and demonstrations were given. Leave them out"),
        ({"shots": 2}, "shots is 2 now and was 0"),
        ({"words": 100}, "words is 100 now and was 70"),
        ({"preset": replace(TRAINED, words=80)}, "words is 80 now and was 70"),
        ({"preset": replace(TRAINED, read_instruction="")}, "read_instruction is '' now"),
    ],
)
def test_other_prompts_are_refused_in_one_line(settings, message) -> None:
    with pytest.raises(BadInput, match=message) as refused:
        strategy(ScriptedLM(), adapter=CARD, **settings)
    said = str(refused.value)
    assert said.startswith(
        "Adapter 'loop' was trained on prompts of preset 'trained' (no demonstrations, passages "
        "of 70 words)"
    )
    assert said.endswith("or use no adapter (--adapter none).")
    assert "\n" not in said


def test_what_does_not_change_prompts_may_be_chosen() -> None:
    made = strategy(
        ScriptedLM(),
        adapter=CARD,
        preset="trained",
        reader="none",
        shots=0,
        words=70,
        k=2,
        max_steps=3,
        max_tokens=40,
    )
    assert made.settings["reader"] == "none"


def test_a_card_of_other_words_and_a_preset_of_ones_own_go_together() -> None:
    card = replace(CARD, form=PromptForm(words=80))
    assert strategy(ScriptedLM(), adapter=card).settings["words"] == 80
    own = replace(TRAINED, words=80, max_passages=7, reader="none")
    made = strategy(ScriptedLM(), adapter=card, preset=own)
    assert (made.settings["words"], made.settings["reader"]) == (80, "none")
    with pytest.raises(BadInput, match="No preset is named 'trained-2'"):
        strategy(ScriptedLM(), adapter=replace(CARD, form=PromptForm(preset="trained-2")))


@pytest.mark.parametrize("name", ["self-ask", "react", "decomp"])
def test_strategies_with_other_prompts_refuse_an_adapter(name, tmp_path) -> None:
    adapter = read_adapter(adapter_folder(tmp_path / "a"))
    with pytest.raises(BadInput, match=f"trained on other prompts than those of '{name}'"):
        make(name, lm=ScriptedLM(), retriever=Always(), adapter=adapter)


async def test_iter_retgen_writes_the_prompts_of_the_adapter(tmp_path) -> None:
    lm = ScriptedLM(" Ulm")
    adapter = read_adapter(adapter_folder(tmp_path / "a", form=PromptForm(reader="direct")))
    made = make("iter-retgen", lm=lm, retriever=Always(), adapter=adapter, max_steps=1)
    result = await trace(made, Question("Where is it?"))
    assert result.answer.text == "Ulm"
    assert "Q: Answer the following question.\nWhere is it?" in lm.prompts[0]
    assert {request.adapter for request in lm.requests} == {"loop"}
