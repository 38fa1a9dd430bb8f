import pytest


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request):
    """Where a replay lives; on a GPU, Triton's kernels run in place of PyTorch's operations."""
    return request.param
