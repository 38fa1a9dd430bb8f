"""Every public call of the measures, with one senseless argument at a time."""

import numpy as np
import pytest

from replaylab import measures
from tests.senseless import Call, misshapen, wrongs

DISTRIBUTION = np.array([0.25, 0.75])
ROWS = np.arange(12.0).reshape(4, 3) ** 1.5
BATCH = {"batch": ROWS[:3] + 0.1, "buffer": ROWS}
GIVEN = {
    "duplicate_share": ({"id": [1, 2]}, {}),
    "effective_batch_size": ({"drawn": ROWS, "uniform": ROWS, "batch_size": 2}, {}),
    "effective_sample_size": ({"weight": DISTRIBUTION}, {}),
    "energy_distance": (BATCH, {}),
    "excess_row_correlation": (BATCH, {"seed": "0 huge"}),
    "gini": ({"replay_count": [1, 2]}, {}),
    "integrated_autocorrelation": ({"values": DISTRIBUTION}, {}),
    "legacy_correlated_pairs": ({"rows": ROWS}, {"threshold": "0"}),
    "mean_absolute_cosine": ({"rows": ROWS}, {}),
    "mean_age": ({"probability": DISTRIBUTION, "age": [1, 2]}, {}),
    "never_replayed_share": ({"replay_count": [1, 2]}, {}),
    "row_correlation": (BATCH, {}),
    "same_episode_share": ({"episode": [1, 1]}, {}),
    "smallest_gap": ({"step": [1, 2]}, {}),
    "steps_to_end": ({"step": [1, 2], "end": [2]}, {}),
    "td_errors": ({"fresh": DISTRIBUTION, "stored": DISTRIBUTION, "buffer": DISTRIBUTION}, {}),
    "total_variance": ({"vectors": [DISTRIBUTION, DISTRIBUTION]}, {"vectors": "[] {}"}),
    "whitened": ({"rows": ROWS, "buffer": ROWS}, {}),
}


@pytest.mark.parametrize("name", GIVEN)
def test_senseless_arguments(name):
    assert wrongs(Call(getattr(measures, name), *GIVEN[name])) == []


@pytest.mark.parametrize("name", GIVEN)
def test_arrays_of_other_shapes(name):
    assert misshapen(Call(getattr(measures, name), *GIVEN[name])) == []


def test_nothing_is_left_out():
    assert set(GIVEN) == set(measures.__all__) - {"TdErrors"}
