"""GRPO on a tiny model: what is learned from, what is touched, and that it goes on."""

import dataclasses
import json
import math
from pathlib import Path

import pytest

from im_rag_parts import config, corpus
from multihop.errors import BadInput
from multihop.strategies.im_rag.prompts import NOTHING, shown
from multihop.trace import Search, trace

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> str:
    pytest.importorskip("torch")
    pytest.importorskip("peft")
    from tiny_hf import tiny_llama

    return tiny_llama(tmp_path_factory.mktemp("base") / "tiny")


@pytest.fixture
def policy(base):
    import peft

    from multihop.training.grpo import Policy

    fresh = peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    return Policy(base, None, fresh)


def learner(policy, lr=1e-2, **settings):
    import torch

    from multihop.training.grpo import Learner, Settings

    optimizer = torch.optim.AdamW(list(policy.parameters.values()), lr=lr)
    return Learner(policy, optimizer, Settings(longest=20, max_tokens=256, **settings))


def moved(policy, seed=1):
    """An adapter that is not nothing."""
    import torch

    torch.manual_seed(seed)
    with torch.no_grad():
        for value in policy.parameters.values():
            value.add_(0.2 * torch.randn_like(value))
    policy.pour()


def call(prompt, ids, advantage=1.0):
    from multihop.training.grpo import Call

    return Call(tuple(prompt), tuple(ids), advantage)


def digest(model):
    return {
        name: value.detach().clone()
        for name, value in model.named_parameters()
        if "lora_" not in name
    }


def same(one, other):
    import torch

    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


# --- The step --------------------------------------------------------------------------------


def test_learning_changes_the_adapter_and_no_bit_of_the_base(policy):
    before, base = policy.state(), digest(policy.model)
    found = learner(policy).learn([[[call([1, 2, 3], [4, 5])], [call([1, 2, 3], [6, 7], -1.0)]]])
    assert found.tokens == 4
    assert found.norm > 0
    assert not same(before, policy.state())
    assert same(base, digest(policy.model))


def test_a_group_without_spread_has_no_gradient_at_all(policy):
    moved(policy)
    before = policy.state()
    taught = learner(policy)
    found = taught.learn([[[call([1, 2], [3], 0.0)], [call([1, 2], [4], 0.0)]]])
    assert (found.tokens, found.norm) == (0, 0)
    assert same(before, policy.state())
    assert taught.gradient([call([1, 2], [3], 0.0), call([1, 2], [4], 0.0)]) == 0
    assert taught.gradient([call([1, 2], [3], 1.0)]) > 0


def test_what_the_policy_was_told_is_no_target(policy):
    """Only written tokens are scored: with others in their place the loss has no other targets."""
    from multihop.training import packing
    from multihop.training.grpo import written

    calls = [call([1, 2, 3], [4, 5]), call([1, 2, 3, 4, 5, 9, 9, 9], [6])]
    ids, mask = written(calls)
    assert ids == (1, 2, 3, 4, 5, 9, 9, 9, 6)
    assert mask == (0, 0, 0, 1, 1, 0, 0, 0, 1)
    [pack] = packing.pack(
        [packing.Tokens(c.prompt, c.ids, str(n)) for n, c in enumerate(calls)], 99
    )
    targets = sorted((pack.positions[t.at] + 1, t.token) for t in pack.targets)
    assert targets == [(n, ids[n]) for n in range(len(ids)) if mask[n]]
    assert len(pack) == len(ids) - 1  # what the calls share is evaluated once


def test_the_token_that_ended_a_text_may_not_be_read_again():
    from multihop.training.grpo import written

    ids, mask = written([call([1, 2], [3, 96]), call([1, 2, 3, 50, 9], [4])])
    assert (ids, mask) == ((1, 2, 3, 50, 9, 4), (0, 0, 1, 0, 0, 1))
    with pytest.raises(ValueError, match="go on"):
        written([call([1, 2], [3, 4]), call([7, 7, 7, 7, 7], [4])])


def test_gradients_are_those_of_each_call_alone(policy):
    """A tree of calls has the gradient that the calls have one by one."""
    import torch

    moved(policy)
    taught = learner(policy)
    calls = [
        call([1, 2, 3], [4, 5], 0.7),
        call([1, 2, 3], [4, 6], -0.3),
        call([1, 2, 3, 4, 5, 9], [8], 0.7),
    ]

    def gradient(some):
        from multihop.training.grpo import Learned

        taught.optimizer.zero_grad()
        for batch in taught._batches(some, Learned()):
            taught._loss(batch).backward()
        return [p.grad.clone() for p in policy.parameters.values()]

    together = gradient(calls)
    alone = [sum(parts) for parts in zip(*(gradient([c]) for c in calls), strict=True)]
    for one, other in zip(together, alone, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_the_loss_is_the_policy_gradient(policy):
    """At a ratio of one the gradient is -A times that of the log-probability."""
    import torch

    from multihop.training.grpo import Learned

    moved(policy)
    taught = learner(policy)
    [batch] = taught._batches([call([1, 2, 3], [4], 0.5)], Learned())
    taught.optimizer.zero_grad()
    taught._loss(batch).backward()
    name, value = next((n, p) for n, p in policy.parameters.items() if p.grad.norm() > 0)
    found = value.grad.clone()
    taught.optimizer.zero_grad()
    out = policy.model(input_ids=torch.tensor([[1, 2, 3]])).logits[0, -1]
    (-0.5 * torch.log_softmax(out, -1)[4]).backward()
    assert torch.allclose(found, policy.parameters[name].grad, atol=1e-5)


def test_steps_up_are_held_by_epsilon_high(policy):
    import torch

    moved(policy)
    taught = learner(policy, epsilon=0.1, epsilon_high=0.2)
    from multihop.training.grpo import Learned

    [batch] = taught._batches([call([1, 2], [3], 1.0)], Learned())
    own = taught._chances(batch)[0].detach()
    for ratio, advantage, norm in ((1.5, 1.0, 0), (1.1, 1.0, 1), (0.5, -1.0, 0), (0.5, 1.0, 1)):
        batch.old = own - math.log(ratio)
        batch.advantages = torch.tensor([advantage])
        taught.optimizer.zero_grad()
        taught._loss(batch).backward()
        total = sum(float(p.grad.norm()) for p in policy.parameters.values())
        assert bool(total) is bool(norm), (ratio, advantage)


def test_the_kl_term_pulls_towards_the_start_and_not_at_it(policy):
    taught = learner(policy, beta=1.0)
    group = [[[call([1, 2], [3], 0.0)], [call([1, 2], [4], 0.0)]]]
    found = taught.learn(group)
    assert (found.kl, found.norm) == (0, 0)
    moved(policy)
    found = taught.learn(group)
    assert found.kl > 0
    assert found.norm > 0


def test_a_prompt_that_no_pack_can_hold_is_counted(policy):
    found = learner(policy).learn([[[call(range(1, 90), [3]), call(list(range(90)) * 4, [3])]]])
    assert (found.too_long, found.tokens) == (1, 1)


def test_the_writing_copy_is_base_and_adapter_and_never_drifts(policy):
    import torch

    at_first = {n: p.clone() for n, p in policy.writer.named_parameters()}
    start = policy.state()
    for seed in range(3):
        moved(policy, seed)
    ids = torch.tensor([[1, 5, 9, 2]])
    whole = policy.model(input_ids=ids).logits
    plain = policy.writer
    plain.set_attn_implementation("sdpa")
    assert torch.allclose(plain(input_ids=ids).logits, whole, atol=1e-4)
    policy.load(start)
    policy.pour()
    assert same(at_first, dict(policy.writer.named_parameters()))


def test_another_adapters_numbers_are_refused(policy):
    with pytest.raises(BadInput, match="another adapter"):
        policy.load({})


# --- The run ---------------------------------------------------------------------------------


def lines(folder: Path):
    found = [json.loads(line) for line in (folder / "curves.jsonl").read_text().splitlines()]
    timed = ("writing", "learning", "seconds", "rss_mb")
    return [{k: v for k, v in each.items() if k not in timed} for each in found]


def test_three_steps_train_the_adapter_and_go_on_after_a_kill_as_if_there_was_none(base, tmp_path):
    import torch
    from safetensors.torch import load_file

    from multihop.training.im_rag import questioner

    chosen = config(tmp_path, base)
    whole = tmp_path / "whole"
    result = questioner.train(chosen, whole)
    assert (result.steps, result.alarm) == (3, "")
    assert (whole / "curves.html").exists()
    steps = [line for line in lines(whole) if "valid" not in line]
    assert [line["step"] for line in steps] == [1, 2, 3]
    assert any(line["norm"] > 0 for line in steps)
    assert all(line["mismatch"] < 1e-3 for line in steps)
    assert any(
        v.abs().sum() > 0
        for n, v in load_file(str(whole / "best" / "adapter_model.safetensors")).items()
        if "lora_A" in n
    )
    states = [
        torch.load(whole / "checkpoints" / f"step-{n}" / "state.pt")["adapter"] for n in (2, 3)
    ]
    assert not same(*states)

    # A kill in the third step: what is there afterwards is the checkpoint of the second.
    class Killed(BaseException):
        pass

    def kill(line):
        if line["step"] == 3:
            raise Killed

    killed = tmp_path / "killed"
    with pytest.raises(Killed):
        questioner.train(chosen, killed, tell=kill)
    assert questioner.train(chosen, killed).steps == 3
    for again, once in zip(lines(killed), lines(whole), strict=True):
        assert again == pytest.approx(once, rel=1e-3, abs=1e-5)  # sums in another order
    again = torch.load(killed / "checkpoints" / "step-3" / "state.pt")["adapter"]
    assert all(torch.allclose(again[n], states[1][n], atol=1e-3) for n in again)
    other = dataclasses.replace(chosen, rl=dataclasses.replace(chosen.rl, lr=0.5))
    with pytest.raises(BadInput, match=r"rl\.lr"):
        questioner.train(other, killed)
    assert questioner.train(chosen, killed) == dataclasses.replace(
        questioner.train(chosen, whole), best=killed / "best"
    )


async def test_masks_are_zero_on_what_was_told_and_one_on_what_was_written(base, tmp_path):
    from multihop.training.grpo import written
    from multihop.training.im_rag import parts, questioner

    chosen, engine, corpora, policy = _engine(base, tmp_path)
    asked, _ = parts.questions(chosen)
    group = await engine.group(asked[0], [1, 2, 3, 4])
    await engine.lm.aclose()
    await corpora.aclose()
    known = {p.id: shown(p, 10) for p in corpus()}
    for rollout, calls in zip(group, questioner.calls_of(group), strict=True):
        ids, mask = written(calls)
        assert len(calls) == len(rollout.trace.searches) + 1
        # What stands between two texts of the policy is the observation, and it alone is masked.
        for call, after, search in zip(calls, calls[1:], rollout.trace.searches, strict=False):
            end = len(call.prompt) + len(call.ids)
            assert set(mask[len(call.prompt) : end]) == {1}
            told = [known[n] for n in search.kept] or [NOTHING]
            if not search.query:
                told = [f"- {search.warnings[0]}"]
            word = "Answer:" if after is calls[-1] else "Query:"
            text = "\n".join([*told, word])
            if call.ids[-1] != LINE_END:
                text = "\n" + text
            expected = policy.tokenizer(text, add_special_tokens=False)["input_ids"]
            assert list(ids[end : len(after.prompt)]) == expected
            assert set(mask[end : len(after.prompt)]) == {0}
        assert set(mask[: len(calls[0].prompt)]) == {0}
        assert sum(mask) == sum(len(call.ids) for call in calls)
        assert len(ids) == len(calls[-1].prompt) + len(calls[-1].ids)


LINE_END = 96
"""The tiny tokenizer's."""


def _engine(base, tmp_path, **rl):
    import peft

    from multihop.training.grpo import Policy
    from multihop.training.im_rag import parts, questioner

    chosen = config(tmp_path, base, **rl)
    fresh = peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    policy = Policy(base, None, fresh)
    moved(policy)
    corpora = parts.Corpora(chosen.data.sets)
    lm = policy.writing(8, 512, ["questioner"])
    return chosen, questioner.Engine(chosen, lm, corpora), corpora, policy


async def test_one_seed_gives_the_same_transcript_in_training_and_in_use(base, tmp_path):
    from multihop.lms.slotted import SlottedLM
    from multihop.training.im_rag import parts

    chosen, engine, corpora, policy = _engine(base, tmp_path)
    asked, _ = parts.questions(chosen)
    policy.save(tmp_path / "saved")
    served = SlottedLM(base, slots=2, window=512, adapters={"questioner": tmp_path / "saved"})
    differ = set()
    for seed in range(4):
        trained = await engine.rollout(asked[seed], seed)
        loop = parts.loop(
            chosen,
            served,
            corpora.retrievers[0],
            parts.training_stop(chosen, engine.trackers[0]),
            temperature=chosen.rl.temperature,
            seed=seed,
        )
        used = await trace(loop, asked[seed].question)
        told = [[t.text for t in run.thoughts] for run in (trained.trace, used)]
        assert told[0] == told[1]
        assert trained.trace.answer.text == used.answer.text
        assert [s.kept for s in trained.trace.searches] == [s.kept for s in used.searches]
        assert [c.prompt for c in trained.trace.calls] == [c.prompt for c in used.calls]
        differ.add(tuple(told[0]))
        again = await engine.rollout(asked[seed], seed)
        assert [c.ids for c in again.calls] == [c.ids for c in trained.calls]
    assert len(differ) == 4
    await served.aclose()
    await engine.lm.aclose()
    await corpora.aclose()
    assert all(isinstance(s, Search) for s in trained.trace.searches)


def test_without_a_cold_start_it_is_refused_unless_asked_for(base, tmp_path):
    from multihop.training.im_rag import questioner

    chosen = config(tmp_path, base, fresh=False)
    with pytest.raises(BadInput, match="cold start"):
        questioner.train(chosen, tmp_path / "run")
    assert not (tmp_path / "run").exists()
