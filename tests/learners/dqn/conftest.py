import pytest

from replaylab import _core


@pytest.fixture(params=_core.usable_kernels())
def kernels(request):
    """Every kind of vector instructions that this machine has."""
    _core.use_kernels(request.param)
    yield request.param
    _core.use_kernels(_core.usable_kernels()[0])
