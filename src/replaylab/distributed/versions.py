"""Whether the machines of a cluster have the replaylab that asks them for work."""

import platform
import re

import replaylab
from replaylab.errors import ConfigError


def check_version(asking: str) -> None:
    """Raise where this machine has another version than the one that asks.

    Raises:
        ConfigError: It has.
    """
    if asking != replaylab.__version__:
        raise ConfigError(
            f"Node {platform.node()} of the Ray cluster has replaylab {replaylab.__version__}, but {asking} asks it "
            f"for work; install that version there, and run the same command again"
        )


def lacking(words: str) -> str | None:
    """Return what to say of an error in these words, if it is that a machine has no replaylab at all."""
    if not re.search(r"No module named 'replaylab['.]", words):
        return None
    return (
        f"Every node of the Ray cluster needs replaylab {replaylab.__version__}, but one cannot import it; install it "
        f"there, and run the same command again"
    )
