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
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RAY_worker_niceness", "0")  # 15 otherwise: beside other work they would hardly run
            session.open()
            yield ray
            session.close()
