"""One Ray for the examples that need it."""

from tests.distributed.conftest import ray_here

__all__ = ["ray_here"]
