from dataclasses import replace

import numpy as np
import pytest
from gymnasium import spaces

from replaylab.errors import ConfigError, ShapeError
from replaylab.learners import ExpectedSarsa, QLearning, Sarsa
from replaylab.learners.api.protocols import Step
from replaylab.learners.api.random_streams import Stream, sequence
from replaylab.replay import Batch, Linear
from tests.oracle import tabular as oracle

S, A, B = 5, 3, 40
SEEDS = [4, 9, 0, 4, 11]
LEARNERS = [QLearning, Sarsa, ExpectedSarsa]


def agents_of(kind, seeds=SEEDS, start=0, **settings):
    learner = kind(alpha=0.3, gamma=0.9, epsilon=0.4, initial_std=1.0, **settings)
    return learner.agents(spaces.Discrete(S, start=start), spaces.Discrete(A), seeds)


def make_batch(rng, replicas, **columns):
    """Rows that repeat each (state, action) pair more than twice on average."""
    size = (replicas, B)
    return Batch(
        {
            "obs": rng.integers(S, size=size),
            "action": rng.integers(A, size=size),
            "reward": rng.normal(size=size).astype(np.float32),
            "next_obs": rng.integers(S, size=size),
            "terminated": rng.random(size) < 0.2,
            "truncated": rng.random(size) < 0.2,
            "weight": rng.random(size).astype(np.float32),
            **columns,
        }
    )


def make_step(rng, replicas):
    return Step(
        obs=rng.integers(S, size=replicas),
        action=rng.integers(A, size=replicas),
        reward=rng.normal(size=replicas),
        next_obs=rng.integers(S, size=replicas),
        terminated=rng.random(replicas) < 0.2,
        truncated=rng.random(replicas) < 0.2,
        next_action=rng.integers(A, size=replicas),
        where=rng.random(replicas) < 0.8,
    )


@pytest.mark.parametrize("kind", LEARNERS)
def test_a_batch_equals_a_plain_loop_bit_for_bit_duplicates_too(kind):
    rng, agents = np.random.default_rng(1), agents_of(kind)
    tables = agents.q.tolist()
    streams = [oracle.Xoshiro(sequence(seed, Stream.NEXT_ACTION).generate_state(4, np.uint64)) for seed in SEEDS]
    for _ in range(10):
        batch = make_batch(rng, len(SEEDS))
        update = agents.update(batch)
        for r, table in enumerate(tables):
            columns = (batch.obs, batch.action, batch.reward, 0.9 * ~batch.terminated, batch.next_obs, batch.weight)
            rows = [(*row, None) for row in zip(*(column[r].tolist() for column in columns), strict=True)]
            td_error = oracle.learn(table, rows, agents.learner.target, 0.3, 0.4, streams[r])
            np.testing.assert_array_equal(update.td_error[r], td_error)
    np.testing.assert_array_equal(agents.q, tables)
    assert agents.updates == 10


def test_a_pair_drawn_twice_is_updated_twice():
    agents = QLearning(alpha=0.5).agents(spaces.Discrete(2), spaces.Discrete(1), [0])
    column = np.zeros((1, 2), np.int64)
    batch = Batch(
        {
            "obs": column,
            "action": column,
            "reward": np.array([[8.0, 4.0]], np.float32),
            "next_obs": column + 1,
            "terminated": np.array([[True, True]]),
            "weight": np.array([[1.0, 0.5]], np.float32),
        }
    )
    update = agents.update(batch)
    np.testing.assert_array_equal(update.td_error, [[8.0, 0.0]])
    np.testing.assert_array_equal(update.q, [[0.0, 4.0]])
    assert agents.q[0, 0, 0] == 4.0


@pytest.mark.parametrize("kind", LEARNERS)
def test_online_updates_equal_a_plain_loop(kind):
    rng, agents = np.random.default_rng(3), agents_of(kind, start=100)
    tables = agents.q.tolist()
    streams = [oracle.Xoshiro(sequence(seed, Stream.NEXT_ACTION).generate_state(4, np.uint64)) for seed in SEEDS]
    for _ in range(200):
        step = make_step(rng, len(SEEDS))
        moved = Step(**{**vars(step), "obs": step.obs + 100, "next_obs": step.next_obs + 100})
        agents.observe(moved)
        for r in np.flatnonzero(step.where):
            ended = step.terminated[r] or step.truncated[r]
            row = [step.obs[r], step.action[r], step.reward[r], 0.9 * (not step.terminated[r]), step.next_obs[r], 1.0]
            row.append(None if ended else step.next_action[r])
            oracle.learn(tables[r], [row], agents.learner.target, 0.3, 0.4, streams[r])
    np.testing.assert_array_equal(agents.q, tables)
    assert agents.updates == 0
    np.testing.assert_array_equal(agents.q_values(np.full((len(SEEDS), 1), 103))[:, 0], agents.q[:, 3])


def test_replicas_that_did_not_step_learn_nothing():
    rng, agents = np.random.default_rng(4), agents_of(Sarsa)
    before = agents.state()
    step = make_step(rng, len(SEEDS))
    nowhere = np.zeros(len(SEEDS), np.bool_)
    agents.observe(Step(**{**vars(step), "where": nowhere, "obs": step.obs - 99, "reward": step.reward * np.inf}))
    after = agents.state()
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)


def test_expected_sarsa_is_the_mean_of_sarsa():
    """Mean of 200,000 draws; five times its standard error, two-sided: false alarm below 1e-6."""
    count = 200_000
    batch = Batch(
        {
            "obs": np.zeros((1, count), np.int64),
            "action": np.zeros((1, count), np.int64),
            "reward": np.zeros((1, count), np.float32),
            "next_obs": np.ones((1, count), np.int64),
            "terminated": np.zeros((1, count), np.bool_),
            "weight": np.zeros((1, count), np.float32),
        }
    )
    errors = {kind: agents_of(kind, [8]).update(batch).td_error[0] for kind in (Sarsa, ExpectedSarsa)}
    spread = errors[Sarsa].std()
    assert spread > 0.1
    assert abs(errors[Sarsa].mean() - errors[ExpectedSarsa][0]) < 5 * spread / np.sqrt(count)


def test_n_step_returns_bring_their_own_discount():
    agents = QLearning(alpha=1.0, gamma=0.9).agents(spaces.Discrete(4), spaces.Discrete(1), [0])
    agents.q[0, :, 0] = [0.0, 10.0, 20.0, 30.0]
    columns = {"obs": [[0]], "action": [[0]], "reward": [[2.71]], "next_obs": [[3]], "terminated": [[False]]}
    columns |= {"weight": np.ones((1, 1), np.float32), "discount": [[0.9**3]]}
    update = agents.update(Batch({name: np.array(column) for name, column in columns.items()}))
    assert update.td_error[0, 0] == pytest.approx(2.71 + 0.9**3 * 30.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilon": Linear(1.0, -0.1)}, r"`epsilon` of QLearning must be a chance, in \[0, 1\]"),
        ({"online": False}, "`online` of QLearning must be True where `batch_size` is 0"),
    ],
)
def test_bad_settings_are_reported(settings, message):
    with pytest.raises(ConfigError, match=message):
        QLearning(**settings)


def test_spaces_that_do_not_fit_a_table_are_reported():
    box, discrete = spaces.Box(0.0, 1.0, (2,)), spaces.Discrete(2)
    with pytest.raises(ConfigError, match=r"tables need Discrete observations, but these are in"):
        Sarsa().agents(box, discrete, [0])
    with pytest.raises(ConfigError, match="tables need Discrete actions, but these are in Box"):
        Sarsa().agents(discrete, box, [0])


@pytest.mark.parametrize("name", ["obs", "next_obs", "action"])
def test_rows_outside_the_tables_are_refused_and_change_nothing(name):
    rng, agents = np.random.default_rng(7), agents_of(QLearning)
    before = agents.q.copy()
    for value in (-1, S):
        column = rng.integers(2, size=(len(SEEDS), B))
        column[-1, -1] = value
        with pytest.raises(ConfigError, match=rf"`{name}` must be in \[.*\), but got {value}"):
            agents.update(make_batch(rng, len(SEEDS), **{name: column}))
    np.testing.assert_array_equal(agents.q, before)


def test_ends_of_another_type():
    """A custom batch may tell them as numbers."""
    for kind in (np.bool_, np.uint8, np.int64):
        agents = QLearning(alpha=1.0, gamma=0.5, initial_value=4.0).agents(spaces.Discrete(3), spaces.Discrete(2), [0])
        columns = {"obs": [[0, 1]], "action": [[0, 1]], "next_obs": [[1, 2]], "terminated": kind([[0, 1]])}
        columns |= {"reward": np.zeros((1, 2)), "weight": np.ones((1, 2), np.float32)}
        batch = Batch({name: np.asarray(column) for name, column in columns.items()})
        assert agents.update(batch).td_error.tolist() == [[-2.0, -4.0]]


def test_tables_of_other_spaces_are_not_restored():
    agents = QLearning().agents(spaces.Discrete(3), spaces.Discrete(2), [0])
    other = QLearning().agents(spaces.Discrete(5), spaces.Discrete(2), [0])
    with pytest.raises(ShapeError, match=r"`q` must be \(1, 3, 2\), .* but got \(1, 5, 2\)"):
        agents.restore(other.state())


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64, np.int64])
@pytest.mark.parametrize("start", [0, 2])
def test_actions_of_an_unsigned_type_learn_online(dtype, start):
    """An end has no next action, whatever the space calls its actions."""
    learned = []
    for kind in (np.int64, dtype):
        space = spaces.Discrete(A, start=start, dtype=kind)
        agents = Sarsa(alpha=0.3, gamma=0.9).agents(spaces.Discrete(S), space, [0, 1])
        rng = np.random.default_rng(0)
        for _ in range(20):
            step = make_step(rng, 2)
            actions = {name: (getattr(step, name) + start).astype(kind) for name in ("action", "next_action")}
            agents.observe(replace(step, terminated=rng.random(2) < 0.3, where=np.ones(2, bool), **actions))
        learned.append(agents.q.copy())
    np.testing.assert_array_equal(*learned)
    assert np.abs(learned[0]).sum() > 0
