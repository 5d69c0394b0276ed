"""What was spent: LM calls, tokens, seconds and money, by the user's own price table.

Counted is what was really asked of a backend. A replayed text (`LMCall.replayed`) cost nothing
but its time. A fused one (`LMCall.fused`) was written for it, but nothing was sent: it costs the
tokens it generated, no call and no prompt. Failed attempts of a call, calls that ended in an
error, and what a server wrote after we had closed its stream are told by nobody and not counted.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from multihop.errors import BadInput
from multihop.text import Json
from multihop.trace import LMCall, Step, calls_of, searches_of

BYTES_A_TOKEN = 4
"""Bytes of UTF-8 taken for one token where a backend does not tell: about English prose."""

HIGHEST = 1e12
"""A price above it is a slip, and sums of such would leave the numbers."""


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs, in any currency; the same one throughout a table.

    Attributes:
        prompt: A million prompt tokens.
        generated: A million generated tokens, thinking included.
        cached: A million of the prompt tokens that the backend had cached; None is as
            `prompt`.
        call: One request.

    Raises:
        BadInput: A price is negative, above `HIGHEST` or no number.
    """

    prompt: float
    generated: float
    cached: float | None = None
    call: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not (number and 0 <= value <= HIGHEST) and not (name == "cached" and value is None):
                found = f"The price {name} is {_shortened(value)}"
                raise BadInput(f"{found}; it is a number from 0 to {HIGHEST:g}.")

    def of(self, *, calls: int, prompt: int, cached: int, generated: int) -> float:
        """What so many calls and tokens cost; `cached` ones are among the `prompt` ones."""
        cached = min(cached, prompt)
        cached_price = self.prompt if self.cached is None else self.cached
        tokens = (
            (prompt - cached) * self.prompt + cached * cached_price + generated * self.generated
        )
        return calls * self.call + tokens / 1e6


@dataclass(frozen=True, slots=True)
class Prices:
    """A price table.

    Attributes:
        models: By the name that stands in records (`LMCall.model`), as
            "openai:gpt-5-mini@https://...", or a pattern with `*`, `?` and `[...]`. The
            first that fits counts. A LoRA adapter costs what its model costs.
        where: The table's file, for messages.
    """

    models: Mapping[str, Price] = field(hash=False)
    where: str = "The price table"

    @classmethod
    def read(cls, path: Path) -> "Prices":
        """Read a TOML file: a table for each model, with the fields of `Price`.

        Raises:
            BadInput: No such file, or it says something else.
        """
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except FileNotFoundError:
            raise BadInput(f"{path}: there is no such price table.") from None
        except (ValueError, RecursionError) as broken:  # not all of them are the parser's own
            raise BadInput(
                f'{path}: not TOML ({broken}). A model\'s name is quoted, as ["openai:gpt-5*"].'
            ) from None
        return cls({name: _price(path, name, table) for name, table in tables.items()}, str(path))

    def find(self, model: str) -> Price | None:
        """The price of a model; None when no entry fits."""
        for name, price in self.models.items():
            if model == name or fnmatchcase(model, name):
                return price
        return None

    def of(self, model: str) -> Price:
        """The price of a model.

        Raises:
            BadInput: No entry fits.
        """
        price = self.find(model)
        if price is None:
            raise BadInput(
                f"{self.where}: no price for the model {model!r}. Add a table of this name, or "
                'of a pattern such as "openai:*", with prompt = and generated =.'
            )
        return price

    def only(self, *models: str) -> "Prices":
        """The table of these models; those without a price are left out."""
        found = {model: price for model in models if (price := self.find(model))}
        return Prices(found, self.where)

    def to_dict(self) -> dict[str, Json]:
        """As JSON data."""
        return {name: asdict(price) for name, price in self.models.items()}


def _shortened(value: object) -> str:
    """A value for a message: somebody else's may be of any length."""
    try:
        text = repr(value)
    except ValueError:  # a whole number of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= 80 else f"{text[:80]}..."


def _price(path: Path, name: str, table: object) -> Price:
    fields = ("prompt", "generated", "cached", "call")
    hint = "Expected prompt and generated, and if wanted cached and call."
    if not isinstance(table, dict):
        raise BadInput(f"{path}: {name!r} is no table of prices. {hint}")
    if unknown := [key for key in table if key not in fields]:
        # An unquoted name with a dot in it is a table in a table.
        raise BadInput(f"{path}: {name!r} has an unknown field {unknown[0]!r}. {hint}")
    if missing := [key for key in fields[:2] if key not in table]:
        raise BadInput(f"{path}: {name!r} has no field {missing[0]!r}. {hint}")
    try:
        return Price(**table)
    except BadInput as wrong:
        raise BadInput(f"{path}: {name!r}: {wrong}") from None


@dataclass(frozen=True, slots=True)
class Cost:
    """What steps have cost.

    Attributes:
        calls: Requests that a model answered.
        tokens: Prompt tokens, cached ones included, and generated ones.
        seconds: Time in LM calls and searches; more than the clock where they ran side by
            side.
        money: In the price table's currency; 0 without a table.
    """

    calls: int = 0
    tokens: int = 0
    seconds: float = 0.0
    money: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.calls + other.calls,
            self.tokens + other.tokens,
            self.seconds + other.seconds,
            self.money + other.money,
        )

    @classmethod
    def of_call(cls, call: LMCall, prices: Prices | None = None) -> "Cost":
        """What one call cost.

        A count that the backend does not tell is estimated from the text, a token for every
        four bytes of UTF-8 begun; cached tokens that it does not tell are none.

        Raises:
            BadInput: There are prices, but none for this model.
        """
        if call.replayed:
            return cls(seconds=call.seconds)
        calls, prompt, generated = 1, call.tokens.prompt, call.tokens.generated
        if call.fused:
            calls = prompt = 0
        if prompt is None:
            prompt = _estimate([call.prompt])
        if generated is None:
            generated = _estimate([*call.outputs, call.thinking])
        money = 0.0
        if prices is not None:
            money = prices.of(call.model).of(
                calls=calls,
                prompt=prompt,
                cached=call.tokens.cached or 0,
                generated=generated,
            )
        return cls(calls, prompt + generated, call.seconds, money)

    @classmethod
    def of(cls, steps: Iterable[Step], prices: Prices | None = None) -> "Cost":
        """What steps cost together; raises as `of_call`."""
        total = cls()
        for step in steps:
            for call in calls_of(step):
                total += cls.of_call(call, prices)
            for search in searches_of(step):  # its own calls have just been counted
                calling = sum(call.seconds for call in search.calls)
                total += cls(seconds=max(search.seconds - calling, 0.0))
        return total


def _estimate(texts: Iterable[str]) -> int:
    sizes = (len(text.encode("utf-8", "surrogatepass")) for text in texts)
    return sum(-(-size // BYTES_A_TOKEN) for size in sizes)
