"""The error family.

    MultihopError              everything this package raises on purpose
    ├── BadInput               a file, option or record of the user's is wrong
    ├── MissingExtra           an optional dependency is not installed
    ├── DownloadError          a published file could not be fetched
    ├── CorpusError            a corpus or index cannot be used as it is
    │   └── IndexMismatch      made by another version or with other settings
    ├── RetrieverError         a search failed
    └── LMError                a language model failed
        ├── LMUnavailable      nobody answers, or only errors, after the last retry
        ├── LMRefused          key, model name or request was refused; retrying is useless
        ├── ContextTooLong     prompt and completion do not fit the model's window
        └── BadCompletion      the reply is not what the protocol says

A message says where, what was found and what to do. The command line shows it as one line
and exits with code 2; it never shows a traceback for one of these.
"""


class MultihopError(Exception):
    """Base of every error raised on purpose."""


class BadInput(MultihopError):
    """A file, option or record given by the user is wrong."""


class MissingExtra(MultihopError):
    """An optional dependency is not installed.

    Args:
        package: What could not be imported.
        extra: The extra that brings it.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed. Run: pip install 'multihop[{extra}]'")
        self.package = package
        self.extra = extra


class DownloadError(MultihopError):
    """A published file could not be fetched, or is not the one that was published."""


class CorpusError(MultihopError):
    """A corpus or an index cannot be used as it is."""


class IndexMismatch(CorpusError):
    """An index was made by another format version or with other settings."""


class RetrieverError(MultihopError):
    """A search failed. Never turned into fewer hits."""


class LMError(MultihopError):
    """A language model failed. Never turned into an empty completion."""


class LMUnavailable(LMError):
    """Nobody answers, or only errors, after the last retry."""


class LMRefused(LMError):
    """The key, the model name or the request was refused; retrying is useless."""


class ContextTooLong(LMError):
    """Prompt and completion do not fit the model's window.

    Args:
        message: What was asked and what fits.
        needed: Tokens of the prompt and the completion, where known.
        window: Tokens that fit, where known.
    """

    def __init__(self, message: str, needed: int | None = None, window: int | None = None) -> None:
        super().__init__(message)
        self.needed = needed
        self.window = window


class BadCompletion(LMError):
    """The server's reply is not what the protocol says: garbage, or half a stream."""
