"""The demonstrations that ship with the package."""

from importlib.resources import files

from multihop.prompts.demonstrations import Demonstration, parse, tidy


def own_demonstrations() -> tuple[Demonstration, ...]:
    """Our chain-of-thought demonstrations, over our own passages."""
    text = files("multihop.data").joinpath("demonstrations.txt").read_text(encoding="utf-8")
    return tidy(parse(text))
