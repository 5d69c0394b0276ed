"""What all of IM-RAG's trainings open: questions, corpora, and the loop over them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from multihop import names
from multihop.errors import BadInput, MissingExtra
from multihop.lms.adapters import DataSet
from multihop.lms.base import LanguageModel
from multihop.metrics.progress import Encode, Tracker
from multihop.metrics.rewards import PAPER, Weights
from multihop.retrievers.base import Reranker, Retriever
from multihop.strategies.im_rag import IMRAG, Action, Fixed, Oracle, StopPolicy
from multihop.text import Passage, Question
from multihop.training.im_rag.config import Config, Source
from multihop.training.recipe import HeldOut
from multihop.training.sft import in_valid


@dataclass(frozen=True, slots=True)
class Asked:
    """A question and the corpus that it is about.

    Attributes:
        question: With answers and gold passages.
        source: Which of the sets it is of, from 0.
    """

    question: Question
    source: int


class Corpora:
    """The sets' indexes, each opened once.

    Args:
        sources: The sets.
        refiner: Orders what they find; None leaves their order.
    """

    def __init__(self, sources: Sequence[Source], refiner: Reranker | None = None) -> None:
        from multihop.retrievers.batching import BatchedRetriever  # noqa: PLC0415
        from multihop.retrievers.bm25 import BM25  # noqa: PLC0415 - brings the search engine

        opened: dict[str, BM25] = {}
        for source in sources:
            if source.index not in opened:
                opened[source.index] = BM25(source.index)
        self._opened = list(opened.values())
        self._indexes = [opened[source.index] for source in sources]
        self.retrievers: list[Retriever] = [BatchedRetriever(each) for each in self._indexes]
        self.refiner = refiner

    def passage(self, source: int) -> Callable[[str], Passage | None]:
        """Passages of a set's corpus by their ids."""
        return self._indexes[source].get

    async def aclose(self) -> None:
        """Close all."""
        for each in self._opened:
            await each.aclose()
        if self.refiner:
            await self.refiner.aclose()


def questions(config: Config) -> tuple[list[Asked], list[Asked]]:
    """Questions to learn from and to validate with, in a shuffled order.

    Raises:
        BadInput: One is held out, or none is left to learn from.
    """
    held_out = HeldOut.read(config.data.never)
    train: list[Asked] = []
    valid: list[Asked] = []
    for number, source in enumerate(config.data.sets):
        found: dict[str, Asked] = {}
        for name in source.questions:
            for question in names.open_questions(name):
                held_out.refuse(question, name)
                if question.answers and question.gold_ids:
                    found.setdefault(question.id, Asked(question, number))
        kept = list(found.values())
        Random(f"{config.data.seed}:{number}").shuffle(kept)  # noqa: S311 - no secret
        kept = kept[: config.data.limit or None]
        for asked in kept:
            kept_back = in_valid(asked.question.id, config.data.valid)
            (valid if kept_back else train).append(asked)
    if not train:
        raise BadInput("No question with answers and gold passages is left to learn from.")
    for part in (train, valid):
        Random(config.data.seed).shuffle(part)  # noqa: S311 - no secret
    return train, valid


def sets(config: Config, asked: Sequence[Asked], examples: Sequence[int]) -> tuple[DataSet, ...]:
    """What was learned from, for a card.

    Args:
        config: Names the sets.
        asked: Questions learned from.
        examples: How many were made of each set's questions.
    """
    return tuple(
        DataSet(
            name=source.name,
            licence=source.licence,
            questions=sum(each.source == number for each in asked),
            examples=examples[number],
        )
        for number, source in enumerate(config.data.sets)
    )


def loop(
    config: Config,
    lm: LanguageModel,
    retriever: Retriever,
    stop: StopPolicy,
    *,
    refiner: Reranker | None = None,
    questioner: str | None = "questioner",
    answerer: str | None = "questioner",
    temperature: float = 0.0,
    seed: int = 0,
) -> IMRAG:
    """The loop as the configuration says."""
    chosen = config.loop
    return IMRAG(
        lm,
        retriever,
        refiner,
        stop,
        questioner=questioner,
        answerer=answerer,
        k=chosen.k,
        n_candidates=max(chosen.n_candidates, chosen.k),
        max_turns=chosen.max_turns,
        im_window=chosen.im_window or None,
        dedup=chosen.dedup,
        refine_with=chosen.refine_with,
        words=chosen.words,
        max_query_tokens=chosen.max_query_tokens,
        max_answer_tokens=chosen.max_answer_tokens,
        temperature=temperature,
        seed=seed,
    )


def refiner(config: Config) -> Reranker | None:
    """The refiner that the configuration names."""
    name = config.loop.refiner
    return None if name in ("", "none") else names.open_reranker(name)


def weights(config: Config) -> Weights:
    """The reward's weights."""
    chosen = config.reward
    if chosen.mode == "paper":
        return PAPER
    return Weights(chosen.gamma, chosen.progress, chosen.answer, chosen.format)


def tracker(
    config: Config, passage: Callable[[str], Passage | None], encode: Encode | None = None
) -> Tracker:
    """The tracker over one corpus."""
    chosen = config.reward
    paper = chosen.mode == "paper"
    return Tracker(
        chosen.scorer,
        "always" if paper else chosen.removal,
        chosen.threshold,
        best_of_k=chosen.best_of_k,
        encode=encode,
        passage=passage,
    )


def encoder(name: str) -> Encode | None:
    """A sentence-transformers model as a function; None for no name.

    Raises:
        MissingExtra: sentence-transformers is not installed.
    """
    if not name:
        return None
    try:
        from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - takes seconds
    except ImportError:
        raise MissingExtra("sentence-transformers", "dense") from None
    model = SentenceTransformer(name)

    def encode(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        found: list[list[float]] = model.encode(list(texts), show_progress_bar=False).tolist()
        return found

    return encode


def training_stop(config: Config, measured: Tracker) -> StopPolicy:
    """When a rollout ends before its last turn; gold passages decide, in training alone."""
    if config.loop.action:
        return Action()
    if config.reward.stop == "turns":
        return Fixed(config.loop.max_turns)
    phi = config.reward.phi if config.reward.stop == "equation" else None
    return Oracle(measured, weights(config).gamma, phi)
