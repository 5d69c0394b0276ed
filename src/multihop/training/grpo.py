"""Group-relative policy optimisation over kept token ids. Imports torch: imported when needed.

GRPO (Shao et al. 2024) with the loss of Dr. GRPO (Liu et al. 2025) or DAPO (Yu et al. 2025). What
is learned from is calls: a prompt's tokens, and those that the policy wrote after it, as they were
drawn; text is never encoded again. Nothing but written tokens is a target, so passages, role
marks and prompts have no part in the loss or in its KL term.

Calls of a question share most of their tokens: a turn's prompt is the one before it with more at
its end, and all rollouts begin alike. They are evaluated as a tree (`packing`), each token once.
"""

import copy
import math
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from multihop.errors import BadInput
from multihop.lms import ragged
from multihop.lms.slotted import SlottedLM
from multihop.lms.weights import load_causal
from multihop.training import attention, packing
from multihop.training.packing import Pack, Tokens

ADAPTER, START = "default", "start"
"""peft's names of what is trained, and of the frozen copy that it began as."""


@dataclass(frozen=True, slots=True)
class Call:
    """Tokens that the policy wrote, and how much better than others they did.

    Attributes:
        prompt: Ids of what it read, just as it was evaluated.
        ids: Ids that it drew, the one that ended the text included.
        advantage: Of these tokens.
        logprobs: What each was drawn with, for comparison; may be empty.
    """

    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    advantage: float
    logprobs: tuple[float, ...] = ()


def written(calls: Sequence[Call]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A rollout as one sequence, and its mask: 1 where the policy wrote, 0 where it was told.

    Args:
        calls: Of one rollout, in order, each prompt going on from the call before it.

    Raises:
        ValueError: A prompt does not go on from the call before it, as under an `im_window`.
    """
    ids: list[int] = []
    mask: list[int] = []
    for call in calls:
        common = len(ids)
        if list(call.prompt[:common]) != ids:
            # The token that ended a text is not always read again.
            if not mask or list(call.prompt[: common - 1]) != ids[:-1]:
                raise ValueError("A prompt does not go on from the call before it.")
            ids.pop()
            mask.pop()
            common -= 1
        ids += call.prompt[common:]
        mask += [0] * (len(call.prompt) - common)
        ids += call.ids
        mask += [1] * len(call.ids)
    return tuple(ids), tuple(mask)


@dataclass(frozen=True, slots=True)
class Settings:
    """The loss; see `im_rag.config.RL`.

    Attributes:
        longest: Most tokens that a rollout may write, which "dr_grpo" divides by.
    """

    longest: int
    loss: Literal["dr_grpo", "dapo"] = "dr_grpo"
    beta: float = 0.0
    epsilon: float = 0.2
    epsilon_high: float = 0.28
    temperature: float = 1.0
    clip: float = 1.0
    updates: int = 1
    max_tokens: int = 3072


@dataclass
class Learned:
    """What a batch has shown.

    Attributes:
        tokens: Written tokens that were learned from.
        too_long: Calls left out because no pack can hold them.
        norm: Of the gradient, before clipping; 0 without one.
        loss, kl, entropy, clipped: Means over the tokens.
        mismatch: Mean difference between log-probabilities in writing and in learning.
    """

    tokens: int = 0
    too_long: int = 0
    norm: float = 0.0
    loss: float = 0.0
    kl: float = 0.0
    entropy: float = 0.0
    clipped: float = 0.0
    mismatch: float = 0.0


class Policy:
    """A base model with the adapter that is trained, and a copy that writes.

    The base is never changed. The writing copy has the adapter added into weights of its own,
    computed anew from base and adapter each time, so that no rounding adds up.

    Args:
        base: Named as in `config.Model.base`.
        start: Folder of an adapter in peft's form; None begins with a new one.
        fresh: peft's settings of a new one.
        dtype: Of the base on a GPU; a CPU computes in float32.
        tree: Leave out, on a CPU, what attention would hide.
    """

    def __init__(
        self,
        base: str,
        start: Path | None,
        fresh: Any = None,
        *,
        dtype: torch.dtype = torch.float32,
        keep_start: bool = True,
        tree: bool = True,
    ) -> None:
        import peft  # noqa: PLC0415 - only training needs it

        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        model, self.tokenizer = load_causal(base, dtype, "sdpa")
        self.base = base
        self.writer = copy.deepcopy(model)
        self.writer.set_attn_implementation(ragged.NAME)
        self.writer.to(self.device).eval()
        self.treed = tree and self.device == "cpu"
        if self.treed:
            model.set_attn_implementation(attention.NAME)
        with warnings.catch_warnings():  # peft asks transformers by an old name
            warnings.simplefilter("ignore", FutureWarning)
            if start is None:
                self.model = peft.get_peft_model(model, fresh)
            else:
                self.model = peft.PeftModel.from_pretrained(
                    model, str(start), ADAPTER, is_trainable=True
                )
            if keep_start:
                self.model.add_adapter(START, self.model.peft_config[ADAPTER])
        self.model.to(self.device)
        self.parameters = {
            name: value for name, value in self.model.named_parameters() if _of(ADAPTER, name)
        }
        for value in self.parameters.values():  # short bases have float32 adapters
            value.data = value.data.float()
        if keep_start:
            self._keep_start()
        self.model.set_adapter(ADAPTER)
        self.model.eval()  # no dropout: chances in writing and in learning must be the same

    def _keep_start(self) -> None:
        there = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, value in self.parameters.items():
                there[name.replace(f".{ADAPTER}.", f".{START}.")].copy_(value)

    def pour(self) -> None:
        """Bring the writing copy to the adapter as it is now."""
        from peft.tuners.lora import LoraLayer  # noqa: PLC0415

        with torch.no_grad():
            for name, module in self.model.get_base_model().named_modules():
                if isinstance(module, LoraLayer) and ADAPTER in module.lora_A:
                    whole = module.get_base_layer().weight + module.get_delta_weight(ADAPTER)
                    self.writer.get_submodule(name).weight.copy_(whole)

    @contextmanager
    def as_it_began(self) -> Iterator[None]:
        """Compute with the adapter that was begun with."""
        self.model.set_adapter(START)
        try:
            yield
        finally:
            self.model.set_adapter(ADAPTER)

    def writing(self, slots: int, window: int, names: Sequence[str]) -> SlottedLM:
        """The writing copy as a language model."""
        return SlottedLM.over(self.writer, self.base, slots=slots, window=window, adapters=names)

    def save(self, folder: Path) -> None:
        """Write the adapter in peft's form."""
        self.model.save_pretrained(
            str(folder), selected_adapters=[ADAPTER], save_embedding_layers=False
        )

    def state(self) -> dict[str, torch.Tensor]:
        """The adapter's numbers."""
        return {name: value.detach().cpu().clone() for name, value in self.parameters.items()}

    def load(self, state: dict[str, torch.Tensor]) -> None:
        """Put numbers back.

        Raises:
            BadInput: They are of another adapter.
        """
        if state.keys() != self.parameters.keys():
            raise BadInput("The checkpoint is of another adapter. Begin in another folder.")
        with torch.no_grad():
            for name, value in self.parameters.items():
                value.copy_(state[name])

    def logits(self, pack: Pack) -> torch.Tensor:
        """Scores of the next token at each target's place, of shape (targets, vocabulary)."""
        kept = sorted({target.at for target in pack.targets})
        column = {at: number for number, at in enumerate(kept)}
        seen = torch.from_numpy(pack.mask())[None, None].to(self.device)
        more = {"tree": attention.blocks(seen, torch.float32)} if self.treed else {}
        out = self.model(
            input_ids=torch.tensor([pack.ids], device=self.device),
            position_ids=torch.tensor([pack.positions], device=self.device),
            attention_mask=seen,
            logits_to_keep=torch.tensor(kept, device=self.device),
            use_cache=False,
            **more,
        )
        places = torch.tensor([column[target.at] for target in pack.targets], device=self.device)
        found: torch.Tensor = out.logits[0].float()[places]
        return found


def _of(adapter: str, name: str) -> bool:
    return f".{adapter}." in name and "lora_" in name


@dataclass
class _Batch:
    """A pack of calls, with what belongs to each target."""

    pack: Pack
    tokens: torch.Tensor
    advantages: torch.Tensor
    drawn: torch.Tensor | None
    old: torch.Tensor | None = None
    began: torch.Tensor | None = None


@dataclass
class Learner:
    """Learns from batches of calls.

    Attributes:
        policy: What learns.
        optimizer: Over its adapter.
        settings: The loss.
    """

    policy: Policy
    optimizer: Any
    settings: Settings
    _sums: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def learn(self, groups: Sequence[Sequence[Sequence[Call]]]) -> Learned:
        """Take a batch's steps.

        Groups without any advantage teach nothing and are not evaluated, unless a KL term pulls.

        Args:
            groups: Of rollouts, each the calls of one.

        Returns:
            What it has shown; the norm is not finite where the gradient was not, and then
            nothing was changed.
        """
        rollouts = sum(len(group) for group in groups)
        batches, found = self._packed(groups)
        if not batches:
            return found
        total = found.tokens if self.settings.loss == "dapo" else rollouts * self.settings.longest
        if self.settings.beta:
            with torch.no_grad(), self.policy.as_it_began():
                for batch in batches:
                    batch.began = self._chances(batch)[0]
        for _ in range(self.settings.updates):
            self._sums.clear()
            self.optimizer.zero_grad(set_to_none=True)
            for batch in batches:
                loss = self._loss(batch) / total
                loss.backward()
                self._sums["loss"] += float(loss.detach())
            found.norm = float(
                torch.nn.utils.clip_grad_norm_(
                    list(self.policy.parameters.values()), self.settings.clip
                )
            )
            if not math.isfinite(found.norm):
                return found
            if found.norm > 0:
                self.optimizer.step()
        found.loss = self._sums["loss"]
        for name in ("kl", "entropy", "clipped", "mismatch"):
            setattr(found, name, self._sums[name] / found.tokens)
        return found

    def gradient(self, calls: Sequence[Call]) -> float:
        """The norm of the gradient of some calls' loss; changes nothing. For tests and probes."""
        self.optimizer.zero_grad(set_to_none=True)
        for batch in self._batches(calls, Learned()):
            self._loss(batch).backward()
        values = [p.grad.norm() for p in self.policy.parameters.values() if p.grad is not None]
        self.optimizer.zero_grad(set_to_none=True)
        return float(torch.stack(values).norm()) if values else 0.0

    def _packed(self, groups: Sequence[Sequence[Sequence[Call]]]) -> tuple[list[_Batch], Learned]:
        found = Learned()
        batches: list[_Batch] = []
        for group in groups:
            calls = [call for rollout in group for call in rollout]
            if self.settings.beta or any(call.advantage for call in calls):
                batches += self._batches(calls, found)
        return batches, found

    def _batches(self, calls: Sequence[Call], found: Learned) -> Iterator[_Batch]:
        # A call's number stands in the place of a skill: its tokens stay apart from others'.
        every = [Tokens(call.prompt, call.ids, str(number)) for number, call in enumerate(calls)]
        fitting = [each for each in every if packing.fits(each, self.settings.max_tokens)]
        found.too_long += len(every) - len(fitting)
        for pack in packing.pack(fitting, self.settings.max_tokens):
            seen: Counter[str] = Counter()
            owners, places = [], []
            for target in pack.targets:
                owners.append(calls[int(target.skill)])
                places.append(seen[target.skill])
                seen[target.skill] += 1
            told = all(call.logprobs for call in owners)
            found.tokens += len(owners)
            device = self.policy.device
            yield _Batch(
                pack,
                torch.tensor([target.token for target in pack.targets], device=device),
                torch.tensor([call.advantage for call in owners], device=device),
                torch.tensor(
                    [c.logprobs[n] for c, n in zip(owners, places, strict=True)], device=device
                )
                if told
                else None,
            )

    def _chances(self, batch: _Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities of the written tokens, and of all tokens, as they were drawn."""
        every = torch.log_softmax(
            self.policy.logits(batch.pack) / self.settings.temperature, dim=-1
        )
        return every.gather(1, batch.tokens[:, None])[:, 0], every

    def _loss(self, batch: _Batch) -> torch.Tensor:
        """The sum over the tokens."""
        settings = self.settings
        own, every = self._chances(batch)
        if batch.old is None:  # the first update learns from what it has just drawn itself
            batch.old = own.detach()
        ratio = torch.exp(own - batch.old)
        held = ratio.clamp(1 - settings.epsilon, 1 + settings.epsilon_high)
        losses = -torch.minimum(ratio * batch.advantages, held * batch.advantages)
        with torch.no_grad():
            self._sums["entropy"] += float(-(every.exp() * every).sum())
            self._sums["clipped"] += float((held != ratio).sum())
            if batch.drawn is not None and settings.temperature == 1:
                self._sums["mismatch"] += float((batch.drawn - batch.old).abs().sum())
        if settings.beta and batch.began is not None:
            off = batch.began - own
            kl = torch.exp(off) - off - 1  # k3
            self._sums["kl"] += float(kl.detach().sum())
            losses = losses + settings.beta * kl
        return losses.sum()
