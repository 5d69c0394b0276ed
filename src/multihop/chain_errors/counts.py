"""How many chains have an error, whether runs differ in it, and how far checkers agree."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from multihop.chain_errors.chains import Chain
from multihop.chain_errors.verdicts import Key, Verdict, is_error
from multihop.metrics import holm, mcnemar
from multihop.text import Json


@dataclass(frozen=True, slots=True)
class Count:
    """What one checker found in the chains of one run.

    Attributes:
        run: The run.
        strategy: Who wrote the chains.
        checker: "proxy", "judge" or "person".
        chains: Chains that were checked; one without a sentence is checked and has no error.
        with_error: Those with at least one error: the paper's count.
        undecided: Those without an error and with a sentence that has no verdict (unparsable,
            or not marked): the share may be higher by as much.
        sentences: Sentences of these chains.
        verdicts: How often each verdict was given.
    """

    run: str
    strategy: str
    checker: str
    chains: int
    with_error: int
    undecided: int
    sentences: int
    verdicts: Mapping[Verdict, int] = field(hash=False)

    @property
    def errors(self) -> int:
        """Sentences with an error."""
        return sum(n for verdict, n in self.verdicts.items() if is_error(verdict))

    @property
    def share(self) -> float | None:
        """Share of the chains with at least one error, in [0, 1]; None without chains."""
        return self.with_error / self.chains if self.chains else None

    @property
    def per_chain(self) -> float | None:
        """Errors a chain; None without chains."""
        return self.errors / self.chains if self.chains else None

    def to_dict(self) -> dict[str, Json]:
        """As JSON data."""
        return {
            "run": self.run,
            "strategy": self.strategy,
            "checker": self.checker,
            "chains": self.chains,
            "with_error": self.with_error,
            "undecided": self.undecided,
            "share": self.share,
            "sentences": self.sentences,
            "errors": self.errors,
            "errors_per_chain": self.per_chain,
            "verdicts": {str(verdict): n for verdict, n in self.verdicts.items()},
        }


def count(chains: Sequence[Chain], verdicts: Mapping[Key, Verdict], checker: str) -> list[Count]:
    """Add up a checker's verdicts, run by run.

    Args:
        chains: What was checked.
        verdicts: By sentence. A chain with sentences and no verdict at all was not checked (a
            person has not come to it) and is left out.
        checker: Its name.
    """
    found = []
    for run in dict.fromkeys(chain.run for chain in chains):
        of_run = [chain for chain in chains if chain.run == run]
        checked, with_error, undecided, sentences = 0, 0, 0, 0
        given: Counter[Verdict] = Counter()
        for chain in of_run:
            known = [
                verdicts[key]
                for sentence in chain.sentences
                if (key := (run, chain.question_id, sentence.number)) in verdicts
            ]
            if chain.sentences and not known:
                continue
            errors = [is_error(verdict) for verdict in known]
            checked += 1
            sentences += len(chain.sentences)
            with_error += any(errors)
            open_ = None in errors or len(known) < len(chain.sentences)
            undecided += open_ and not any(errors)
            given.update(known)
        found.append(
            Count(
                run=run,
                strategy=of_run[0].strategy,
                checker=checker,
                chains=checked,
                with_error=with_error,
                undecided=undecided,
                sentences=sentences,
                verdicts=dict(given.most_common()),
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class Contrast:
    """Two runs' chains for the same questions, by one checker.

    Attributes:
        checker: Whose verdicts.
        first, second: The runs.
        only_first: Questions whose chain has an error in the first run alone.
        only_second: Those in the second alone.
        n: Questions for which it is decided in both runs whether the chain has an error.
        p: Exact two-sided McNemar test of "no difference", after Holm over the checker's pairs.
    """

    checker: str
    first: str
    second: str
    only_first: int
    only_second: int
    n: int
    p: float

    def to_dict(self) -> dict[str, Json]:
        """As JSON data."""
        return {
            "checker": self.checker,
            "first": self.first,
            "second": self.second,
            "only_first": self.only_first,
            "only_second": self.only_second,
            "questions": self.n,
            "p": self.p,
        }


def contrast(
    chains: Sequence[Chain], verdicts: Mapping[Key, Verdict], checker: str
) -> list[Contrast]:
    """Compare all pairs of runs by one checker's verdicts; arguments as for `count`."""
    wrong: dict[str, dict[str, bool]] = {}
    for chain in chains:
        errors = [
            is_error(verdicts.get((chain.run, chain.question_id, sentence.number), "unparsable"))
            for sentence in chain.sentences
        ]
        if any(errors) or None not in errors:
            wrong.setdefault(chain.run, {})[chain.question_id] = any(errors)
    found: list[tuple[str, str, list[float], list[float]]] = []
    for first, second in combinations(wrong, 2):
        shared = [name for name in wrong[first] if name in wrong[second]]
        here = [float(wrong[first][name]) for name in shared]
        there = [float(wrong[second][name]) for name in shared]
        found.append((first, second, here, there))
    adjusted = holm([mcnemar(here, there) for _, _, here, there in found])
    return [
        Contrast(
            checker=checker,
            first=first,
            second=second,
            only_first=sum(a > b for a, b in zip(here, there, strict=True)),
            only_second=sum(a < b for a, b in zip(here, there, strict=True)),
            n=len(here),
            p=p,
        )
        for (first, second, here, there), p in zip(found, adjusted, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far two checkers agree on which sentences have an error.

    Attributes:
        first, second: The checkers.
        both: Sentences that both call an error.
        only_first: Those that the first alone does.
        only_second: Those that the second alone does.
        neither: Those that neither does.
    """

    first: str
    second: str
    both: int
    only_first: int
    only_second: int
    neither: int

    @property
    def n(self) -> int:
        """Sentences that both gave a verdict on."""
        return self.both + self.only_first + self.only_second + self.neither

    @property
    def share(self) -> float | None:
        """Share of the sentences on which they agree, in [0, 1]; None without any."""
        return (self.both + self.neither) / self.n if self.n else None

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa, in [-1, 1].

        None where it is not defined: no sentence, or both checkers say the same of all.

        Source: Cohen, Educational and Psychological Measurement 20 (1960).
        """
        if not self.n:
            return None
        yes = (self.both + self.only_first) * (self.both + self.only_second)
        no = (self.neither + self.only_second) * (self.neither + self.only_first)
        chance = (yes + no) / self.n**2
        if yes + no == self.n**2:
            return None
        return ((self.both + self.neither) / self.n - chance) / (1 - chance)

    def to_dict(self) -> dict[str, Json]:
        """As JSON data."""
        return {
            "first": self.first,
            "second": self.second,
            "sentences": self.n,
            "both_error": self.both,
            "only_first": self.only_first,
            "only_second": self.only_second,
            "neither": self.neither,
            "agreement": self.share,
            "kappa": self.kappa,
        }


def agreement(
    first: tuple[str, Mapping[Key, Verdict]], second: tuple[str, Mapping[Key, Verdict]]
) -> Agreement:
    """Compare two checkers on the sentences that both gave a verdict on.

    Args:
        first: A checker's name and its verdicts; unparsable ones are left out.
        second: The other's.
    """
    table: Counter[tuple[bool, bool]] = Counter()
    for key, verdict in first[1].items():
        here, there = is_error(verdict), is_error(second[1].get(key, "unparsable"))
        if here is not None and there is not None:
            table[here, there] += 1
    return Agreement(
        first[0],
        second[0],
        both=table[True, True],
        only_first=table[True, False],
        only_second=table[False, True],
        neither=table[False, False],
    )
