"""Optional dependencies: the one error for those that are not installed."""

from collections.abc import Iterator
from contextlib import contextmanager

from replaylab.errors import MissingExtraError


def missing_extra(feature: str, library: str, extra: str, also: str = "") -> MissingExtraError:
    """Return the error for a library that is not installed, with the command that installs it."""
    return MissingExtraError(
        f'{feature} needs {library}, which is not installed. Run: pip install "replaylab[{extra}]"{also}'
    )


@contextmanager
def needs(feature: str, extra: str, also: str = "") -> Iterator[None]:
    """Raise `MissingExtraError` if a module that is imported inside is missing.

    Args:
        feature: What needs the module, as the message calls it.
        extra: The extra of replaylab that installs it.
        also: Text that is appended to the command.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "a library").partition(".")[0].replace("_", "-")
        raise missing_extra(feature, library, extra, also) from error
