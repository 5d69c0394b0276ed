"""What IM-RAG's trainings are told, from one TOML file.

    [model]    which model gets the adapters
    [loop]     the loop, as it is trained and will be asked
    [data]     the questions and their corpora
    [start]    the adapter that a training begins with or asks
    [train]    supervised training: cold start and Answerer
    [rl]       reinforcement of the Questioner
    [reward]   what its rollouts are worth
    [critic]   what the stop models learn from
    [output]   where the results go

The same file serves all verbs; each reads the tables that concern it.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from multihop import names, typed_toml
from multihop.errors import BadInput
from multihop.training import config as sft
from multihop.training.config import Model, Train
from multihop.typed_toml import number


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """The loop; as in `strategies.im_rag`.

    Attributes:
        k, n_candidates, max_turns, im_window, dedup, refine_with, words, max_query_tokens,
            max_answer_tokens: As there; an im_window of 0 shows all turns.
        refiner: A reranker as "cross-encoder:NAME", or "none".
        action: The Questioner learns to say that it has enough.
    """

    k: int = number(3, 1)
    n_candidates: int = number(20, 1)
    max_turns: int = number(3, 1)
    im_window: int = number(0, 0)
    dedup: bool = True
    refiner: str = "none"
    refine_with: Literal["query", "both"] = "query"
    words: int = number(70, 10)
    max_query_tokens: int = number(64, 1)
    max_answer_tokens: int = number(32, 1)
    action: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Questions over one corpus.

    Attributes:
        name, licence: As the card of the result says.
        questions: Question files with answers and gold passages, named as for `multihop eval`.
        index: BM25 index over their corpus.
    """

    name: str
    licence: str
    questions: tuple[str, ...]
    index: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """What is learned from.

    Attributes:
        sets: Where questions are from, as tables [[data.sets]].
        never: Question files that must share no question with the training.
        limit: Most questions of each set, in a shuffled order; 0 takes all.
        valid: Share of the questions kept for validation, chosen by a hash of the question.
        runs: Run folders of training questions, of any strategy with searches, whose right
            answers become cold start transcripts beside those of the rules.
        rules: Whether transcripts are made by rules from what the sets annotate.
        least_recall: Share of the gold passages that a transcript must have found.
        missing: Largest share of the Answerer's rows that lack a gold passage.
        seed: Of all choices.
    """

    sets: tuple[Source, ...] = ()
    never: tuple[str, ...] = ()
    limit: int = number(0, 0)
    valid: float = number(0.05, 0, 0.5)
    runs: tuple[str, ...] = ()
    rules: bool = True
    least_recall: float = number(1.0, 0, 1)
    missing: float = number(0.3, 0, 0.99)
    seed: int = number(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What was trained before.

    Attributes:
        questioner: Folder of an adapter: the cold start's for RL; the finished Questioner's for
            the Answerer and the critic.
    """

    questioner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RL:
    """Reinforcement by group-relative policy optimisation (GRPO).

    Attributes:
        steps: Optimizer steps, a batch of questions each.
        questions: Of a step.
        group: Rollouts of each question.
        temperature: They are drawn with.
        lr, warmup, clip, decay: As in [train]; constant after warming up for `warmup` steps.
        beta: Weight of the KL term (k3) towards the adapter that was begun with; 0 spares it.
        epsilon, epsilon_high: How far the ratio of chances may move down and up in a batch.
        updates: Times that a batch is learned; only beyond the first do the epsilons matter.
        loss: "dr_grpo" divides by the most tokens there could be, "dapo" by those there are.
        scaled: Advantages in the group's standard deviations.
        credit: "episode": one advantage a rollout; "turn": one for each turn.
        max_tokens: Of a pack; longer prompts are not learned from, and counted.
        slots: Sequences written at a time.
        window: Tokens that prompt and completion may take.
        valid_every: Steps between two validations.
        valid_questions: Of a validation, the first of the validation part.
        patience: Validations in a row with a falling F1 after which training stops; 0: never.
        save_steps: Between two checkpoints.
        watch: Steps in a row that an alarm looks at.
        least_entropy: Below it (nats a token) the policy has collapsed.
        threads: Of the CPU; 0: as torch chooses.
        dtype: As in [train].
        fresh: Begin with a new adapter; without a cold start a small model earns nothing.
        seed: Of the order of questions and of all draws.
    """

    steps: int = number(200, 1)
    questions: int = number(4, 1)
    group: int = number(8, 2)
    temperature: float = number(1.0, 0, above=True)
    lr: float = number(1e-5, 0, above=True)
    warmup: int = number(5, 0)
    clip: float = number(1.0, 0, above=True)
    decay: float = number(0.0, 0)
    beta: float = number(0.001, 0)
    epsilon: float = number(0.2, 0, 1)
    epsilon_high: float = number(0.28, 0)
    updates: int = number(1, 1)
    loss: Literal["dr_grpo", "dapo"] = "dr_grpo"
    scaled: bool = False
    credit: Literal["episode", "turn"] = "episode"
    max_tokens: int = number(3072, 16)
    slots: int = number(16, 1)
    window: int = number(2048, 32)
    valid_every: int = number(10, 1)
    valid_questions: int = number(64, 1)
    patience: int = number(3, 0)
    save_steps: int = number(5, 1)
    watch: int = number(20, 1)
    least_entropy: float = number(0.02, 0)
    threads: int = number(0, 0)
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    fresh: bool = False
    seed: int = number(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """What a rollout is worth; see `metrics.rewards`.

    Attributes:
        mode: "default", or "paper": equation 4 (then the weights and gamma here do not count).
        gamma, progress, answer, format: The weights.
        scorer, removal, threshold, best_of_k: The tracker; see `metrics.progress`.
        encoder: A sentence-transformers model for the scorer "cosine".
        stop: When a rollout ends before its last turn: "gold": no gold passage is left;
            "equation": by equation 6 too; "turns": never.
        phi: Of equation 6.
    """

    mode: Literal["default", "paper"] = "default"
    gamma: float = number(0.9, 0, 1, above=True)
    progress: float = number(0.5, 0)
    answer: float = number(1.0, 0)
    format: float = number(0.2, 0)
    scorer: Literal["cosine", "id", "recall"] = "id"
    removal: Literal["always", "threshold"] = "threshold"
    threshold: float = number(0.8, -1, 1)
    best_of_k: bool = False
    encoder: str = ""
    stop: Literal["gold", "equation", "turns"] = "gold"
    phi: float = number(0.3, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Critic:
    """How the stop models are fitted.

    Attributes:
        strength: Inverse weight of the penalty on large weights.
        folds: Parts of the cross-validation that their scores are of.
    """

    strength: float = number(0.5, 0, above=True)
    folds: int = number(5, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where results go.

    Attributes:
        folder: Of the runs: each verb has one of its name in it.
        adapters: Where finished adapters are put, as `questioner` and `answerer`, and the stop
            models; empty: `adapters` in the folder.
        licence: Under which the results may be used.
    """

    folder: str = "im-rag"
    adapters: str = ""
    licence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """IM-RAG's trainings."""

    model: Model = field(default_factory=Model)
    loop: Loop = field(default_factory=Loop)
    data: Data = field(default_factory=Data)
    start: Start = field(default_factory=Start)
    train: Train = field(default_factory=Train)
    rl: RL = field(default_factory=RL)
    reward: Reward = field(default_factory=Reward)
    critic: Critic = field(default_factory=Critic)
    output: Output = field(default_factory=Output)

    @property
    def adapters(self) -> Path:
        """Where finished adapters are put."""
        return Path(self.output.adapters or Path(self.output.folder) / "adapters")

    def run(self, verb: str) -> Path:
        """The folder of a verb's run."""
        return Path(self.output.folder) / verb

    def supervised(self, name: str, lessons: Path) -> sft.Config:
        """What `training.sft` is told for lessons that are in a file."""
        return sft.Config(
            model=self.model,
            data=sft.Data(
                lessons=str(lessons),
                words=self.loop.words,
                valid=self.data.valid,
                seed=self.data.seed,
            ),
            train=self.train,
            output=sft.Output(name=name, folder=str(lessons.parent), licence=self.output.licence),
        )


def read(path: Path) -> Config:
    """Read a configuration; the paths in it are relative to its folder, $NAME and ~ expanded.

    Raises:
        BadInput: The file is no TOML, or a key or value is not as the classes here say.
    """
    found = parse(typed_toml.read(path), str(path))

    def at(name: str) -> str:
        return typed_toml.located(name, path.parent)

    def questions(given: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.located_questions(name, path.parent) for name in given)

    sets = tuple(
        dataclasses.replace(each, questions=questions(each.questions), index=at(each.index))
        for each in found.data.sets
    )
    data = dataclasses.replace(
        found.data,
        sets=sets,
        never=questions(found.data.never),
        runs=tuple(at(run) for run in found.data.runs),
    )
    model = found.model
    beside = path.parent / Path(model.base).expanduser()
    if model.base.startswith((".", "~")) or beside.exists():
        model = dataclasses.replace(model, base=str(beside))
    output = dataclasses.replace(
        found.output, folder=at(found.output.folder), adapters=at(found.output.adapters)
    )
    start = dataclasses.replace(found.start, questioner=at(found.start.questioner))
    return dataclasses.replace(found, data=data, model=model, output=output, start=start)


def parse(tables: Mapping[str, Any], where: str = "the configuration") -> Config:
    """A configuration of tables as TOML gives them.

    Raises:
        BadInput: A key or value is not as the classes here say.
    """
    found = typed_toml.record(Config, tables, where)
    if not found.data.sets:
        raise BadInput(f"{where}: [data] needs tables [[data.sets]].")
    for place, source in enumerate(found.data.sets, 1):
        if not source.questions:
            raise BadInput(f"{where}: data.sets, table {place}: no questions.")
    if found.model.method != "lora":
        raise BadInput(f'{where}: model.method is "full"; IM-RAG trains adapters ("lora").')
    if not found.output.folder:
        raise BadInput(f"{where}: output.folder is empty; name a folder.")
    reward = found.reward
    if reward.scorer == "cosine" and not reward.encoder:
        raise BadInput(
            f"{where}: reward.scorer is cosine and reward.encoder names no model, such as "
            '"sentence-transformers/all-MiniLM-L6-v2".'
        )
    longest = found.loop.max_query_tokens + found.loop.max_answer_tokens
    if found.rl.window <= longest:
        raise BadInput(
            f"{where}: rl.window is {found.rl.window}; queries and answers alone may take "
            f"{longest} tokens."
        )
    return found
