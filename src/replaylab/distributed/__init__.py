"""Past one machine, on Ray: studies whose chunks run on its workers, a replay in shards, training by actors."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replaylab.distributed.status import ReplayStatus, cluster_status
    from replaylab.distributed.training import Actors, Shards, train

__all__ = ["Actors", "ReplayStatus", "Shards", "cluster_status", "train"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "training" if name in ("Actors", "Shards", "train") else "status"
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return __all__
