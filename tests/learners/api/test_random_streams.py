import numpy as np
import pytest

from replaylab.envs.wrappers.noise import NOISE_KEY
from replaylab.errors import ConfigError
from replaylab.learners.api.random_streams import Stream, generator, numbers, sequence
from replaylab.replay import ReplayStreamKey
from replaylab.replay.data import seeding


def test_the_buffer_draws_the_sampling_stream():
    assert seeding.sampling_streams([7], 1)[0] == [
        int(w) for w in sequence(7, Stream.SAMPLING).generate_state(4, np.uint64)
    ]


def test_the_buffer_picks_rows_of_a_pool_by_the_rescoring_stream():
    rescoring = seeding.sampling_generators([7], 1, ReplayStreamKey.RESCORING)[0]
    assert rescoring.random() == generator(7, Stream.RESCORING).random()


def test_no_two_named_streams_share_a_key():
    """Of the replay library, of the learners and of the noisy environment, which spawn from one seed."""
    replays = {key.name: key.value for key in ReplayStreamKey}
    assert set(replays) == {"SAMPLING", "RESCORING"}
    named = {stream.name: stream.value for stream in Stream.__members__.values()} | {"NOISE": NOISE_KEY}
    assert replays.items() <= named.items()
    assert len(set(named.values())) == len(named)


def test_streams_differ_by_purpose_and_by_seed():
    first = {(seed, stream): generator(seed, stream).random() for seed in range(4) for stream in Stream}
    assert len(set(first.values())) == len(first)
    assert first == {(seed, stream): generator(seed, stream).random() for seed in range(4) for stream in Stream}


def test_numbered_parts_of_a_stream_differ():
    parts = [numbers(3, Stream.EVALUATION, 5, part) for part in range(3)]
    assert len({number for part in parts for number in part}) == 15


@pytest.mark.parametrize("seed", [-1, 1.5, "a"])
def test_a_bad_seed_is_reported(seed):
    with pytest.raises(ConfigError, match=f"a seed must be a whole number that is not negative, but got {seed!r}"):
        sequence(seed, Stream.SAMPLING)
