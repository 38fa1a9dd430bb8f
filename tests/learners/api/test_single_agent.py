"""One agent for course-style loops, against the formulas and against agents of many replicas."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from replaylab import ReplayBuffer
from replaylab.errors import ConfigError, DtypeError, FieldError, ShapeError
from replaylab.learners import DQN, QLearning, SingleAgent


def test_a_table_learns_by_the_formula_from_steps_and_arrays():
    env = gym.make("CliffWalking-v1")
    agent, q = SingleAgent(QLearning(alpha=0.5, gamma=0.9), env, seed=0), np.zeros((48, 4))
    rng, errors = np.random.default_rng(0), []
    steps = [
        (rng.integers(48), rng.integers(4), rng.normal(), rng.integers(48), rng.random() < 0.3) for _ in range(200)
    ]
    for s, a, r, s2, terminated in steps:
        errors.append(r + 0.9 * (not terminated) * q[s2].max() - q[s, a])
        q[s, a] += 0.5 * errors[-1]
    reported = [agent.learn(*step) for step in steps[:50]]
    reported += [agent.learn(*map(np.array, zip(*steps[50:], strict=True)))]
    np.testing.assert_allclose(np.concatenate(reported), errors, rtol=1e-12)
    np.testing.assert_allclose(agent.agents.q[0], q, rtol=1e-12)
    assert isinstance(agent.act(3), int)
    assert agent.act(7, explore=False) == q[7].argmax()


def test_it_acts_and_learns_as_one_replica_of_many():
    env, learner = gym.make("CartPole-v1"), DQN(epsilon=0.5)
    agent = SingleAgent(learner, env, seed=4)
    others = learner.agents(env.observation_space, env.action_space, [3, 4])
    buffer = ReplayBuffer.for_env(env, 100, seed=0)
    obs, _ = env.reset(seed=0)
    for _ in range(40):
        action = agent.act(obs)
        assert action == others.act(np.stack([obs, obs])[:, None], explore=True)[1, 0]
        next_obs, reward, terminated, truncated, _ = env.step(action)
        buffer.add(obs=obs, action=action, reward=reward, next_obs=next_obs, terminated=terminated, truncated=truncated)
        obs = env.reset()[0] if terminated or truncated else next_obs
    batch = buffer.sample(8)
    both = others.update(type(batch)({name: np.stack([column, column]) for name, column in batch.items()}))
    alone = agent.learn(batch.obs, batch.action, batch.reward, batch.next_obs, batch.terminated)
    np.testing.assert_array_equal(alone, both.td_error[1])
    assert agent.act(obs, explore=False) == others.act(np.stack([obs, obs])[:, None], explore=False)[1, 0]


class Pairs(gym.Env):
    observation_space = spaces.Dict({name: spaces.Box(-1, 1, (2,)) for name in ("observation", "desired_goal")})
    action_space = spaces.Discrete(3)


def test_states_of_several_parts():
    agent = SingleAgent(DQN(), Pairs())
    s = {"observation": np.ones(2, np.float32), "desired_goal": np.zeros(2, np.float32)}
    before = agent.learn(s, 1, 1.0, s, True)
    assert before.shape == (1,)
    assert abs(agent.learn(s, 1, 1.0, s, True)[0]) < abs(before[0])


def test_what_is_no_environment_or_no_seed():
    with pytest.raises(ConfigError, match="`env` must be a Gymnasium environment"):
        SingleAgent(QLearning(), "Taxi-v4")
    with pytest.raises(ConfigError, match="`seed`"):
        SingleAgent(QLearning(), gym.make("CliffWalking-v1"), seed=-1)


@pytest.mark.parametrize("learner", [QLearning, DQN, "QLearning"])
def test_a_class_is_not_a_learner(learner):
    with pytest.raises(ConfigError, match="`learner` must be a learner such as QLearning"):
        SingleAgent(learner, gym.make("CliffWalking-v1"))


@pytest.mark.parametrize(
    ("state", "error"),
    [(99, ConfigError), (48, ConfigError), (-1, ConfigError), (1.5, DtypeError), ("x", DtypeError), ([1], ShapeError)],
)
def test_act_refuses_what_is_no_state(state, error):
    agent = SingleAgent(QLearning(), gym.make("CliffWalking-v1"))
    with pytest.raises(error, match="`s` must be a whole number from 0 to 47"):
        agent.act(state)
    assert agent.act(np.int64(47)) in range(4)
    assert agent.act(np.array(0)) in range(4)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        *(({name: value}, ConfigError) for name, value in (("s", 48), ("s", -1), ("a", 4), ("a", -1), ("s2", 48))),
        *(({name: "x"}, DtypeError) for name in ("s", "a", "r", "s2", "terminated", "weight")),
        *(({name: [1, 2]}, ShapeError) for name in ("s", "a", "s2", "terminated", "weight")),
        *(({"r": [0.0, 1.0]}, ShapeError), ({"r": [[1.0]]}, ShapeError), ({"s": 1.5}, DtypeError)),
    ],
    ids=str,
)
def test_learn_refuses_what_is_no_step(changed, error):
    agent = SingleAgent(QLearning(), gym.make("CliffWalking-v1"))
    with pytest.raises(error):
        agent.learn(**{"s": 0, "a": 1, "r": 1.0, "s2": 2, "terminated": False, **changed})
    assert (agent.agents.q == 0).all()


def test_states_are_counted_from_the_start_of_their_space():
    class Shifted(gym.Env):
        observation_space, action_space = spaces.Discrete(3, start=5), spaces.Discrete(2, start=-1)

    agent = SingleAgent(QLearning(alpha=1.0), Shifted())
    agent.learn(7, -1, 2.0, 5, True)
    assert agent.act(7, explore=False) == -1
    for state in (4, 8):
        with pytest.raises(ConfigError, match="from 5 to 7"):
            agent.act(state)


@pytest.mark.parametrize("state", [{"observation": np.ones(2)}, np.ones(2), {"observation": 1, "goal": 2}])
def test_parts_of_a_state_must_be_those_of_the_space(state):
    agent = SingleAgent(DQN(), Pairs())
    with pytest.raises(FieldError, match="`s` must have the parts desired_goal, observation"):
        agent.act(state)
