import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("stable_baselines3")


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Networks this small learn faster so."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
