"""Past one machine, on Ray: studies whose populations run on its workers, a replay in shards, training by actors."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replaylab.distributed.training import Actors, Shards, train

__all__ = ["Actors", "Shards", "train"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.training"), name)


def __dir__() -> list[str]:
    return __all__
