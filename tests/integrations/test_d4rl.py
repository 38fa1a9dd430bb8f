"""Arrays of offline data sets become episodes, of which no step crosses an end."""

import numpy as np
import pytest

from replaylab.errors import ConfigError, FieldError, ShapeError
from replaylab.integrations.d4rl import episodes
from replaylab.replay import MixedReplay, NStep, Prioritized, ReplayBuffer

LENGTHS, TERMINATES = (5, 3, 6, 1, 4), (True, False, True, False, True)


def data(**changes):
    """Return trajectories whose observations count on, in D4RL's form: a timeout's next observation is missing."""
    ends = np.cumsum(LENGTHS) - 1
    rows = np.arange(ends[-1] + 1)
    arrays = {
        "observations": np.stack([rows, rows * 10.0], 1).astype(np.float32),
        "actions": rows[:, None].astype(np.float32),
        "rewards": rows.astype(np.float32),
        "terminals": np.isin(rows, ends[list(TERMINATES)]),
        "timeouts": np.isin(rows, ends[~np.array(TERMINATES)]),
        "infos/qpos": rows * 2.0,
    }
    return {name: value for name, value in (arrays | changes).items() if value is not None}


def loaded(arrays, terminals=None, **options):
    buffer = ReplayBuffer.from_episodes(episodes(arrays, terminals=terminals), seed=0, **options)
    return buffer, buffer.get(range(len(buffer)))


def test_a_timeouts_row_is_dropped_and_the_last_is_truncated():
    _, steps = loaded(data())
    assert steps["reward"].tolist() == [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 15, 16, 17, 18]
    assert np.flatnonzero(steps["terminated"]).tolist() == [4, 12, 16]
    assert np.flatnonzero(steps["truncated"]).tolist() == [6]
    ended = steps["terminated"]
    np.testing.assert_array_equal(steps["next_obs"][~ended, 0], steps["obs"][~ended, 0] + 1)
    np.testing.assert_array_equal(steps["next_obs"][ended], steps["obs"][ended])


def test_data_that_stop_midway_are_cut_off_there():
    arrays = {name: value[:3] for name, value in data().items()}
    _, steps = loaded(arrays)
    assert steps["truncated"].tolist() == [False, True]
    assert not steps["terminated"].any()


def test_with_next_observations_every_row_is_kept():
    arrays = data()
    arrays["next_observations"] = arrays["observations"] + np.float32([1, 10])
    _, steps = loaded(arrays)
    np.testing.assert_array_equal(steps["reward"], arrays["rewards"])
    np.testing.assert_array_equal(steps["next_obs"], arrays["next_observations"])
    np.testing.assert_array_equal(steps["terminated"], arrays["terminals"])


def test_rows_that_somebody_left_out_end_an_episode():
    """The form of d4rl.qlearning_dataset: timeouts are gone, and nothing says where."""
    arrays = data()
    is_kept = ~arrays["timeouts"]
    arrays["next_observations"] = arrays["observations"] + np.float32([1, 10])
    arrays = {name: value[is_kept] for name, value in arrays.items() if name != "timeouts"}
    buffer, steps = loaded(arrays, "terminated", transforms=[NStep(10, 1.0)])
    assert np.flatnonzero(steps["truncated"]).tolist() == [6]
    assert len(steps["obs"]) == is_kept.sum()
    np.testing.assert_array_equal(buffer.as_batch(range(len(buffer))).n_steps[:8], [5, 4, 3, 2, 1, 2, 1, 6])


class TestOgbench:
    """`terminals` end trajectories, and say nothing of the task; `masks` do."""

    def test_regular(self):
        arrays = data(timeouts=None, terminals=data()["terminals"] | data()["timeouts"])
        arrays["next_observations"] = arrays["observations"] + np.float32([1, 10])
        masks = np.ones(len(arrays["rewards"]))
        masks[[2, 4]] = 0.0
        _, steps = loaded(arrays | {"masks": masks})
        np.testing.assert_array_equal(steps["terminated"], masks == 0)
        assert np.flatnonzero(steps["truncated"]).tolist() == [7, 13, 14, 18]
        np.testing.assert_array_equal(steps["next_obs"], arrays["next_observations"])

    def test_compact(self):
        """The last row of a trajectory is an observation, and the row before ends it, too."""
        over = np.isin(np.arange(19), np.cumsum(LENGTHS) - 1)
        arrays = data(timeouts=None, terminals=over | np.append(over[1:], True), valids=~over * 1.0)
        _, steps = loaded(arrays)
        assert len(steps["obs"]) == (~over).sum()
        np.testing.assert_array_equal(steps["next_obs"], steps["obs"] + [1, 10])
        assert not steps["terminated"].any()
        assert steps["truncated"].sum() == 4

    def test_compact_with_next_observations(self):
        """A row that is no step leads into the next trajectory, whatever its next observation is."""
        valid, ends = np.array([1, 1, 0, 1, 1, 0]), np.array([0, 1, 1, 0, 1, 1])
        arrays = {"observations": np.arange(6.0), "actions": np.arange(6), "terminals": ends, "valids": valid}
        for more in ({}, {"next_observations": np.arange(1.0, 7.0)}):
            read = list(episodes(arrays | more))
            assert [episode["action"].tolist() for episode in read] == [[0, 1], [3, 4]]
            assert [episode["obs"].tolist() for episode in read] == [[0, 1, 2], [3, 4, 5]]

    def test_what_terminals_say_must_be_known(self):
        with pytest.raises(ConfigError, match='pass terminals="terminated"'):
            episodes(data(timeouts=None))
        _, steps = loaded(data(timeouts=None), "ends")
        assert not steps["terminated"].any()


def test_more_fields_and_fewer():
    (episode, *_) = episodes(data(rewards=None), extra={"qpos": "infos/qpos"})
    assert episode.keys() == {"obs", "action", "qpos", "terminated", "truncated"}
    assert episode["qpos"].tolist() == [0, 2, 4, 6, 8]


def test_what_does_not_fit_is_refused():
    with pytest.raises(FieldError, match="must have the array `observations`, but has terminals"):
        episodes({"terminals": [1]})
    with pytest.raises(FieldError, match="must have the array `infos/qvel`"):
        episodes(data(), extra={"qvel": "infos/qvel"})
    with pytest.raises(ShapeError, match="must have one length"):
        episodes(data(rewards=np.zeros(4)))
    with pytest.raises(ShapeError, match="must have one length"):
        episodes(data(rewards=1.0))


def test_half_of_a_batch_from_data_and_half_from_the_present():
    """As RLPD draws; the feedback goes to the buffer that each row is from."""
    offline, _ = loaded(data(), sampler=Prioritized(alpha=1.0, epsilon=0.0))
    online = ReplayBuffer(100, offline.fields, next_obs="derived", sampler=Prioritized(alpha=1.0, epsilon=0.0), seed=1)
    online.extend_episode(obs=np.full((9, 2), -1.0), action=np.zeros((8, 1)), reward=np.full(8, -1.0), terminated=True)
    both = MixedReplay((online, offline))
    batch = both.sample(64, progress=1.0)
    assert (batch.source == 0).sum() == (batch.source == 1).sum() == 32
    assert ((batch.reward == -1) == (batch.source == 0)).all()
    assert both.update_priorities(batch, np.where(batch.source == 0, 2.0, 3.0)) == 64
    for source, buffer in enumerate(both.buffers):
        ids = np.unique(batch.id[batch.source == source])
        distribution = buffer.probabilities(ids)
        assert np.ptp(distribution) < 1e-12
        rest = np.setdiff1d(np.arange(len(buffer)), ids)
        ratio = distribution[0] / buffer.probabilities(rest)[0] if len(rest) else 2.0 + source
        assert ratio == pytest.approx(2.0 + source)  # the others still have their first priority, 1


def test_columns_of_one_number_a_step_are_read_as_such():
    """Some files have them of shape (N, 1)."""
    flat = data()
    columns = {name: flat[name][:, None] for name in ("rewards", "terminals", "timeouts")}
    _, expected = loaded(flat)
    buffer, steps = loaded(data(**columns))
    assert buffer.fields["reward"].shape == ()
    for name in expected:
        np.testing.assert_array_equal(steps[name], expected[name])
    _, steps = loaded(data(valids=1 - columns["timeouts"], masks=1 - columns["terminals"], timeouts=None))
    np.testing.assert_array_equal(steps["terminated"], expected["terminated"])


@pytest.mark.parametrize("name", ["rewards", "terminals", "timeouts"])
def test_columns_of_more_numbers_a_step_are_reported(name):
    twice = np.stack([data()[name]] * 2, 1)
    with pytest.raises(ShapeError, match=rf"`{name}` of a data set must have one number a step, \(19,\) or \(19, 1\)"):
        episodes(data(**{name: twice}))
    with pytest.raises(ShapeError, match=r"but has shape \(19, 1, 1\); give the column"):
        episodes(data(**{name: twice[:, :1, None]}))


def test_one_row_with_what_it_led_to_is_an_episode():
    arrays = {"observations": np.zeros((1, 2)), "next_observations": np.ones((1, 2)), "terminals": [0], "timeouts": [0]}
    (episode,) = episodes(arrays)
    assert episode["obs"].tolist() == [[0.0, 0.0], [1.0, 1.0]]


def test_observations_of_two_shapes_are_refused():
    arrays = {"observations": np.zeros((3, 2)), "next_observations": np.zeros((3, 1)), "terminals": [0] * 3}
    with pytest.raises(ShapeError, match="must have one shape"):
        episodes(arrays | {"timeouts": [0] * 3})


def test_rounded_observations_and_nan_end_no_episode():
    exact = np.array([0.1, 0.2, np.nan, 0.4, 0.5])
    arrays = {
        "observations": exact.astype(np.float32),
        "next_observations": np.append(exact[1:], 0.6),
        "terminals": np.zeros(5, bool),
        "timeouts": np.arange(5) == 4,
    }
    assert [len(episode["truncated"]) for episode in episodes(arrays, terminals="terminated")] == [5]
    turned = arrays | {name: arrays[name][::-1] for name in ("observations", "next_observations")}
    assert len(list(episodes(turned, terminals="terminated"))) == 5


@pytest.mark.parametrize("name", ["obs", "terminated", "reward"])
def test_more_fields_do_not_replace_others(name):
    with pytest.raises(FieldError, match=f"`extra` must name its own fields, but '{name}' is one that every"):
        episodes(data(), extra={name: "infos/qpos"}, terminals="terminated")
