"""Algorithms that bring their own loop: what the run hears, records and refuses."""

import gymnasium as gym
import numpy as np
import pytest

from replaylab.errors import ConfigError, NonFiniteError
from replaylab.learners import Callbacks, Checkpoints, Hook, TrainingConfig, train
from replaylab.learners.tabular.oracle import EnvOracle
from replaylab.learners.training.preflight import check_trainable
from replaylab.replay import Uniform
from tests.learners.training.whole import RandomWalk


class Shaky(gym.Wrapper):
    """Draws from the process's own generator, as some environments do."""

    def reset(self, *, seed=None, options=None):
        np.random.random(3)  # noqa: NPY002
        return super().reset(seed=seed, options=options)


def shaky(**options):
    return Shaky(gym.make("CartPole-v1", **options))


class Spoilt(gym.Wrapper):
    """Its second reward is none."""

    count = 0

    def step(self, action):
        obs, reward, *rest = super().step(action)
        self.count += 1
        return obs, reward if self.count < 2 else float("nan"), *rest


def config(learner=None, steps=90, env_id="CartPole-v1", **settings):
    settings = {"eval_every": 30, "eval_episodes": 1, "measure_every": None, "log_every": 40} | settings
    return TrainingConfig(env_id, learner or RandomWalk(), Uniform(), steps, **settings)


@pytest.fixture
def registered():
    entries = {"Shaky-v0": shaky, "Spoilt-v0": lambda **options: Spoilt(gym.make("CartPole-v1", **options))}
    for name, entry in entries.items():
        gym.register(name, entry_point=entry)
    yield
    for name in entries:
        del gym.registry[name]


def played(seed, steps):
    """The returns of the walk by itself, and the steps at which its episodes ended."""
    np.random.seed(seed)  # noqa: NPY002
    env, total, returns = gym.make("CartPole-v1"), 0.0, {}
    env.reset(seed=seed)
    for step in range(1, steps + 1):
        _, reward, terminated, truncated, _ = env.step(np.random.randint(2))  # noqa: NPY002
        total += reward
        if terminated or truncated:
            env.reset()
            returns[step], total = total, 0.0
    return returns


class Heard(Hook):
    def __init__(self):
        self.events = []

    def on_begin(self, run):
        self.events.append(("begin", run.seeds, run.clock.steps))

    def after_turn(self, run):
        self.events.append(("turn", run.clock.steps, run.agents.updates))

    def on_end(self, run, over):
        self.events.append(("end", run.seeds, over.tolist()))


def test_each_seed_is_a_separate_run():
    heard, reported = Heard(), []
    metrics = train(config(), [4, 2], [heard, Callbacks(on_metrics=lambda now, new: reported.append((now, new)))])
    for seed in (4, 2):
        ends, returns = metrics.of("rollout/ep_rew", seed=seed)
        assert dict(zip(ends.tolist(), returns.tolist(), strict=True)) == played(seed, 90)
        assert metrics.of("eval/mean_reward", seed=seed)[0].tolist() == [30, 60, 90]
        assert metrics.of("train/updates", seed=seed)[1].tolist() == [40.0, 80.0]
    turns = [event for event in heard.events if event[0] == "turn"]
    assert turns == [("turn", step, step) for _ in range(2) for step in range(1, 91)]  # after the learning, to the end
    assert [event for event in heard.events if event[0] != "turn"] == [
        ("begin", [4], 0),
        ("end", [4], [True]),
        ("begin", [2], 0),
        ("end", [2], [True]),
    ]
    assert [np.isnan(new["train/updates"]).tolist() for now, new in reported if now == 80] == [
        [False, True],
        [True, False],
    ]


def test_evaluations_leave_the_algorithms_streams_alone(registered):
    often, never = (train(config(env_id="Shaky-v0", eval_every=every), [1]) for every in (10, None))
    assert often.of("rollout/ep_rew", seed=1)[1].tolist() == never.of("rollout/ep_rew", seed=1)[1].tolist()
    assert len(often.of("eval/mean_reward", seed=1)[0]) == 9


def test_an_episode_that_is_left_counts_for_nothing():
    ends, _ = train(config(RandomWalk(leaves_after=3)), [4]).of("rollout/ep_len", seed=4)
    _, lengths = train(config(RandomWalk(leaves_after=3)), [4]).of("rollout/ep_len", seed=4)
    assert lengths[0] == ends[0] - 3


def test_the_preflight_is_short():
    check_trainable(config(steps=10**9))
    check_trainable(TrainingConfig("CartPole-v1", RandomWalk(), Uniform(), total_episodes=2, measure_every=None))


class Steering(Hook):
    def before_turn(self, run):
        """Would never be called."""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learner": RandomWalk(begins=False)}, r"of RandomWalk must call `run.begin\(model\)` before the first"),
        (
            {"learner": RandomWalk(stops_after=50)},
            "must use its budget, but stopped after 50 of 90 steps; check for an early return",
        ),
        ({"measure_every": 30}, "`measure_every` must be None with RandomWalk, which does not show what it replays"),
        ({"value_error": True}, r"`value_error` needs Q\(s, a\), which RandomWalk does not have"),
        ({"env_options": {"nonsense": 3}}, "`env_options` do not fit CartPole-v1"),
    ],
)
def test_what_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        train(config(**changes), [0])


def test_what_belongs_to_our_own_loop_is_refused(tmp_path):
    for hook in (Steering(), Checkpoints(tmp_path / "kept")):
        with pytest.raises(ConfigError, match=f"RandomWalk must do without .*, but got {type(hook).__name__}"):
            train(config(), [0], [hook])
    with pytest.raises(ConfigError, match="`resume` must be None with RandomWalk"):
        train(config(), [0], resume=tmp_path)
    with pytest.raises(ConfigError, match="which asks the library's own learners"):
        train(TrainingConfig("CartPole-v1", RandomWalk(), EnvOracle(), 50), [0])
    with pytest.raises(ConfigError, match="but RandomWalk has its own training loop"):
        _ = config().driven_learner


def test_invalid_numbers_are_refused(registered):
    with pytest.raises(NonFiniteError, match="`reward` of Spoilt-v0 must be finite, but seed 6 got nan in step 2;"):
        train(config(env_id="Spoilt-v0", eval_every=None), [6])
