"""The Questioner's reinforcement: rollouts of the very loop that answers, rewards, and GRPO.

A run has a folder and goes on where it was after any kind of end:

    config.json      the settings; others are refused
    curves.jsonl     a line a step and a line a validation; curves.html shows them
    checkpoints/     adapter and optimizer; the newest two
    best/            the adapter with the best F1 on the validation part so far
    result.json      what came out, once it is finished

Everything that is drawn depends on the seed and the step alone, so that what a kill has lost is
done again as it was.

Imports torch: imported when it is needed.
"""

import asyncio
import hashlib
import importlib.util
import json
import resource
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import torch

from multihop import files
from multihop.errors import BadInput
from multihop.lms.continuing import Continuing, Written
from multihop.lms.slotted import SlottedLM
from multihop.metrics.progress import Encode, turns
from multihop.metrics.rewards import Reward, advantages, reward
from multihop.metrics.traces import f1, gold_recall
from multihop.strategies.im_rag import Action, Fixed
from multihop.text import Json
from multihop.trace import Trace, trace
from multihop.training.grpo import Call, Learned, Learner, Policy, Settings
from multihop.training.im_rag import alarms, curves, parts
from multihop.training.im_rag.config import Config
from multihop.training.im_rag.parts import Asked, Corpora
from multihop.training.im_rag.settings import flat

CURVES, RESULT, CHECKPOINTS, BEST = "curves.jsonl", "result.json", "checkpoints", "best"
CONFIG, STATE = "config.json", "state.pt"
NAME = "questioner"
KEPT = 2
"""Checkpoints that are kept."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One drawn run.

    Attributes:
        trace: As evaluation would keep it.
        calls: Its calls in tokens: a query each, and the answer last.
        reward: What it is worth.
    """

    trace: Trace
    calls: tuple[Written, ...]
    reward: Reward


@dataclass(frozen=True, slots=True)
class Result:
    """What came out.

    Attributes:
        best: Folder of the best adapter.
        step: Steps done when it was best; 0 is the adapter that was begun with.
        steps: Steps done in all.
        f1: Its mean F1 on the validation part; None without one.
        alarm: Why the run was stopped; empty when it ran to its end or got no better.
    """

    best: Path
    step: int
    steps: int
    f1: float | None
    alarm: str = ""


class Engine:
    """Rollouts by a policy that is being trained.

    Args:
        config: The loop, the reward and how is drawn.
        lm: Writes; asked for the adapter `questioner`.
        corpora: Searched.
        encode: Of the tracker "cosine".
    """

    def __init__(
        self, config: Config, lm: SlottedLM, corpora: Corpora, encode: Encode | None = None
    ) -> None:
        self.config, self.lm, self.corpora = config, lm, corpora
        self.weights = parts.weights(config)
        # More rollouts than slots would take each other's keys and values away between turns.
        self.places = asyncio.Semaphore(config.rl.slots)
        self.trackers = [
            parts.tracker(config, corpora.passage(number), encode)
            for number in range(len(config.data.sets))
        ]

    async def group(self, asked: Asked, seeds: Sequence[int]) -> list[Rollout]:
        """Rollouts of one question, one for each seed."""
        return list(await asyncio.gather(*(self.rollout(asked, seed) for seed in seeds)))

    async def rollout(self, asked: Asked, seed: int) -> Rollout:
        """One rollout; equal seeds give equal ones."""
        kept = Continuing(self.lm)
        measured = self.trackers[asked.source]
        loop = parts.loop(
            self.config,
            kept,
            self.corpora.retrievers[asked.source],
            parts.training_stop(self.config, measured),
            refiner=self.corpora.refiner,
            temperature=self.config.rl.temperature,
            seed=seed,
        )
        async with self.places:
            run = await trace(loop, asked.question)
        return Rollout(run, tuple(kept.calls), reward(run, measured, self.weights))

    async def checks(self, asked: Sequence[Asked]) -> list[Trace]:
        """Greedy runs that do not look at gold passages, for validation."""
        stop = Action() if self.config.loop.action else Fixed(self.config.loop.max_turns)

        async def one(each: Asked) -> Trace:
            loop = parts.loop(
                self.config,
                self.lm,
                self.corpora.retrievers[each.source],
                stop,
                refiner=self.corpora.refiner,
            )
            async with self.places:
                return await trace(loop, each.question)

        return list(await asyncio.gather(*(one(each) for each in asked)))


def calls_of(
    group: Sequence[Rollout], *, by_turn: bool = False, scaled: bool = False
) -> list[list[Call]]:
    """A group's rollouts as what is learned from them.

    A call after the last turn that is no answer, the mark that it is enough, shares the answer's
    advantage.
    """
    shares = advantages([each.reward for each in group], by_turn=by_turn, scaled=scaled)
    found = []
    for rollout, share in zip(group, shares, strict=True):
        last = len(share) - 1
        found.append(
            [
                Call(call.prompt, call.ids, share[min(number, last)], call.logprobs)
                for number, call in enumerate(rollout.calls)
            ]
        )
    return found


def drawn(config: Config, train: Sequence[Asked], step: int) -> list[tuple[Asked, list[int]]]:
    """The questions of a step, and the seeds of their rollouts."""
    many, seed = config.rl.questions, config.rl.seed
    found = []
    for place in range(step * many, (step + 1) * many):
        turn, at = divmod(place, len(train))
        order = list(range(len(train)))
        Random(f"{seed}:{turn}").shuffle(order)  # noqa: S311 - no secret
        asked = train[order[at]]
        seeds = [_number(f"{seed}:{place}:{asked.question.id}:{n}") for n in range(config.rl.group)]
        found.append((asked, seeds))
    return found


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def train(
    config: Config,
    folder: Path,
    *,
    resume: bool = True,
    tell: Callable[[Mapping[str, float]], None] | None = None,
) -> Result:
    """Train, from the beginning or from the newest checkpoint in the folder.

    Args:
        config: What to train and how.
        folder: Of the run; is made.
        resume: Go on from the newest checkpoint. Else what is there of a run is deleted.
        tell: Told each line of the curves.

    Raises:
        BadInput: There is no adapter to begin with, or the folder holds another run.
    """
    if not config.start.questioner and not config.rl.fresh:
        raise BadInput(
            "start.questioner names no adapter: reinforcement needs a cold start (`multihop train "
            "coldstart`). An untrained small model earns nothing and learns nothing from it; "
            "rl.fresh = true begins so all the same."
        )
    _claim(config, folder, resume=resume)
    if (folder / RESULT).exists():
        return _result(folder)
    if config.rl.threads:
        torch.set_num_threads(config.rl.threads)
    return asyncio.run(_Run(config, folder, tell or (lambda _: None)).run())


class _Run:
    def __init__(
        self, config: Config, folder: Path, tell: Callable[[Mapping[str, float]], None]
    ) -> None:
        self.config, self.folder, self.tell = config, folder, tell
        torch.manual_seed(config.rl.seed)
        short = config.rl.dtype == "bfloat16" or (
            config.rl.dtype == "auto" and torch.cuda.is_available()
        )
        start = Path(config.start.questioner) if config.start.questioner else None
        self.policy = Policy(
            config.model.base,
            start,
            None if start else _fresh(config),
            dtype=torch.bfloat16 if short else torch.float32,
            keep_start=config.rl.beta > 0,
        )
        optimizer = torch.optim.AdamW(
            list(self.policy.parameters.values()), lr=config.rl.lr, weight_decay=config.rl.decay
        )
        chosen, loop = config.rl, config.loop
        self.learner = Learner(
            self.policy,
            optimizer,
            Settings(
                longest=loop.max_turns * loop.max_query_tokens + loop.max_answer_tokens,
                loss=chosen.loss,
                beta=chosen.beta,
                epsilon=chosen.epsilon,
                epsilon_high=chosen.epsilon_high,
                temperature=chosen.temperature,
                clip=chosen.clip,
                updates=chosen.updates,
                max_tokens=chosen.max_tokens,
            ),
        )
        self.lm = self.policy.writing(chosen.slots, chosen.window, [NAME])
        self.records: list[dict[str, float]] = []
        self.checked: list[dict[str, float]] = []
        self.board = _board(folder)
        self.began = time.monotonic()

    async def run(self) -> Result:
        config = self.config
        train, valid = parts.questions(config)
        valid = valid[: config.rl.valid_questions]
        corpora = Corpora(config.data.sets, parts.refiner(config))
        encode = parts.encoder(config.reward.encoder)
        engine = Engine(config, self.lm, corpora, encode)
        step, why = self._resume(), ""
        try:
            self.policy.pour()
            if step == 0:
                await self._check(engine, valid, 0)
            while step < config.rl.steps:
                await self._step(engine, train, step)
                step += 1
                why = alarms.alarm(self.records, config)
                if why:
                    break
                if step % config.rl.valid_every == 0 or step == config.rl.steps:
                    await self._check(engine, valid, step)
                    scores = [check["f1"] for check in self.checked if "f1" in check]
                    if alarms.falling(scores, config.rl.patience):
                        break
                if step % config.rl.save_steps == 0:
                    self._save(step)
        finally:
            await self.lm.aclose()
            await corpora.aclose()
        return self._finish(step, why)

    async def _step(self, engine: Engine, train: Sequence[Asked], step: int) -> None:
        began = time.monotonic()
        asked = drawn(self.config, train, step)
        groups = list(await asyncio.gather(*(engine.group(each, seeds) for each, seeds in asked)))
        wrote = time.monotonic()
        by_turn = self.config.rl.credit == "turn"
        batch = [calls_of(g, by_turn=by_turn, scaled=self.config.rl.scaled) for g in groups]
        self._warm_up(step)
        learned = await asyncio.to_thread(self.learner.learn, batch)
        # What was evaluated before was evaluated with other weights.
        await self.lm.forget()
        self.policy.pour()
        spent = {
            "writing": round(wrote - began, 2),
            "learning": round(time.monotonic() - wrote, 2),
        }
        self._note(step + 1, groups=groups, batch=batch, learned=learned, spent=spent)

    def _warm_up(self, step: int) -> None:
        share = min(1.0, (step + 1) / (self.config.rl.warmup + 1))
        for group in self.learner.optimizer.param_groups:
            group["lr"] = self.config.rl.lr * share

    def _note(
        self,
        step: int,
        *,
        groups: Sequence[Sequence[Rollout]],
        batch: Sequence[Sequence[Sequence[Call]]],
        learned: Learned,
        spent: Mapping[str, float],
    ) -> None:
        every = [rollout for group in groups for rollout in group]
        queries = [
            len(call.ids) for r in every for call in r.calls if call.request.role == "question"
        ]
        idle = [not any(c.advantage for calls in group for c in calls) for group in batch]
        recalls = [found for r in every if (found := gold_recall(r.trace)) is not None]
        record = {
            "step": step,
            "reward": fmean(r.reward.total for r in every),
            "f1": fmean(r.reward.answer for r in every),
            "progress": fmean(sum(r.reward.gains) for r in every),
            "usable": fmean(r.reward.usable for r in every),
            "recall": fmean(recalls) if recalls else 0.0,
            "turns": fmean(len(turns(r.trace)) for r in every),
            "query_tokens": fmean(queries) if queries else 0.0,
            "tokens": float(sum(len(call.ids) for r in every for call in r.calls)),
            "idle": fmean(map(float, idle)),
            "tokens_learned": float(learned.tokens),
            "too_long": float(learned.too_long),
            "loss": learned.loss,
            "norm": learned.norm,
            "kl": learned.kl,
            "entropy": learned.entropy,
            "clipped": learned.clipped,
            "mismatch": learned.mismatch,
            "lr": self.learner.optimizer.param_groups[0]["lr"],
            **spent,
            "seconds": round(time.monotonic() - self.began, 1),
            "rss_mb": float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024),
        }
        self.records.append(record)
        self._tell(record)

    async def _check(self, engine: Engine, valid: Sequence[Asked], step: int) -> None:
        """Validate; the best adapter so far is kept."""
        line: dict[str, float] = {"step": step, "valid": len(valid)}
        if valid:
            ran = await engine.checks(valid)
            recalls = [found for run in ran if (found := gold_recall(run)) is not None]
            line["f1"] = fmean(f1(run) or 0.0 for run in ran)
            line["recall"] = fmean(recalls) if recalls else 0.0
            made = [turn for run in ran for turn in turns(run)]
            line["usable"] = fmean(float(turn.valid) for turn in made) if made else 0.0
        before = [(check["f1"], check["recall"]) for check in self.checked if "f1" in check]
        if not valid or (line["f1"], line["recall"]) > max(before, default=(-1.0, -1.0)):
            fresh, best = self.folder / f".{BEST}", self.folder / BEST
            shutil.rmtree(fresh, ignore_errors=True)
            self.policy.save(fresh)
            shutil.rmtree(best, ignore_errors=True)
            fresh.rename(best)
        self.checked.append(line)
        self._tell(line)

    def _tell(self, line: Mapping[str, float]) -> None:
        with (self.folder / CURVES).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if self.board:
            kind = "valid" if "valid" in line else "train"
            for name, value in line.items():
                self.board.add_scalar(f"{kind}/{name}", value, int(line["step"]))
        if "valid" in line:
            curves.write(self.folder, NAME)
        self.tell(line)

    # --- Going on ---------------------------------------------------------------------------------

    def _save(self, step: int) -> None:
        """Write a checkpoint; it is there whole or not at all."""
        place = self.folder / CHECKPOINTS
        fresh, whole = place / f".step-{step}", place / f"step-{step}"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        torch.save(
            {
                "step": step,
                "adapter": self.policy.state(),
                "optimizer": self.learner.optimizer.state_dict(),
            },
            fresh / STATE,
        )
        shutil.rmtree(whole, ignore_errors=True)
        fresh.rename(whole)
        for old in _checkpoints(self.folder)[:-KEPT]:
            shutil.rmtree(old)

    def _resume(self) -> int:
        """The step to go on after; curves beyond it are forgotten."""
        step = 0
        if there := _checkpoints(self.folder):
            try:
                state = torch.load(there[-1] / STATE, weights_only=True)
                step = int(state["step"])
                self.policy.load(state["adapter"])
                self.learner.optimizer.load_state_dict(state["optimizer"])
            except (OSError, RuntimeError, KeyError, ValueError) as broken:
                raise BadInput(
                    f"{there[-1]}: a damaged checkpoint ({type(broken).__name__}). Delete it; the "
                    "run then goes on from the one before."
                ) from broken
        path = self.folder / CURVES
        kept = []
        for line in path.read_text("utf-8").splitlines() if path.exists() and step else ():
            try:
                record = json.loads(line)
            except ValueError:  # cut off by a kill
                continue
            if record["step"] <= step:
                kept.append(record)
        files.write(path, "".join(json.dumps(record) + "\n" for record in kept))
        self.records = [record for record in kept if "valid" not in record]
        self.checked = [record for record in kept if "valid" in record]
        return step

    def _finish(self, step: int, why: str) -> Result:
        scored = [check for check in self.checked if "f1" in check]
        best: Mapping[str, float] = max(
            scored, key=lambda check: (check["f1"], check["recall"], -check["step"]), default={}
        )
        result = Result(
            self.folder / BEST,
            int(best.get("step", step)),
            step,
            best.get("f1"),
            why,
        )
        if self.board:
            self.board.close()
        record: dict[str, Json] = {
            "step": result.step,
            "steps": result.steps,
            "f1": result.f1,
            "alarm": why,
        }
        curves.write(self.folder, NAME)
        files.write(self.folder / RESULT, json.dumps(record, indent=1) + "\n")
        return result


def _fresh(config: Config) -> Any:
    import peft  # noqa: PLC0415 - an adapter that is there brings its own

    return peft.LoraConfig(
        r=config.model.r,
        lora_alpha=config.model.alpha,
        target_modules=list(config.model.targets) or "all-linear",
        task_type="CAUSAL_LM",
    )


def _board(folder: Path) -> Any:
    """TensorBoard's writer, where it is installed."""
    if importlib.util.find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - may not be there

    return SummaryWriter(str(folder / "tensorboard"))


def _checkpoints(folder: Path) -> list[Path]:
    """Those that were written to their end, the newest last."""
    found = (folder / CHECKPOINTS).glob("step-*")
    return sorted(found, key=lambda path: int(path.name.rpartition("-")[2]))


FREE = ("rl.threads", "rl.save_steps", "rl.slots", "rl.steps")
"""What may change between two sittings."""


def _claim(config: Config, folder: Path, *, resume: bool) -> None:
    """Make sure that the folder is free or holds this very run.

    Raises:
        BadInput: It holds a run of other settings; the first one that differs is named.
    """
    if not resume:
        for name in (CHECKPOINTS, BEST):
            shutil.rmtree(folder / name, ignore_errors=True)
        for name in (CURVES, RESULT, CONFIG):
            (folder / name).unlink(missing_ok=True)
    wanted = flat(config, ("model", "loop", "data", "start", "rl", "reward"))
    path = folder / CONFIG
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        folder.mkdir(parents=True, exist_ok=True)
        files.write(path, json.dumps(wanted, indent=1, sort_keys=True) + "\n")
        return
    except ValueError as broken:
        raise BadInput(f"{path}: not JSON ({broken}).") from None
    for name, value in wanted.items():
        if name not in FREE and found.get(name) != value:
            raise BadInput(
                f"{folder}: holds a run with {name} = {json.dumps(found.get(name))[:80]} (now: "
                f"{json.dumps(value)[:80]}). Choose another output.folder, delete this one, or go "
                "on with its own settings."
            )


def _result(folder: Path) -> Result:
    record = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    return Result(folder / BEST, record["step"], record["steps"], record["f1"], record["alarm"])
