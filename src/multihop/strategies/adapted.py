"""The prompts of an adapter: those that its card says it was trained on, and no others."""

from dataclasses import replace

from multihop.errors import BadInput
from multihop.lms.adapters import AdapterCard
from multihop.strategies.rules import Preset, preset


def adapted(
    card: AdapterCard,
    wanted: str | Preset | None,
    family: str = "codex",
    shots: int | None = None,
    words: int | None = None,
    *,
    given: bool = False,
) -> Preset:
    """The rules for an adapter.

    Args:
        card: The adapter's.
        wanted: The preset asked for; None is the card's.
        family: As asked for.
        shots: Demonstrations asked for; None is the card's.
        words: Words of a passage asked for; None is the card's.
        given: Whether demonstrations were given.

    Raises:
        BadInput: What was asked for is not what the adapter was trained on.
    """
    form = card.form
    trained = f"Adapter {card.name!r} was trained on prompts of {form}"
    name = wanted.name if isinstance(wanted, Preset) else wanted
    if name is not None and name != form.preset:
        raise BadInput(
            f"{trained}; preset {name!r} writes others. Leave the preset out, or use no adapter "
            "(--adapter none)."
        )
    if family != "codex":
        raise BadInput(
            f"{trained}; family {family!r} writes others. Leave the family out, or use no "
            "adapter (--adapter none)."
        )
    if given and form.shots == 0:
        raise BadInput(
            f"{trained}, and demonstrations were given. Leave them out, or use no adapter "
            "(--adapter none)."
        )
    if isinstance(wanted, Preset):
        rules = wanted
    else:
        rules = replace(
            preset(form.preset),
            reader=form.reader,
            words=form.words,
            shots=form.shots,
            read_instruction=form.read_instruction,
        )
    for option, asked, own in (
        ("shots", rules.shots if shots is None else shots, form.shots),
        ("words", rules.words if words is None else words, form.words),
        ("read_instruction", rules.read_instruction, form.read_instruction),
    ):
        if asked != own:
            raise BadInput(
                f"{trained}; {option} is {asked!r} now and was {own!r}. Leave it out, or use no "
                "adapter (--adapter none)."
            )
    return rules
