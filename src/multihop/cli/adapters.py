"""Which adapter a verb uses: the one named, or the one that comes with the default model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from multihop import names, strategies
from multihop.errors import BadInput
from multihop.lms.adapters import Adapter, find_adapter, packaged_for

NONE = "none"

option = click.option(
    "--adapter",
    metavar="NAME|DIR|none",
    help="Adapter of the model, as packaged, as a folder, or as a server calls it; see "
    "docs/adapters.md. By default the embedded model has its own, unless a preset or "
    "demonstrations are asked for.",
)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What else was asked for, as far as it decides about an adapter.

    Attributes:
        model: `KIND:TARGET`.
        preset: None when none was named.
        strategies: Their names.
        demonstrations: Whether any were given.
        model_options, strategy_options: As given.
    """

    model: str = names.DEFAULT_LM
    preset: str | None = None
    strategies: Sequence[str] = ("ircot",)
    demonstrations: bool = False
    model_options: Mapping[str, str] | None = None
    strategy_options: Mapping[str, str] | None = None

    @property
    def of_an_untrained_model(self) -> bool:
        """Whether they only make sense without an adapter of ours."""
        settings, options = self.strategy_options or {}, self.model_options or {}
        return bool(
            self.preset not in (None, "trained")
            or self.demonstrations
            or not settings.keys().isdisjoint({"shots", "family", "adapter"})
            or "adapters" in options
            or options.get("chat", "false") != "false"
            or not set(self.strategies) <= set(strategies.IRCOT_PROMPTS)
        )


def choose(named: str | None, wishes: Wishes) -> Adapter | str | None:
    """The adapter to use.

    Args:
        named: What --adapter says; None is the default model's own, where the wishes allow it.
        wishes: What else was asked for.

    Returns:
        A name alone when there is no card to be had: a server knows more of it.

    Raises:
        BadInput: There is no such adapter, or two were named.
    """
    if named == NONE:
        return None
    if named is None:
        if wishes.model != names.DEFAULT_LM or wishes.of_an_untrained_model:
            return None
        return packaged_for(names.DEFAULT_LM.partition(":")[2])
    if "adapter" in (wishes.strategy_options or {}):
        raise BadInput("--adapter and --strategy-option adapter=NAME: give one of the two.")
    loads = wishes.model.partition(":")[0] in names.LOADING
    try:
        return find_adapter(named)
    except BadInput:
        known_elsewhere = not loads or "adapters" in (wishes.model_options or {})
        if known_elsewhere and not Path(named).expanduser().exists():
            return named
        raise


def unchecked(adapter: Adapter | str | None, model: str) -> str:
    """What to tell about an adapter that cannot be compared with its card; empty: nothing."""
    if not isinstance(adapter, Adapter) or model.partition(":")[0] in names.LOADING:
        return ""
    return (
        f"{model} is asked for the adapter {adapter.name!r}. What it has loaded under this name, "
        "and on which base model, cannot be compared with the card; prompts follow the card."
    )
