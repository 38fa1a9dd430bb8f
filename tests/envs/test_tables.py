from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.toy_text.frozen_lake import generate_random_map
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from replaylab.envs import TableVectorEnv, TransitionTable, make_vector_env
from replaylab.errors import ConfigError
from replaylab.watch import play
from tests.envs import conformance

TAXI = max(name for name in gym.registry if name.startswith("Taxi-"))
CLIFF = max(name for name in gym.registry if name.startswith("CliffWalking-"))
ENVS = [
    (TAXI, {}, 30),
    (TAXI, {"is_rainy": True}, 30),
    (CLIFF, {}, 30),
    ("FrozenLake-v1", {}, None),
    ("FrozenLake-v1", {"is_slippery": False, "map_name": "8x8"}, 30),
]


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize(("env_id", "kwargs", "limit"), ENVS)
def test_equals_gymnasiums_synchronous_env_on_the_same_streams(env_id, kwargs, limit, mode):
    options = kwargs | ({} if limit is None else {"max_episode_steps": limit})
    assert isinstance(make_vector_env(env_id, 1, **options), TableVectorEnv)

    def make(count, mode):
        return make_vector_env(env_id, count, autoreset_mode=mode, **options)

    ends, _ = conformance.equals_single_forms(make, lambda: gym.make(env_id, **options), mode, 130)
    assert ends >= 20


def test_a_copy_depends_on_its_own_seed_only():
    conformance.depends_on_its_own_seed_only(lambda count: make_vector_env("FrozenLake-v1", count))


def test_what_is_not_stepped_by_its_table_is_left_to_gymnasium():
    assert isinstance(make_vector_env("FrozenLake-v1", 1, render_mode="rgb_array"), SyncVectorEnv)
    assert isinstance(make_vector_env(TAXI, 1, fickle_passenger=True), SyncVectorEnv)
    with pytest.raises(ConfigError, match="does not step by its table `P` with fickle_passenger=True"):
        TransitionTable.of(TAXI, fickle_passenger=True)


def test_an_environment_without_a_table_is_reported():
    with pytest.raises(ConfigError, match=r"CartPole.* has no transition table: it needs the attributes `P`"):
        TransitionTable.of("CartPole-v1")


RANDOM_MAP = {"desc": None, "map_name": None}


@pytest.mark.parametrize(
    "make",
    [
        lambda **options: make_vector_env("FrozenLake-v1", 2, **options),
        lambda **options: make_vector_env("FrozenLake8x8-v1", 2, render_mode="rgb_array", **options),
        lambda **options: make_vector_env("replaylab/NoisyRewards-v0", 2, env="FrozenLake-v1", **options),
        lambda **options: gym.make("replaylab/NoisyRewards-v0", env="FrozenLake-v1", **options),
        lambda **options: TransitionTable.of("FrozenLake-v1", **options),
        lambda **options: play("FrozenLake-v1", env_options=options),
    ],
)
def test_a_map_that_no_seed_controls_is_refused(make):
    """Each copy, and each environment of an evaluation, would have another one."""
    with pytest.raises(ConfigError, match=r"`desc` of FrozenLake\S*-v1 must be a map .* no seed controls; give one"):
        make(**RANDOM_MAP)


def test_a_drawn_map_that_is_given_is_that_of_every_copy():
    options = RANDOM_MAP | {"desc": generate_random_map(5, seed=3)}
    table = TransitionTable.of("FrozenLake-v1", **options)
    for _ in range(2):
        env = make_vector_env("FrozenLake-v1", 2, **options)
        np.testing.assert_array_equal(env.unwrapped.table.next_state, table.next_state)
    game = make_vector_env("FrozenLake-v1", 2, render_mode="rgb_array", **options)
    assert game.unwrapped.envs[0].unwrapped.desc.shape == (5, 5)


def test_tables_are_distributions():
    for env_id, kwargs, _ in ENVS:
        table = TransitionTable.of(env_id, **kwargs)
        np.testing.assert_allclose(table.probability.sum(2), 1.0)
        assert table.start.sum() == pytest.approx(1.0)
        assert table.probability.shape == table.next_state.shape == table.reward.shape == table.terminated.shape


class Fork(gym.Env):
    """One action may lead to one place or to three others."""

    observation_space, action_space = gym.spaces.Discrete(4), gym.spaces.Discrete(2)
    initial_state_distrib = (1.0, 0.0, 0.0, 0.0)

    def __init__(self):
        split = [(0.5, 1, 1.0, True), (0.3, 2, 2.0, True), (0.2, 3, 3.0, True)]
        self.P = {state: {0: [(1.0, 0, -1.0, False)], 1: split} for state in range(4)}


def test_actions_may_have_different_numbers_of_outcomes():
    table = TransitionTable.of(Fork())
    assert (table.num_states, table.num_actions) == (4, 2)
    np.testing.assert_array_equal(table.probability[2], [[1.0, 0.0, 0.0], [0.5, 0.3, 0.2]])
    env = TableVectorEnv(table, 3)
    env.reset(seed=0)
    for _ in range(50):
        obs, reward, terminated, _, infos = env.step(np.array([0, 1, 1]))
        assert (obs[0], reward[0], terminated[0]) == (0, -1.0, False)
        assert [infos["final_obs"][i] for i in (1, 2)] == reward[1:].tolist()
        assert terminated[1:].all()


def test_a_restored_environment_goes_on_as_the_first_would_have():
    conformance.goes_on_exactly(lambda: make_vector_env("FrozenLake-v1", 3, max_episode_steps=9), 1, 60)


@pytest.mark.parametrize("chances", [[0.5, 0.4], [2.0, -1.0], [np.nan, 1.0], [0.0, 0.0]])
def test_a_table_whose_chances_are_none_is_refused(chances):
    def table(probability, start):
        shape = (2, 1, 2)
        probability = np.broadcast_to(np.array(probability), shape)
        return TransitionTable(probability, np.zeros(shape, int), np.ones(shape), np.zeros(shape, bool), start)

    table([0.25, 0.75], np.array([0.5, 0.5]))
    with pytest.raises(ConfigError, match="`probability` must be chances that add up to 1 of each action"):
        table(chances, np.array([0.5, 0.5]))
    with pytest.raises(ConfigError, match="`start` must be chances that add up to 1"):
        table([0.25, 0.75], np.array(chances))


@pytest.mark.parametrize(
    "outcomes",
    [
        {0: {0: [(1.0, 0, 0.0, False)]}, 2: {0: [(1.0, 0, 0.0, False)]}},
        {0: {1: [(1.0, 0, 0.0, False)]}, 1: {0: [(1.0, 0, 0.0, False)]}},
    ],
)
def test_a_table_that_lacks_states_or_actions_is_refused(outcomes):
    env = SimpleNamespace(P=outcomes, initial_state_distrib=np.array([1.0, 0.0]))
    with pytest.raises(ConfigError, match="must have all states and actions from 0 on"):
        TransitionTable.of(env)


@pytest.mark.parametrize("few", [0, 1])
def test_states_with_other_numbers_of_actions_are_refused(few):
    here = [(1.0, 0, 0.0, False)]
    outcomes = {state: {0: here} if state == few else {0: here, 1: here} for state in range(2)}
    env = SimpleNamespace(P=outcomes, initial_state_distrib=np.array([1.0, 0.0]))
    with pytest.raises(ConfigError, match=r"must have as many actions in each state, but has \[1, 2\]"):
        TransitionTable.of(env)


def test_single_precision_and_states_without_outcomes_are_taken():
    tenth = np.float32(0.1)
    outcomes = {0: {0: [(tenth, k % 2, 1.0, k == 1) for k in range(10)]}, 1: {0: []}}
    table = TransitionTable.of(SimpleNamespace(P=outcomes, initial_state_distrib=np.array([1.0, 0.0])))
    assert table.probability.shape == (2, 1, 10)
    assert (table.probability[1, 0, 0], table.next_state[1, 0, 0], table.terminated[1, 0, 0]) == (1.0, 1, True)
