"""The training itself, on transformers' Trainer. Imports torch: imported when it is needed."""

import functools
import inspect
import itertools
import json
import math
import random
import resource
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import torch
import transformers
from torch.nn.functional import cross_entropy

from multihop import files
from multihop.errors import BadInput
from multihop.lms.weights import load_causal
from multihop.training import attention, packing
from multihop.training.config import Config
from multihop.training.examples import Lesson, Skill
from multihop.training.packing import Pack
from multihop.training.sft import Progress, Result, Sizes

SKILLS: tuple[str, ...] = get_args(Skill)
_CHECKPOINTING = next(  # the second name is that of older releases
    name
    for name in ("activation_checkpointing", "gradient_checkpointing")
    if name in transformers.TrainingArguments.__dataclass_fields__
)
CURVES, RESULT, CHECKPOINTS, BEST = "curves.jsonl", "result.json", "checkpoints", "best"


def run(
    config: Config,
    lessons_train: Sequence[Lesson],
    lessons_valid: Sequence[Lesson],
    folder: Path,
    *,
    resume: bool,
    tell: Callable[[Progress], None],
    tell_sizes: Callable[[Sizes], None],
) -> Result:
    """See `multihop.training.sft.train`."""
    settings = config.train
    folder.mkdir(parents=True, exist_ok=True)
    if not resume:
        _clear(folder)
    if (folder / RESULT).exists():
        return _result(folder)
    if settings.threads:
        torch.set_num_threads(settings.threads)
    transformers.set_seed(settings.seed)
    cuda = torch.cuda.is_available()
    half = settings.dtype == "bfloat16" or (settings.dtype == "auto" and has_bfloat16())
    # An adapter leaves the weights alone, so they may be short; what is trained stays float32.
    short = half and config.model.method == "lora"
    model, tokenizer = load_causal(
        config.model.base, torch.bfloat16 if short else torch.float32, config.model.attention
    )
    treed = config.model.attention == "sdpa" and settings.pack and not cuda and sees_trees(model)
    if config.model.method == "lora":
        model = _with_adapter(model, config)
    packs = packed(lessons_train, tokenizer, settings.max_tokens, share=settings.pack)
    valid = packed(lessons_valid, tokenizer, settings.max_tokens, share=settings.pack)
    if not packs:
        raise BadInput(
            f"No example fits train.max_tokens ({settings.max_tokens}). Raise it, or cut the "
            "passages shorter (data.words)."
        )
    tell_sizes(_sizes(model, packs, valid, lessons_train))
    steps = _steps(len(packs), config)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / CHECKPOINTS),
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.batch,
        gradient_accumulation_steps=settings.accumulation,
        learning_rate=settings.lr,
        lr_scheduler_type="constant_with_warmup"
        if settings.schedule == "constant"
        else settings.schedule,
        warmup_steps=round(settings.warmup * steps),
        weight_decay=settings.decay,
        max_grad_norm=settings.clip,
        bf16=half,
        use_cpu=not cuda,
        **{_CHECKPOINTING: settings.checkpointing},
        eval_strategy=("steps" if settings.valid_every else "epoch") if valid else "no",
        eval_steps=settings.valid_every or None,
        save_strategy="no",  # by the clock, see `_Watch`
        save_total_limit=2,
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=cuda,
        ddp_find_unused_parameters=False,
        seed=settings.seed,
        data_seed=settings.seed,
    )
    trainer = _Trainer(
        model=model,
        args=arguments,
        data_collator=_Collator(config.model.attention),
        train_dataset=_Packs(packs),
        eval_dataset=_Packs(valid) if valid else None,
        config=config,
        folder=folder,
        tell=tell,
        treed=treed,
        tokenizer=tokenizer,
    )
    watch = _Watch(settings.save_minutes, settings.patience)
    trainer.add_callback(watch)
    trainer.remove_callback(transformers.PrinterCallback)
    checkpoint = last_checkpoint(folder / CHECKPOINTS)
    _cut_curves(folder / CURVES, _step(checkpoint) if checkpoint else 0)
    with _signals(watch):
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    return _finish(trainer, watch, folder)


def has_bfloat16() -> bool:
    """Whether bfloat16 is computed by the hardware: on a GPU of these years, or by CPU code."""
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    able = torch.cpu.get_capabilities()
    return bool(able.get("amx_bf16") or able.get("avx512_bf16"))


def sees_trees(model: Any) -> bool:
    """Let a model compute attention in blocks of a tree, if it can be told of one."""
    arguments = inspect.signature(model.forward).parameters.values()
    more = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in arguments)
    if not more or not getattr(model, "_supports_attention_backend", False):
        return False
    model.set_attn_implementation(attention.NAME)
    return True


def packed(
    lessons: Sequence[Lesson], tokenizer: Any, limit: int, *, share: bool = True
) -> list[Pack]:
    """Packs of lessons, in the lessons' order.

    Args:
        lessons: Each is packed alone.
        tokenizer: Of the model.
        limit: Tokens of a pack. Examples that are longer are left out.
        share: Evaluate once what examples share; else each example is a pack.
    """
    found: list[Pack] = []
    for lesson in lessons:
        examples = packing.tokenize(lesson, tokenizer)
        groups = [examples] if share else [[example] for example in examples]
        for group in groups:
            found.extend(packing.pack(group, limit))
    return found


def _sizes(
    model: Any, packs: Sequence[Pack], valid: Sequence[Pack], lessons: Sequence[Lesson]
) -> Sizes:
    examples = sum(pack.examples for pack in packs)
    return Sizes(
        examples=examples,
        too_long=sum(len(lesson.examples) for lesson in lessons) - examples,
        packs=len(packs),
        tokens=sum(map(len, packs)),
        plain=sum(pack.plain for pack in packs),
        targets=sum(len(pack.targets) for pack in packs),
        valid=sum(pack.examples for pack in valid),
        parameters=sum(p.numel() for p in model.parameters() if p.requires_grad),
    )


def _with_adapter(model: Any, config: Config) -> Any:
    import peft  # noqa: PLC0415 - a whole model needs none

    targets: list[str] | str = list(config.model.targets) or "all-linear"
    layers: list[int] | None = None
    if count := config.model.layers:
        there = int(model.config.num_hidden_layers)
        if count > there:
            raise BadInput(f"model.layers is {count}; {config.model.base} has {there} layers.")
        layers = list(range(there - count, there))
        if isinstance(targets, str):  # peft takes layers only with names
            targets = _linear(model)
    settings = peft.LoraConfig(
        r=config.model.r,
        lora_alpha=config.model.alpha,
        lora_dropout=config.model.dropout,
        target_modules=targets,
        layers_to_transform=layers,
        task_type="CAUSAL_LM",
    )
    try:
        with warnings.catch_warnings():  # peft asks transformers by an old name
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
            adapted = peft.get_peft_model(model, settings)
    except ValueError as failure:  # no module of these names
        raise BadInput(f"model.targets: {failure}") from failure
    # Else peft asks the hub whether the vocabulary has grown; it has not.
    adapted.save_pretrained = functools.partial(
        adapted.save_pretrained, save_embedding_layers=False
    )
    return adapted


def _linear(model: Any) -> list[str]:
    """Names of the linear modules in the layers."""
    kinds = (torch.nn.Linear, transformers.pytorch_utils.Conv1D)
    head = model.get_output_embeddings()
    found = {
        name.rpartition(".")[2]
        for name, module in model.named_modules()
        if isinstance(module, kinds) and module is not head
    }
    return sorted(found)


def _steps(packs: int, config: Config) -> int:
    batches = -(-packs // config.train.batch)
    return max(1, round(-(-batches // config.train.accumulation) * config.train.epochs))


class _Packs(torch.utils.data.Dataset[Pack]):  # type: ignore[misc]
    def __init__(self, packs: Sequence[Pack]) -> None:
        self.packs = packs

    def __len__(self) -> int:
        return len(self.packs)

    def __getitem__(self, place: int) -> Pack:
        return self.packs[place]


class _Order(torch.utils.data.Sampler[int]):  # type: ignore[misc]
    """A new order in each pass, the same in every sitting; batches of about equal lengths."""

    def __init__(self, lengths: Sequence[int], batch: int, seed: int) -> None:
        self.lengths, self.batch, self.seed, self.epoch = lengths, batch, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """The Trainer says which pass begins."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        dice = random.Random(f"{self.seed}:{self.epoch}")  # noqa: S311 - no secret
        order = list(range(len(self.lengths)))
        dice.shuffle(order)
        if self.batch == 1:
            return iter(order)
        near = [
            sorted(order[start : start + 50 * self.batch], key=lambda place: self.lengths[place])
            for start in range(0, len(order), 50 * self.batch)
        ]
        batches = [
            group[start : start + self.batch]
            for group in near
            for start in range(0, len(group), self.batch)
        ]
        whole = [batch for batch in batches if len(batch) == self.batch]
        rest = [batch for batch in batches if len(batch) < self.batch]
        dice.shuffle(whole)
        return itertools.chain.from_iterable(whole + rest)


class _Collator:
    """Packs side by side, padded at their ends."""

    def __init__(self, attention: str) -> None:
        self.attention = attention

    def __call__(self, packs: Sequence[Pack]) -> dict[str, torch.Tensor]:
        """Tensors; what is predicted is a flat list over the packs."""
        rows, longest = len(packs), max(map(len, packs))
        ids = torch.zeros(rows, longest, dtype=torch.long)
        positions = torch.zeros(rows, longest, dtype=torch.long)
        for row, pack in enumerate(packs):
            ids[row, : len(pack)] = torch.tensor(pack.ids)
            positions[row, : len(pack)] = torch.tensor(pack.positions)
        targets = [(row, target) for row, pack in enumerate(packs) for target in pack.targets]
        # The head is computed where something is predicted: it is a fifth of a small model.
        kept = sorted({target.at for _, target in targets})
        column = {at: number for number, at in enumerate(kept)}
        return {
            "input_ids": ids,
            "position_ids": positions,
            "attention_mask": self._mask(packs, longest),
            "kept": torch.tensor(kept),
            "rows": torch.tensor([row for row, _ in targets]),
            "columns": torch.tensor([column[target.at] for _, target in targets]),
            "tokens": torch.tensor([target.token for _, target in targets]),
            "weights": torch.tensor([target.weight for _, target in targets]),
            "skills": torch.tensor([SKILLS.index(target.skill) for _, target in targets]),
            "evaluated": torch.tensor(sum(map(len, packs))),
        }

    def _mask(self, packs: Sequence[Pack], longest: int) -> torch.Tensor:
        if self.attention == "flash_attention_2":  # causal by itself; wants to know the padding
            lengths = torch.tensor([len(pack) for pack in packs])
            return (torch.arange(longest) < lengths[:, None]).long()
        seen = torch.eye(longest, dtype=torch.bool).repeat(len(packs), 1, 1)
        for row, pack in enumerate(packs):
            seen[row, : len(pack), : len(pack)] = torch.from_numpy(pack.mask())
        mask = seen[:, None]
        if self.attention == "eager":  # which adds it
            return torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
        return mask


class _Trainer(transformers.Trainer):  # type: ignore[misc]
    """Learns packs: weighted loss over the targets, validation by skill, curves."""

    def __init__(
        self,
        *,
        config: Config,
        folder: Path,
        tell: Callable[[Progress], None],
        treed: bool,
        tokenizer: Any,
        **rest: Any,
    ) -> None:
        super().__init__(**rest)
        self.loss_is_scaled_for_ga = True  # by `compute_loss`
        self.args._n_gpu = min(1, self.args.n_gpu)  # noqa: SLF001 - more by a process each
        self.run_config, self.folder, self.tell, self.treed = config, folder, tell, treed
        self.tokenizer = tokenizer
        self.started = time.monotonic()
        self.validating = 0.0
        self.first_step: int | None = None
        self.evaluated = self.learned = 0
        self.sums = torch.zeros(2, len(SKILLS))

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], torch.Tensor | None]:
        """The batches of a step, and the weight of all their targets, over all devices."""
        samples = list(itertools.islice(epoch_iterator, num_batches))
        if not samples:
            return samples, None
        total = torch.stack([sample["weights"].sum() for sample in samples]).sum().to(device)
        if self.args.world_size > 1:
            total = self.accelerator.gather(total).sum()
        return samples, total

    def get_train_dataloader(self) -> Any:
        """Batches in an order of our own."""
        batch = self.args.per_device_train_batch_size
        lengths = [len(pack) for pack in self.train_dataset.packs]
        loader = torch.utils.data.DataLoader(
            self.train_dataset,
            batch_size=batch,
            sampler=_Order(lengths, batch, self.args.seed),
            collate_fn=self.data_collator,
            pin_memory=self.args.dataloader_pin_memory,
        )
        return self.accelerator.prepare(loader)

    def compute_loss(
        self,
        model: Any,
        inputs: Mapping[str, torch.Tensor],
        return_outputs: bool = False,  # noqa: ARG002 - the Trainer passes it
        num_items_in_batch: torch.Tensor | None = None,
    ) -> Any:
        """This batch's part of the step's mean loss, so that parts add up."""
        losses = self._losses(model, inputs)
        weights = inputs["weights"]
        with torch.no_grad():
            self.evaluated += int(inputs["evaluated"])
            self.learned += len(weights)
            self.sums += _by_skill(losses, inputs)
        total = weights.sum() if num_items_in_batch is None else num_items_in_batch
        # The gradients of several devices are averaged, so each counts as many times.
        return (losses * weights).sum() / total * self.args.world_size

    def _losses(self, model: Any, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        mask = inputs["attention_mask"]
        more = {"tree": attention.blocks(mask, self.model.dtype)} if self.treed else {}
        out = model(
            input_ids=inputs["input_ids"],
            position_ids=inputs["position_ids"],
            attention_mask=mask.to(self.model.dtype) if mask.is_floating_point() else mask,
            logits_to_keep=inputs["kept"],
            use_cache=False,
            **more,
        )
        logits = out.logits[inputs["rows"], inputs["columns"]]
        return cross_entropy(logits.float(), inputs["tokens"], reduction="none")

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Validation loss by skill; the best adapter so far is kept."""
        checked = [entry for entry in self.state.log_history if "eval_loss" in entry]
        if checked and checked[-1]["step"] == self.state.global_step:
            return {k: v for k, v in checked[-1].items() if k.startswith("eval_")}
        began = time.monotonic()
        self.model.eval()
        sums = torch.zeros(2, len(SKILLS))
        collate = self.data_collator
        with torch.no_grad():
            for pack in self.eval_dataset.packs:
                inputs = self._prepare_inputs(collate([pack]))
                sums += _by_skill(self._losses(self.model, inputs), inputs)
        self.model.train()
        metrics = {f"eval_{k}" if k else "eval_loss": v for k, v in _means(sums).items()}
        self.validating += time.monotonic() - began
        before = [entry["eval_loss"] for entry in checked]
        if self.is_world_process_zero() and metrics["eval_loss"] < min(before, default=math.inf):
            self.save_best()
        self.log(metrics)
        self.control: transformers.TrainerControl = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def save_best(self) -> None:
        """Replace the best adapter by this one."""
        fresh = self.folder / f".{BEST}"
        shutil.rmtree(fresh, ignore_errors=True)
        model = self.accelerator.unwrap_model(self.model)
        model.save_pretrained(str(fresh))
        if self.run_config.model.method == "full":
            self.tokenizer.save_pretrained(str(fresh))
        best = self.folder / BEST
        shutil.rmtree(best, ignore_errors=True)
        fresh.rename(best)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:  # noqa: ARG002
        """Write a line of the curves and tell it."""
        step = self.state.global_step
        self.state.log_history.append({**logs, "step": step, "epoch": self.state.epoch})
        valid = _valid(logs)
        loss = valid.get("", logs.get("loss", 0.0))
        if not math.isfinite(loss):
            raise BadInput(
                f"The loss is {loss} after step {step}: the training has burst. Lower train.lr "
                f"(now {self.args.learning_rate:g}) or train.clip, and begin in another folder."
            )
        if not valid and "loss" not in logs:  # the Trainer's summary at the end
            return
        sums, evaluated, learned = self._over_devices()
        if not valid:
            self.sums.zero_()
        if not self.is_world_process_zero():
            return
        seconds = time.monotonic() - self.started
        busy = max(seconds - self.validating, 1e-9)
        line: dict[str, Any] = {"step": step, "epoch": round(self.state.epoch or 0.0, 4)}
        if valid:
            line["valid"] = valid
        else:
            if self.first_step is None:
                self.first_step = step - 1
            line |= {"loss": logs["loss"], "skills": _means(sums), "lr": logs["learning_rate"]}
            line["norm"] = logs.get("grad_norm")
            line["skills"].pop("", None)
        line |= {
            "tokens": evaluated,
            "tokens_per_second": round(evaluated / busy, 1),
            "seconds": round(seconds, 1),
            "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }
        with (self.folder / CURVES).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        done = step - (self.first_step or 0)
        left = (self.state.max_steps - step) * seconds / done if done else None
        history = self.state.log_history
        told = next((_valid(entry) for entry in reversed(history) if "eval_loss" in entry), {})
        rates = [e["learning_rate"] for e in history if "learning_rate" in e]
        self.tell(
            Progress(
                step,
                self.state.max_steps,
                self.state.epoch or 0.0,
                logs.get("loss"),
                told,
                rates[-1] if rates else 0.0,
                evaluated / busy,
                learned / busy,
                seconds,
                left,
            )
        )

    def _over_devices(self) -> tuple[torch.Tensor, int, int]:
        """Sums by skill since the last step, and tokens evaluated and learned in this sitting."""
        if self.args.world_size == 1:
            return self.sums.clone(), self.evaluated, self.learned
        counts = torch.tensor([self.evaluated, self.learned], device=self.args.device)
        sums = self.accelerator.reduce(self.sums.to(self.args.device)).cpu()
        evaluated, learned = self.accelerator.reduce(counts).tolist()
        return sums, evaluated, learned


def _by_skill(losses: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Sums of weighted losses and of weights, for each skill."""
    found = torch.zeros(2, len(SKILLS), device=losses.device)
    weights = inputs["weights"]
    found[0].index_add_(0, inputs["skills"], losses.detach() * weights)
    found[1].index_add_(0, inputs["skills"], weights)
    return found.cpu()


def _means(sums: torch.Tensor) -> dict[str, float]:
    """Mean loss of each skill that was there, and of all under ""."""
    found = {
        skill: (sums[0, number] / sums[1, number]).item()
        for number, skill in enumerate(SKILLS)
        if sums[1, number] > 0
    }
    return {"": (sums[0].sum() / sums[1].sum()).item(), **found}


def _valid(entry: Mapping[str, float]) -> dict[str, float]:
    """Losses of a validation in the Trainer's record; "" is over all."""
    return {
        "" if key == "eval_loss" else key.removeprefix("eval_"): value
        for key, value in entry.items()
        if key.startswith("eval_")
    }


class _Watch(transformers.TrainerCallback):  # type: ignore[misc]
    """Saves by the clock, stops when asked to or when validation gets no better."""

    def __init__(self, minutes: float, patience: int) -> None:
        self.seconds, self.patience = minutes * 60, patience
        self.saved = time.monotonic()
        self.asked = False
        self.early = False

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Decide what follows a step."""
        last = state.global_step >= state.max_steps
        if last and args.eval_strategy != "no":
            control.should_evaluate = True
        if self.asked or last or time.monotonic() - self.saved >= self.seconds:
            control.should_save = True
        if self.asked:
            control.should_training_stop = True
        return control

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> Any:  # noqa: ARG002
        """Count from here."""
        self.saved = time.monotonic()
        return control

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> Any:  # noqa: ARG002
        """Stop when the last validations were all worse than one before them."""
        losses = [entry["eval_loss"] for entry in state.log_history if "eval_loss" in entry]
        if self.patience and len(losses) - 1 - losses.index(min(losses)) >= self.patience:
            self.early = True
            control.should_training_stop = True
        return control


@contextmanager
def _signals(watch: _Watch) -> Iterator[None]:
    """Finish the step and save at the first interrupt; end at once at the second."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, _: Any) -> None:
        if watch.asked:
            signal.signal(number, kept[signal.Signals(number)])
            raise KeyboardInterrupt
        watch.asked = True

    for number in kept:
        signal.signal(number, ask)
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def last_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint that was written to its end; those that were not are deleted."""
    whole = []
    for path in folder.glob("checkpoint-*"):
        try:  # the state is written last
            json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))
            whole.append(path)
        except (OSError, ValueError):
            shutil.rmtree(path, ignore_errors=True)  # another process may be at it
    return max(whole, key=_step, default=None)


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def _cut_curves(path: Path, step: int) -> None:
    """Forget what was after the checkpoint: it will be done again."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except ValueError:  # cut off by a kill
            continue
        if record["step"] <= step:
            kept.append(line + "\n")
    files.write(path, "".join(kept))


def _clear(folder: Path) -> None:
    for name in (CHECKPOINTS, BEST):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (CURVES, RESULT):
        (folder / name).unlink(missing_ok=True)


def _finish(trainer: _Trainer, watch: _Watch, folder: Path) -> Result:
    state = trainer.state
    finished = watch.early or state.global_step >= state.max_steps
    checked = [entry for entry in state.log_history if "eval_loss" in entry]
    best: dict[str, Any] = min(checked, key=lambda entry: entry["eval_loss"], default={})
    if finished and not checked and trainer.is_world_process_zero():
        trainer.save_best()
    valid = _valid(best)
    result = Result(
        folder / BEST,
        int(best.get("step", state.global_step)),
        state.global_step,
        valid,
        finished,
        watch.early,
    )
    if finished and trainer.is_world_process_zero():
        record = {
            "step": result.step,
            "steps": result.steps,
            "valid": dict(valid),
            "stopped_early": result.stopped_early,
        }
        files.write(folder / RESULT, json.dumps(record, indent=1) + "\n")
    return result


def _result(folder: Path) -> Result:
    record = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    return Result(
        folder / BEST,
        record["step"],
        record["steps"],
        record["valid"],
        finished=True,
        stopped_early=record["stopped_early"],
    )
