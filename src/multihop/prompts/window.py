"""Making room for a completion in a window that the prompt nearly fills."""

from multihop.errors import ContextTooLong


def shrink_max_tokens(prompt_tokens: int, max_tokens: int, window: int) -> int:
    """The most tokens, up to `max_tokens`, that still fit behind the prompt.

    IRCoT's release asks with the full `max_tokens` first and shrinks it, once and without
    waiting, when the server refuses. A shorter completion may be cut off: look at its finish
    reason.

    Args:
        prompt_tokens: Length of the prompt.
        max_tokens: What was asked for, at least 1.
        window: Tokens that prompt and completion may take together.

    Raises:
        ContextTooLong: Not even one token fits.
    """
    room = window - prompt_tokens
    if room < 1:
        raise ContextTooLong(
            f"The prompt has {prompt_tokens} tokens and the window {window}: there is no room "
            "for a completion. Show fewer passages or demonstrations.",
            needed=prompt_tokens + max_tokens,
            window=window,
        )
    return min(max_tokens, room)
