import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Discrete

from replaylab.envs import TableVectorEnv, TransitionTable, make_vector_env
from replaylab.errors import ConfigError, DtypeError, ShapeError
from replaylab.learners import QLearning
from replaylab.learners.api.exploration import EpsilonGreedy
from replaylab.learners.api.protocols import Step
from replaylab.learners.tabular.dynamic_programming import (
    epsilon_greedy,
    expected_return,
    optimal_values,
    policy_values,
)
from replaylab.replay import ReplayBuffer

TAXI = max(name for name in gym.registry if name.startswith("Taxi-"))
CLIFF = max(name for name in gym.registry if name.startswith("CliffWalking-"))


@pytest.fixture(scope="module")
def cliff():
    return TransitionTable.of(CLIFF)


@pytest.fixture(scope="module")
def lake():
    return TransitionTable.of("FrozenLake-v1")


def test_the_best_return_on_the_cliff(cliff):
    assert optimal_values(cliff)[36].tolist() == [-13.0, -113.0, -14.0, -14.0]
    assert expected_return(cliff, epsilon_greedy(optimal_values(cliff))) == -13.0


def test_exploring_on_the_cliff(cliff):
    """Sutton & Barto 2018, figure 6.4: Q-learning's greedy policy walks along the edge, that of SARSA away from it."""
    q_learning = epsilon_greedy(optimal_values(cliff), 0.1)
    assert round(expected_return(cliff, q_learning), 1) == -50.8
    soft = optimal_values(cliff, epsilon=0.1)
    best = epsilon_greedy(soft, 0.1)
    assert round(expected_return(cliff, best), 1) == -20.7
    np.testing.assert_allclose(policy_values(cliff, best), soft, rtol=1e-10)


def test_the_best_mean_return_of_taxi():
    table = TransitionTable.of(TAXI)
    best = optimal_values(table).max(1)
    firsts = table.start > 0
    assert (firsts.sum(), best[firsts].sum()) == (300, 2379.0)  # the mean return is exactly 7.93
    assert expected_return(table, epsilon_greedy(optimal_values(table)), horizon=200) == pytest.approx(7.93, abs=1e-12)


def test_the_lake_with_its_time_limit(lake):
    """Without a limit every start can reach the goal with chance 14/17 (a known closed form)."""
    assert lake.start @ optimal_values(lake).max(1) == pytest.approx(14 / 17, abs=1e-9)
    limited = lake.start @ optimal_values(lake, horizon=100).max(1)
    assert limited == pytest.approx(0.7442, abs=1e-4)
    still = epsilon_greedy(optimal_values(lake, 0.999))
    assert expected_return(lake, still, horizon=100) < limited
    assert expected_return(lake, still, horizon=5_000) == pytest.approx(expected_return(lake, still), abs=1e-9)


def test_policy_values_solve_bellmans_equation(lake):
    rng = np.random.default_rng(0)
    policy = rng.dirichlet(np.ones(4), size=16)
    q = policy_values(lake, policy, 0.97)
    for state in range(16):
        for action in range(4):
            outcomes = gym.make("FrozenLake-v1").unwrapped.P[state][action]
            right = sum(p * (r + 0.97 * (not end) * (policy[s] @ q[s])) for p, s, r, end in outcomes)
            assert q[state, action] == pytest.approx(right, abs=1e-12)


def test_expected_return_is_the_mean_of_episodes(lake):
    """5,000 episodes of a stochastic policy; five standard errors, two-sided: false alarm below 1e-6."""
    policy = epsilon_greedy(optimal_values(lake, 0.99), 0.2)
    env, rng, returns = TableVectorEnv(lake, 50, max_episode_steps=40), np.random.default_rng(1), []
    obs, _ = env.reset(seed=0)
    while len(returns) < 5_000:
        action = (policy[obs].cumsum(1) > rng.random((50, 1))).argmax(1)
        obs, reward, terminated, truncated, _ = env.step(action)
        returns.extend(reward[terminated | truncated])
    error = np.std(returns) / np.sqrt(len(returns))
    assert abs(np.mean(returns) - expected_return(lake, policy, horizon=40)) < 5 * error


def test_epsilon_greedy_shares_ties():
    policy = epsilon_greedy(np.array([[1.0, 1.0, 0.0, 1.0 - 1e-12], [0.0, 3.0, 1.0, 2.0]]), 0.2)
    np.testing.assert_allclose(policy, [[0.95 / 3, 0.95 / 3, 0.05, 0.95 / 3], [0.05, 0.85, 0.05, 0.05]])


@pytest.mark.parametrize("grid", [["S.###", "..###", "....G"], ["S.#.", "..##", "...G"]])
def test_cells_that_are_never_entered_need_no_end(grid):
    """The inside of a thick wall, and a free cell behind walls: nobody goes there, so that the others have values."""
    table = TransitionTable.of("replaylab/GridWorld-v0", grid=grid)
    q = optimal_values(table)
    ways = {5: -6.0, 4: -5.0}
    assert q[0].max() == ways[len(grid[0])]
    policy = epsilon_greedy(q, 0.0)
    np.testing.assert_allclose((policy * policy_values(table, policy))[0].sum(), q[0].max())


def test_values_that_are_not_defined_are_reported(cliff):
    into_the_wall = np.eye(4)[np.full(48, 3)]
    with pytest.raises(ConfigError, match="`policy` never ends an episode from state 0, so with gamma = 1"):
        policy_values(cliff, into_the_wall)
    assert expected_return(cliff, into_the_wall, horizon=7) == -7.0
    assert expected_return(cliff, into_the_wall, 0.5) == pytest.approx(-2.0)
    with pytest.raises(ShapeError, match=r"`policy` must be \(48, 4\), but got \(48,\)"):
        policy_values(cliff, np.zeros(48))
    with pytest.raises(ConfigError, match="`policy` must hold probabilities in each row"):
        policy_values(cliff, np.full((48, 4), 0.3))


def test_replayed_q_learning_finds_the_optimal_values(cliff):
    """A buffer holds each action of each state that can be reached, once; uniform draws from it, α = .1."""
    seeds, reachable = [0, 1, 2], np.arange(37)  # the cliff and the goal are never left
    obs, action = (column.ravel() for column in np.meshgrid(reachable, np.arange(4), indexing="ij"))
    rows = {"obs": obs, "action": action, "truncated": np.zeros(len(obs), np.bool_)}
    rows |= {name: getattr(cliff, name)[obs, action, 0] for name in ("reward", "terminated")}
    rows["next_obs"] = cliff.next_state[obs, action, 0]
    buffer = ReplayBuffer.for_env(
        make_vector_env(CLIFF, 3, autoreset_mode="Disabled"), len(obs), replicas=3, seed=seeds
    )
    buffer.extend(**{name: np.tile(column, (3, 1)) for name, column in rows.items()})
    agents = QLearning(alpha=0.1, gamma=1.0).agents(Discrete(48), Discrete(4), seeds)
    for _ in range(100):
        agents.update(buffer.sample(1_000))
    error = np.abs(agents.q - optimal_values(cliff))[:, reachable]
    assert error.max() < 1e-3


def test_online_q_learning_with_small_steps_finds_the_best_path(cliff):
    """Ten replicas, ties broken at random: the greedy values along the best path, within 1e-3."""
    seeds = list(range(10))
    env = make_vector_env(CLIFF, len(seeds))
    agents = QLearning(alpha=0.2, gamma=1.0).agents(env.single_observation_space, env.single_action_space, seeds)
    explore = EpsilonGreedy(seeds)
    obs, _ = env.reset(seed=seeds)
    everywhere = np.ones(len(seeds), np.bool_)
    for _ in range(8_000):
        action = explore(agents.q_values(obs[:, None])[:, 0], 0.1)
        next_obs, reward, terminated, truncated, infos = env.step(action)
        last = np.where(terminated, infos.get("final_obs", next_obs), next_obs).astype(np.int64)
        agents.observe(Step(obs, action, reward, last, terminated, truncated, action, everywhere))
        obs = next_obs
    path = [36, *range(24, 36)]
    np.testing.assert_allclose(agents.q[:, path].max(2), np.tile(np.arange(-13.0, 0.0), (10, 1)), atol=1e-3)


def table_of(rows):
    """A table of states whose actions each have one outcome (next state, reward, terminated)."""
    rows = np.array(rows, dtype=object)
    shape = (*rows.shape[:2], 1)
    columns = (rows[:, :, k].reshape(shape) for k in range(3))
    following, reward, ends = (c.astype(kind) for c, kind in zip(columns, (np.int64, np.float64, bool), strict=True))
    return TransitionTable(np.ones(shape), following, reward, ends, np.eye(len(rows))[0])


@pytest.mark.parametrize("gamma", [0.9999, 0.99999, 1 - 1e-7])
def test_discounts_close_to_1(gamma):
    """Stay for 1 a step, or take 3 once and end; from the other state a step back, which costs 5."""
    table = table_of([[(0, 1.0, False), (1, 3.0, True)], [(0, -5.0, False), (1, 0.5, False)]])
    ever = 1.0 / (1.0 - gamma)
    best = [[ever, 3.0], [-5.0 + gamma * ever, 0.5 + gamma * (-5.0 + gamma * ever)]]
    np.testing.assert_allclose(optimal_values(table, gamma), best, rtol=1e-6)
    softly = optimal_values(table, gamma, epsilon=0.2)
    np.testing.assert_allclose(softly, policy_values(table, epsilon_greedy(softly, 0.2), gamma), rtol=1e-9)


def test_both_ways_to_the_values_agree(lake, monkeypatch):
    for epsilon in (0.0, 0.3):
        swept = optimal_values(lake, 0.99, epsilon=epsilon)
        with monkeypatch.context() as changed:
            changed.setattr("replaylab.learners.tabular.dynamic_programming.MAX_DISCOUNTED_SWEEPS", 3)
            np.testing.assert_allclose(optimal_values(lake, 0.99, epsilon=epsilon), swept, atol=1e-9)


REFUSED = [
    ({"gamma": 1.5}, r"`gamma` must be in \[0, 1\], but got 1.5"),
    ({"gamma": float("nan")}, "`gamma` must be in"),
    ({"horizon": -1}, "`horizon` must be"),
    ({"horizon": True}, "`horizon` must be"),
    ({"horizon": 2.5}, "`horizon` must be"),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED)
def test_what_has_no_values(cliff, changes, words):
    with pytest.raises(ConfigError, match=words):
        policy_values(**{"table": cliff, "policy": np.full((48, 4), 0.25), "gamma": 0.9} | changes)


def test_what_is_no_policy(cliff):
    with pytest.raises(DtypeError, match="`policy` must be real numbers"):
        policy_values(cliff, [["a"] * 4] * 48, 0.9)
    for q, epsilon in (([[1.0, 0.0]], 2.0), ([[np.nan, 0.0]], 0.1)):
        with pytest.raises(ConfigError, match="must be"):
            epsilon_greedy(q, epsilon)
    with pytest.raises(ConfigError, match="`epsilon` must be"):
        optimal_values(cliff, 0.9, epsilon=2.0)
    with pytest.raises(ConfigError, match="`table` must be a TransitionTable"):
        optimal_values("CliffWalking-v1")
