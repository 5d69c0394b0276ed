"""The options that limit what questions and runs may cost."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from multihop import names, strategies
from multihop.cost import Prices
from multihop.errors import BadInput
from multihop.strategies import Budget, RunBudget

Command = TypeVar("Command", bound=Callable[..., Any])

UNITS = ("calls", "tokens", "seconds", "money")


@dataclass(frozen=True, slots=True)
class Budgets:
    """What was given; None where nothing was.

    Attributes:
        question: Limits of each question.
        run: Limits of the whole run.
        prices: The user's price table.
    """

    question: Budget | None = None
    run: RunBudget | None = None
    prices: Prices | None = None

    @classmethod
    def take(cls, chosen: dict[str, Any], asked: tuple[str, ...]) -> "Budgets":
        """Take the options' values out of all values by parameter name.

        Args:
            chosen: All values; those of the options here are removed.
            asked: Names of the strategies.

        Raises:
            BadInput: No strategy has a search that could end, money is limited without prices,
                or the price table is none.
        """
        path = chosen.pop("prices")
        prices = Prices.read(path) if path else None
        limits = {unit: chosen.pop(f"budget_{unit}") for unit in UNITS}
        run_limits = {unit: chosen.pop(f"run_budget_{unit}", None) for unit in UNITS}
        given = [unit for unit in UNITS if limits[unit]]
        if given and all(name in strategies.WITHOUT_LOOP for name in asked):
            raise BadInput(
                f"--budget-{given[0]}: there is no loop to end in {' or '.join(asked)}. "
                "`multihop eval` limits a whole run, with --run-budget-calls and the like."
            )
        return cls(
            Budget(**limits, prices=prices) if given else None,
            RunBudget(**run_limits, prices=prices) if any(run_limits.values()) else None,
            prices,
        )

    def of(self, strategy: str) -> Budget | None:
        """What a strategy is given; another package's may know no budgets."""
        if self.question:
            return replace(self.question, run=self.run)
        ours = strategy in strategies.NAMES or strategy in names.STRATEGIES
        return Budget(run=self.run) if self.run and ours else None

    def check(self, model: str) -> None:
        """Make sure that the model has a price where money is limited.

        Raises:
            BadInput: It has none.
        """
        if self.question:
            self.question.check(model)
        if self.run:
            self.run.limits.check(model)


prices_option = click.option(
    "--prices",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    envvar="MULTIHOP_PRICES",
    show_envvar=True,
    help="What models cost, a TOML table a model: prompt and generated, per million tokens.",
)

_WHOLE, _NUMBER = click.IntRange(1), click.FloatRange(0, min_open=True)

OPTIONS = [
    click.option(
        "--budget-calls",
        type=_WHOLE,
        metavar="N",
        help="LM calls after which a question's search ends; its reader still answers.",
    ),
    click.option("--budget-tokens", type=_WHOLE, metavar="N", help="The same in tokens."),
    click.option("--budget-seconds", type=_NUMBER, metavar="S", help="The same in seconds."),
    click.option(
        "--budget-money", type=_NUMBER, metavar="X", help="The same in money, by --prices."
    ),
    prices_option,
]
"""For every verb that runs strategies."""

_RUN_OPTIONS = [
    click.option(
        "--run-budget-calls",
        type=_WHOLE,
        metavar="N",
        help="LM calls of the whole run, earlier sittings included, after which no question is "
        "begun and those at work end their search. The same command with more goes on.",
    ),
    click.option("--run-budget-tokens", type=_WHOLE, metavar="N", help="The same in tokens."),
    click.option(
        "--run-budget-seconds",
        type=_NUMBER,
        metavar="S",
        help="The same in seconds on the clock, of this sitting alone.",
    ),
    click.option(
        "--run-budget-money", type=_NUMBER, metavar="X", help="The same in money, by --prices."
    ),
]


def run_options(command: Command) -> Command:
    """Give a command the limits of a whole run; `Budgets.take` takes what it gets for them."""
    for option in reversed(_RUN_OPTIONS):
        command = option(command)
    return command
