"""Studies whose chunks run on Ray's workers."""

from replaylab.distributed.studies.executor import RayExecutor

__all__ = ["RayExecutor"]
