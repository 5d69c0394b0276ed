"""IM-RAG's trainings from a configuration to what they leave: what the commands call."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from multihop import evaluation, names
from multihop.errors import BadInput
from multihop.lms.adapters import Adapter, DataSet, PromptForm, TrainingSummary
from multihop.strategies.im_rag import Fixed, Linear, prompts
from multihop.trace import Trace
from multihop.training import card, finish, lessons, sft
from multihop.training.im_rag import critic, parts, transcripts
from multihop.training.im_rag.config import Config
from multihop.training.im_rag.parts import Asked, Corpora
from multihop.training.im_rag.settings import flat
from multihop.training.im_rag.transcripts import Made

COLDSTART, QUESTIONER, ANSWERER, CRITIC = "coldstart", "questioner", "answerer", "critic"
LESSONS = "lessons.jsonl"


@dataclass(frozen=True, slots=True)
class Taught:
    """What a supervised training left.

    Attributes:
        made: Its lessons.
        result: Of the training.
        adapter: With its card; None while it is not finished.
    """

    made: Made
    result: sft.Result
    adapter: Adapter | None


def cold_start(
    config: Config,
    tell: Callable[[sft.Progress], None] | None = None,
    tell_sizes: Callable[[sft.Sizes], None] | None = None,
) -> Taught:
    """Teach a Questioner transcripts; its adapter is put where the run is.

    Raises:
        BadInput: As `transcripts.cold_start` and `sft.train`.
        MissingExtra: What training needs is not installed.
    """
    sft.need()
    folder = config.run(COLDSTART)
    made = transcripts.cold_start(config)
    return _supervised(
        config, made, folder, QUESTIONER, folder / "adapters" / QUESTIONER, tell, tell_sizes
    )


def answerer(
    config: Config,
    tell: Callable[[sft.Progress], None] | None = None,
    tell_sizes: Callable[[sft.Sizes], None] | None = None,
    on_run: Callable[[evaluation.Progress], None] | None = None,
) -> Taught:
    """Run the Questioner over the training questions, and teach an Answerer to answer from that.

    Raises:
        BadInput: There is no Questioner, or as `sft.train`.
        MissingExtra: What training needs is not installed.
    """
    sft.need()
    folder = config.run(ANSWERER)
    train, valid = parts.questions(config)
    ran = asyncio.run(_ran(config, [*train, *valid], folder / "runs", on_run))
    made = transcripts.answering(config, [*train, *valid], ran)
    return _supervised(config, made, folder, ANSWERER, config.adapters / ANSWERER, tell, tell_sizes)


def stop_models(
    config: Config, on_run: Callable[[evaluation.Progress], None] | None = None
) -> dict[str, Linear]:
    """Fit the critic and the model of progress on the Questioner's runs.

    Returns:
        By file, `critic.json` and `progress.json`, which are in the folder of adapters then.

    Raises:
        BadInput: There is no Questioner, or its runs are too few.
        MissingExtra: scikit-learn is not installed.
    """
    train, _ = parts.questions(config)
    ran = asyncio.run(_ran(config, train, config.run(CRITIC) / "runs", on_run))
    chosen = config.critic
    encode = parts.encoder(config.reward.encoder)
    corpora = Corpora(config.data.sets)
    try:
        found = []
        for number in range(len(config.data.sets)):
            own = [ran[a.question.id] for a in train if a.source == number]
            tracker = parts.tracker(config, corpora.passage(number), encode)
            found += critic.rows(own, tracker)
    finally:
        asyncio.run(corpora.aclose())
    made = {
        "critic.json": critic.fit(found, "enough", strength=chosen.strength, folds=chosen.folds),
        "progress.json": critic.fit(found, "gain", strength=chosen.strength, folds=chosen.folds),
    }
    for name, model in made.items():
        model.save(config.adapters / name)
    return made


def questioner_card(config: Config, trained: Path, step: int, score: float | None) -> Adapter:
    """The reinforced Questioner's adapter, with its card, in the folder of adapters."""
    train, valid = parts.questions(config)
    data = parts.sets(config, [*train, *valid], [0] * len(config.data.sets))
    found = _card(config, trained, config.adapters / QUESTIONER, QUESTIONER, data, steps=step)
    if score is not None:
        found = card.with_scores(found.folder, {"validation": {"F1": round(score, 4)}})
    return found


async def _ran(
    config: Config,
    asked: list[Asked],
    folder: Path,
    on_run: Callable[[evaluation.Progress], None] | None,
) -> Mapping[str, Trace]:
    """The Questioner's runs of as many turns as it may make; what is there is not run again."""
    if not config.start.questioner:
        raise BadInput("start.questioner names no adapter. Train one: `multihop train questioner`.")
    adapters = json.dumps({QUESTIONER: config.start.questioner})
    options = {"adapters": adapters, "slots": str(config.rl.slots)}
    lm = names.open_lm(f"slotted:{config.model.base}", options)
    corpora = Corpora(config.data.sets, parts.refiner(config))
    try:
        for number, source in enumerate(config.data.sets):
            loop = parts.loop(
                config,
                lm,
                corpora.retrievers[number],
                Fixed(config.loop.max_turns),
                refiner=corpora.refiner,
            )
            own = [each.question for each in asked if each.source == number]
            if own:
                await evaluation.evaluate(
                    own,
                    loop,
                    folder / f"{number}-{source.name}",
                    concurrency=2 * config.rl.slots,
                    on_progress=on_run,
                )
    finally:
        await lm.aclose()
        await corpora.aclose()
    return {
        run.question.id: run
        for number, source in enumerate(config.data.sets)
        if (folder / f"{number}-{source.name}").exists()
        for run in evaluation.finished(folder / f"{number}-{source.name}")
    }


def _supervised(  # noqa: PLR0917 - one caller a verb
    config: Config,
    made: Made,
    folder: Path,
    name: str,
    into: Path,
    tell: Callable[[sft.Progress], None] | None,
    tell_sizes: Callable[[sft.Sizes], None] | None,
) -> Taught:
    folder.mkdir(parents=True, exist_ok=True)
    lessons.write(folder / LESSONS, made.lessons)
    chosen = config.supervised(name, folder / LESSONS)
    learned, kept_back = sft.split(made.lessons, config.data.valid)
    result = sft.train(chosen, learned, kept_back, folder, tell=tell, tell_sizes=tell_sizes)
    if not result.finished:
        return Taught(made, result, None)
    loss = result.valid.get("")
    tokens = finish.evaluated(folder / "curves.jsonl", result.step)
    found = _card(
        config, result.best, into, name, made.parts, steps=result.step, tokens=tokens, loss=loss
    )
    return Taught(made, result, found)


def _card(
    config: Config,
    trained: Path,
    into: Path,
    name: str,
    data: tuple[DataSet, ...],
    *,
    steps: int,
    tokens: int = 0,
    loss: float | None = None,
) -> Adapter:
    base, weights = finish.base_model(config.model.base)
    settings = flat(config, ("model", "loop", "data", "start", "train", "rl", "reward"))
    return card.write(
        trained,
        into,
        name=name,
        base=base,
        weights=weights,
        form=PromptForm(
            preset=prompts.FORM, words=config.loop.words, reader="none", read_instruction=""
        ),
        training=TrainingSummary(
            data=data,
            config=hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest(),
            seed=config.rl.seed,
            steps=steps,
            tokens=tokens,
            loss=loss,
            settings=settings,
        ),
        licence=config.output.licence or "unknown",
    )
