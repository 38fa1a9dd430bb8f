"""One Ray for all tests: it takes seconds to start."""

import warnings

import pytest


@pytest.fixture(scope="session")
def ray_here():
    """The module `ray`, with this process connected to a Ray of two cores and a small store on the loopback address."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray = pytest.importorskip("ray")
        from replaylab.distributed.ray_session import RaySession

        session = RaySession(cores=2, object_store_bytes=100 * 2**20)
        session.open()
        yield ray
        session.close()
