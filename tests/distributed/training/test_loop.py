"""Training by actors, with actors and shards in this process."""

import re
import time
from itertools import count

import gymnasium as gym
import numpy as np
import pytest

from replaylab.distributed.training import Actors, Shards, train
from replaylab.distributed.training.learner import LearnerRun
from replaylab.errors import ConfigError, NonFiniteError, SnapshotError, StorageError
from replaylab.learners import DQN, SB3, Checkpoints, Hook, QLearning, TrainingConfig
from replaylab.replay import NStep, Prioritized, RankBased, ReLo, Uniform
from tests.distributed.training.in_process import Launcher, StopError, stops, trained

LEARNER = DQN(hidden=(8,), batch_size=16, capacity=400, learning_starts=40, train_period=4)
PRIORITIZED = Prioritized(beta=0.4)


@pytest.fixture
def one_thread():
    """PyTorch with one thread: networks of a test are small."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield torch
    torch.set_num_threads(threads)


class Counter(gym.Env):
    """Shows which episode of which copy it is in, and how far: episodes of 7 steps, cut by time every other time."""

    copies = 0
    observation_space = gym.spaces.Box(-1e9, 1e9, (3,), np.float32)
    action_space = gym.spaces.Discrete(2, start=5)

    def __init__(self, poison=10**9):
        Counter.copies += 1
        self.copy, self.episode, self.t, self.poison = Counter.copies, 0, 0, poison

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return self._obs(), {}

    def step(self, action):
        assert action in (5, 6)
        self.t += 1
        over, reward = self.t == 7, np.nan if self.t >= self.poison else float(self.t)
        return self._obs(), reward, over and self.episode % 2 == 0, over and self.episode % 2 == 1, {}

    def _obs(self):
        return np.array([self.copy, self.episode, self.t], np.float32)


gym.register("test/Counter-v0", Counter)


def config(sampler=PRIORITIZED, learner=LEARNER, env="test/Counter-v0", **options):
    options = {"total_steps": 200, "eval_every": 100, "eval_episodes": 1, "log_every": 50} | options
    return TrainingConfig(env, learner, sampler, **options)


class Seen(Hook):
    """Keeps every batch, and the replay's figures at the end."""

    def __init__(self):
        self.batches = []

    def on_update(self, run, update, batch):
        self.batches.append(batch)
        assert run.clock.steps == LEARNER.learning_starts + LEARNER.train_period * len(self.batches[1:])

    def on_end(self, run, over):
        self.stats = run.replay.replay.stats()


@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
@pytest.mark.parametrize("actors", [Actors(3, envs=2, unroll=5), Actors(1, envs=8, unroll=2)], ids=["3", "1"])
def test_steps_are_stored_once_and_unchanged(mode, actors):
    """An actor of eight environments stores up to seven steps more than are due, and no evaluation is skipped."""
    seen = Seen()
    metrics, run, launcher = trained(config(autoreset_mode=mode, eval_every=99), actors, hooks=[seen])
    assert run.clock.steps == seen.stats.added
    assert 200 <= run.clock.steps < 200 + actors.envs
    assert run.agents.updates == (200 - 40) // 4 + 1
    assert metrics.of("eval/mean_reward")[0].tolist() == [99, 198, 200]
    for batch in seen.batches:
        obs, after = batch.obs[0], batch.next_obs[0]
        assert (obs[:, :2] == after[:, :2]).all()  # of one episode of one environment
        assert (after[:, 2] == obs[:, 2] + 1).all()
        assert (batch.reward[0] == after[:, 2]).all()
        ended = after[:, 2] == 7
        assert (batch.terminated[0] == (ended & (obs[:, 1] % 2 == 0))).all()
        assert (batch.truncated[0] == (ended & (obs[:, 1] % 2 == 1))).all()
    returns = metrics.of("rollout/ep_rew")[1]
    assert len(returns)
    assert (returns == 28.0).all()
    assert max(actor._version for actor in launcher.actors) > 0


def test_actors_explore_by_number_and_follow_the_weights():
    actors = Actors(2, envs=3, unroll=4, epsilon=0.5, alpha=5.0)
    assert np.allclose(actors.epsilons().ravel(), 0.5 ** (1 + np.arange(6)))
    assert Actors(1, envs=1).epsilons().tolist() == [[0.4]]
    _, run, launcher = trained(config(), actors)
    fresh = LearnerRun(config(), 0, actors).agents
    assert not np.array_equal(run.agents.core.online, fresh.core.online)
    assert [actor._epsilons.tolist() for actor in launcher.actors] == actors.epsilons().tolist()
    assert any((actor._agents.core.online != fresh.core.online).any() for actor in launcher.actors)
    for actor in launcher.actors:
        actor._agents.take_weights(run.agents.weights())
        obs = np.ones((1, 4, 3), np.float32)
        assert np.array_equal(actor._agents.q_values(obs), run.agents.q_values(obs))


def test_dead_actors_restart_and_episodes_are_not_joined():
    """With n-step returns: none reaches from a dead actor's last episode into its successor's first."""
    seen, looks = Seen(), count()

    def dying(process):
        return process.name.startswith("actor") and next(looks) in (7, 15, 22, 30)

    n_step = config(transforms=[NStep(3, LEARNER.gamma)], total_steps=400)
    _, run, launcher = trained(n_step, Actors(2, envs=1, unroll=5), hooks=[seen], launcher=Launcher(dying=dying))
    assert run.clock.steps == 400
    assert run.agents.updates == 91
    assert len(launcher.actors) == 2 + 4
    assert len({actor._seeds[0] for actor in launcher.actors}) == 6
    for batch in seen.batches:
        obs, after = batch.obs[0], batch.next_obs[0]
        assert (obs[:, :2] == after[:, :2]).all()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("actor-1", "actor 1 died too often: killed; check the memory of its node"),
        ("training", "the hub died: killed; continue from the last checkpoint"),
        ("evaluator", "the evaluator died too often: killed"),
    ],
)
def test_process_that_always_dies_ends_training(name, words):
    launcher = Launcher(dying=lambda process: process.name == name)
    with pytest.raises(StorageError, match=words):
        trained(config(), launcher=launcher)
    assert all(process.killed for process in launcher.processes)


def unreported(process):
    """Number of steps that an actor has stored and not reported."""
    return process.object._report.steps if process.name.startswith("actor") and process.object else 0


@pytest.mark.parametrize("has_grant", [False, True])
def test_training_continues_without_a_silent_actor(has_grant, monkeypatch, caplog):
    """Actor 1 never calls, or hangs in its first unroll. On the hub's clock each reading is a second later."""
    ticks = count(time.monotonic())
    monkeypatch.setattr("replaylab.distributed.training.hub.monotonic", lambda: next(ticks))
    launcher = Launcher(never=lambda process: process.name == "actor-1" and (unreported(process) or not has_grant))
    metrics, run, _ = trained(config(total_steps=400), Actors(3, envs=1, unroll=4), launcher=launcher)
    assert run.clock.steps == 400
    assert metrics.of("eval/mean_reward")[0].tolist()[-1] == 400
    warnings = re.findall(r"actor (\d) has not called for 60 s, and training continues without it", caplog.text)
    assert warnings == ["1"]


def test_dead_actors_and_evaluator_lose_only_counted_steps(caplog):
    lost, deaths = [], iter([True, True])

    def dying(process):
        """Actor 1 dies twice before it reports its steps, and so does the evaluator before its first answer."""
        if process.name == "evaluator":
            return next(deaths, False)
        if process.name != "actor-1" or not unreported(process) or len(lost) == 2:
            return False
        lost.append(unreported(process))
        return True

    metrics, run, _ = trained(config(), Actors(2, envs=2, unroll=3), launcher=Launcher(dying=dying))
    assert run.clock.steps == 200
    assert metrics.of("eval/mean_reward")[0].tolist() == [100, 200]
    logged = re.findall(r"(\d+) steps were lost with actors or shards, which restart", caplog.text)
    assert [*map(int, logged)] == lost == [6, 6]


def test_dead_shard_costs_steps_and_training_continues(local):
    class Kills(Hook):
        def on_update(self, run, update, batch):
            if run.agents.updates == 20:
                local.clients[0].die()

        def on_end(self, run, over):
            self.stats = run.replay.replay.stats()

    kills = Kills()
    _, run, _ = trained(config(total_steps=400), Actors(2, envs=2, unroll=4), hooks=[kills])
    assert kills.stats.losses == 1
    assert kills.stats.lost_steps > 0
    assert run.clock.steps >= 400
    assert run.agents.updates + run.skipped == 91


class Updates(Hook):
    """Counts updates, with a state."""

    seen = 0

    def on_update(self, run, update, batch):
        self.seen += 1

    def state(self):
        return {"seen": np.array(self.seen)}

    def restore(self, state):
        self.seen = int(state["seen"])


def test_run_continues_from_its_checkpoint(tmp_path):
    longer, other = config(total_steps=300), tmp_path / "other"
    complete, *_ = trained(longer, folder=tmp_path / "run", hooks=[Updates()])
    assert (tmp_path / "run" / "agents-0.npz").is_file()
    with pytest.raises(StopError):
        trained(longer, folder=other, hooks=[stops(200), Updates()])
    hook = Updates()
    metrics, run, _ = trained(longer, folder=other, resume=other, hooks=[hook])
    assert 300 <= run.clock.steps < 302
    assert hook.seen == run.agents.updates == 66
    assert metrics.of("eval/mean_reward")[0].tolist() == complete.of("eval/mean_reward")[0].tolist() == [100, 200, 300]
    assert len(list(other.glob("learner-*.npz"))) == 1
    _, run, _ = trained(longer, shards=Shards(1), resume=other)  # nothing is left to do
    assert run.agents.updates == 66
    for wrong, words in [
        ({"configuration": config(total_steps=400)}, "another one: it was trained with total_steps=300, but got 400"),
        ({"actors": Actors(3, envs=1)}, "it was trained with environments=2, but got 3"),
        ({"seed": 1}, "it was trained with seed=0, but got 1"),
    ]:
        with pytest.raises(SnapshotError, match=words):
            trained(**{"configuration": longer, **wrong}, resume=other)
    with pytest.raises(SnapshotError, match="holds no run with actors"):
        trained(config(), resume=tmp_path)
    state = next(other.glob("learner-*.npz"))
    state.write_bytes(state.read_bytes()[:-1])
    with pytest.raises(SnapshotError, match="is not what was written"):
        trained(longer, resume=other)
    with pytest.raises(StopError):  # a new run discards the checkpoint in its folder
        trained(longer, checkpoints=Checkpoints(other, 200), hooks=[stops(100)])
    with pytest.raises(SnapshotError, match="holds no run with actors"):
        trained(longer, resume=other)


def test_waiting_evaluations_are_saved_and_continue(tmp_path):
    """The evaluator of the first run never answers; the resumed run evaluates the policy of step 100."""
    returns = trained(config(), checkpoints=Checkpoints(tmp_path / "a", 200))[0].of("eval/mean_reward")
    launcher = Launcher(never=lambda process: process.name == "evaluator")
    with pytest.raises(StopError):
        trained(config(), folder=tmp_path, hooks=[stops(150)], launcher=launcher)
    metrics, *_ = trained(config(), resume=tmp_path)
    assert metrics.of("eval/mean_reward")[0].tolist() == returns[0].tolist() == [100, 200]


def test_invalid_checkpoints_are_rejected_before_ray_starts(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="`folder` must be a folder"):
        train(config(), hooks=[Checkpoints(tmp_path / "file")])
    with pytest.raises(ConfigError, match="`hooks` must have at most one Checkpoints with actors, but got 2"):
        train(config(), hooks=[Checkpoints(tmp_path / "a"), Checkpoints(tmp_path / "b")])


def test_error_of_an_environment_ends_training():
    with pytest.raises(NonFiniteError, match="`reward` of test/Counter-v0 must be finite"):
        trained(config(env_options={"poison": 4}))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"total_steps": None, "total_episodes": 5}, "the budget must be in steps"),
        ({"learner": QLearning(), "env": "FrozenLake-v1"}, "must learn only from drawn batches"),
        ({"learner": DQN(replay="device")}, '`replay` of the learner must be "host", but got "device"'),
        ({"make_replay": print}, "`make_replay` must be left out"),
        ({"measure_every": 10}, "`measure_every` must be left out"),
        ({"visits": True}, "`visits` must be left out"),
        ({"sampler": RankBased()}, "RankBased"),
        ({"env": "Pendulum-v1"}, "DQN cannot learn Pendulum-v1: DQN needs Discrete actions"),
        ({"learner": DQN(capacity=1)}, "or fewer shards"),
    ],
)
def test_invalid_configurations_are_rejected(wrong, words):
    with pytest.raises(ConfigError, match=words):
        trained(config(**wrong))


def test_hooks_that_step_environments_are_rejected():
    class Steps(Hook):
        def on_step(self, run, step, ids):
            """Never called."""

    with pytest.raises(ConfigError, match=r"`hooks` with actors must do without .*, but got Steps, which needs on_s"):
        trained(config(), hooks=[Steps()])


def test_torch_learner_with_reducible_loss(one_thread):
    torch = one_thread

    def module(space, actions):
        return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, actions))

    learner = DQN(module=module, batch_size=16, capacity=400, learning_starts=40, train_period=8)
    _, run, launcher = trained(config(ReLo(), learner, total_steps=120, eval_every=None))
    assert run.agents.updates == 11
    agents = launcher.actors[0]._agents
    agents.take_weights(run.agents.weights())
    obs = np.ones((1, 4, 3), np.float32)
    assert np.array_equal(agents.q_values(obs), run.agents.q_values(obs))


SMALL = {"learning_starts": 40, "batch_size": 16, "buffer_size": 500, "policy_kwargs": {"net_arch": [8]}}
ALGORITHMS = [
    ("SAC", {}, Prioritized(beta=0.5), ()),
    ("TD3", {"action_noise": {"type": "normal", "sigma": 0.1}}, Uniform(), (NStep(3, 0.99),)),
]


@pytest.mark.parametrize(("algorithm", "arguments", "sampler", "transforms"), ALGORITHMS, ids=["SAC", "TD3"])
def test_actor_critics(algorithm, arguments, sampler, transforms, one_thread, tmp_path):
    """Their `train` learns and the newest actor acts; errors become priorities; a checkpoint holds everything."""
    pytest.importorskip("stable_baselines3")
    learner = SB3(algorithm, arguments=SMALL | arguments)
    pendulum = config(sampler, learner, "Pendulum-v1", transforms=transforms, total_steps=60, eval_every=30)
    metrics, run, launcher = trained(pendulum, Actors(2, envs=2, unroll=2), checkpoints=Checkpoints(tmp_path, 30))
    assert run.agents.updates == pendulum.total_steps - 40
    assert np.isfinite(metrics.of("train/critic_loss")[1]).all()
    # uniform rows have weights, and so errors, where they correct stale totals
    assert len(metrics.of("train/td_error_mean")[1]) or not sampler.wants_feedback
    agents, obs = launcher.actors[0]._agents, np.ones((1, 5, 3), np.float32)
    agents.take_weights(run.agents.weights())
    acted = run.agents.act(obs, explore=False)
    assert np.array_equal(agents.act(obs, explore=False), acted)
    assert not np.array_equal(agents.act(obs, explore=True), acted)
    again = LearnerRun(pendulum, 1, Actors(2)).agents
    assert not np.array_equal(again.act(obs, explore=False), acted)
    again.restore(run.agents.state())
    assert np.array_equal(again.act(obs, explore=False), acted)


OWN = {"train_freq": 4, "gradient_steps": 4, "target_update_interval": 2}
NOISE = {"action_noise": {"type": "ornstein_uhlenbeck", "sigma": 0.1}}


@pytest.mark.parametrize(
    ("algorithm", "arguments", "env", "message"),
    [
        ("SAC", OWN, "Pendulum-v1", "`target_update_interval` of SAC must be 1"),
        ("SAC", NOISE, "Pendulum-v1", "`action_noise` of SAC must not be ornstein"),
        ("DQN", {}, "CartPole-v1", r"such as SAC or TD3, but got DQN; for deep Q-learning take DQN\(\)"),
    ],
)
def test_algorithms_with_their_own_loop_are_rejected(algorithm, arguments, env, message):
    pytest.importorskip("stable_baselines3")
    with pytest.raises(ConfigError, match=message):
        LearnerRun(config(Uniform(), SB3(algorithm, arguments=arguments), env), 0, Actors(1))
