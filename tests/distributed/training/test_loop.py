"""Training by actors, with actors and shards in this process."""

import shutil
from itertools import count, cycle
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

from replaylab.distributed.training import Actors, Shards, checkpoint, train
from replaylab.distributed.training.checkpoint import load
from replaylab.distributed.training.learner import LearnerRun
from replaylab.errors import ConfigError, NonFiniteError, SnapshotError, StorageError
from replaylab.learners import DQN, SB3, Checkpoints, Hook, QLearning, TrainingConfig
from replaylab.learners.training import metrics_recorder
from replaylab.replay import NStep, Prioritized, RankBased, ReLo, Uniform
from tests.distributed.replay.conftest import replay
from tests.distributed.training.in_process import Launcher, StopError, stops, trained

LEARNER = DQN(hidden=(8,), batch_size=16, capacity=400, learning_starts=40, train_period=4)


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


PRIORITIZED = Prioritized(beta=0.4)


def config(sampler=PRIORITIZED, learner=LEARNER, env="test/Counter-v0", **options):
    options = {"total_steps": 200, "eval_every": 100, "eval_episodes": 1, "log_every": 50} | options
    return TrainingConfig(env, learner, sampler, **options)


class Remote(Hook):
    """Looks at every batch, and at the replay at the end."""

    def __init__(self):
        self.batches, self.rows = [], 0

    def on_update(self, run, update, batch):
        self.batches.append(batch)
        self.rows += batch.id.size
        assert run.clock.steps == LEARNER.learning_starts + LEARNER.train_period * len(self.batches[1:])

    def on_end(self, run, over):
        self.stats = run.replay.replay.stats()


@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
def test_every_step_is_stored_once_and_true_and_updates_keep_pace(mode):
    seen = Remote()
    actors = Actors(3, envs=2, unroll=5)
    metrics, run, launcher = trained(config(autoreset_mode=mode), actors, hooks=[seen])
    assert run.clock.steps == seen.stats.added
    assert 200 <= run.clock.steps < 206
    assert run.agents.updates == (200 - 40) // 4 + 1
    assert metrics.of("eval/mean_reward")[0].tolist() == [100, 200]
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
    newest = max(launcher.versions)
    assert run.agents.updates - newest <= actors.publish_every + run.ahead / 4 + 1
    assert launcher.versions[0] == 0


def test_actors_explore_by_their_numbers_and_act_by_the_newest_weights():
    actors = Actors(2, envs=3, epsilon=0.5, alpha=5.0)
    assert np.allclose(actors.epsilons().ravel(), 0.5 ** (1 + np.arange(6)))
    assert Actors(1).epsilons().tolist() == [[0.4]]
    _, run, launcher = trained(config(), actors)
    mine, theirs = run.agents, [client.actor._agents for client in launcher.started]
    fresh = LearnerRun(config(), 0, actors).agents
    assert not np.array_equal(mine.core.online, fresh.core.online)
    for one in theirs:
        assert not np.array_equal(one.core.online, fresh.core.online)
        one.take_weights(mine.weights())
        obs = np.ones((1, 4, 3), np.float32)
        assert np.array_equal(one.q_values(obs), mine.q_values(obs))


def test_actors_that_die_are_started_again_and_their_episodes_are_not_joined():
    """With n-step returns: none reaches from a dead actor's last episode into its successor's first."""
    seen = Remote()
    deaths = iter([7, 15, 22, 30])
    due, calls = [next(deaths)], [0]

    def dying(client):
        calls[0] += 1
        if calls[0] < due[0]:
            return False
        due[0] = next(deaths, 10**9)
        return True

    where = config(transforms=[NStep(3, LEARNER.gamma)], total_steps=400)
    _, run, launcher = trained(where, Actors(2, unroll=5), hooks=[seen], dying=dying)
    assert run.clock.steps == 400
    assert run.agents.updates == 91
    lives = [[client.life for client in launcher.started if client.number == number] for number in (0, 1)]
    assert len(launcher.started) == 6
    assert lives == [list(range(len(one))) for one in lives]
    for batch in seen.batches:
        obs, after = batch.obs[0], batch.next_obs[0]
        assert (obs[:, :2] == after[:, :2]).all()


def test_an_actor_that_cannot_live_ends_training():
    with pytest.raises(StorageError, match=r"actor 1 died 6 times before it had stored a step, .* of: killed"):
        trained(config(), dying=lambda client: client.number == 1)


def test_training_goes_on_without_an_actor_that_gets_no_place(monkeypatch, caplog):
    monkeypatch.setattr("replaylab.distributed.training.actor_pool.SILENCE", 0.0)
    metrics, run, launcher = trained(config(), Actors(3), never=lambda client: client.number == 1)
    assert run.clock.steps == 200
    assert metrics.of("eval/mean_reward")[0].tolist() == [100, 200]
    assert [client.actor is None for client in launcher.started] == [False, True, False]
    assert [one.getMessage() for one in caplog.records if "actor 1" in one.getMessage()] == [
        "actor 1 has not begun within 0 s, and training continues without it: "
        "its environment takes long to make, or no "
        "node has the cores free that it is to get (see ray status)"
    ]


def test_an_actor_that_hangs_is_reported(monkeypatch, caplog):
    monkeypatch.setattr("replaylab.distributed.training.actor_pool.SILENCE", 0.0)
    asked = count()

    def busy(client):
        return client.number == 1 and client.actor is not None and next(asked) < 3

    trained(config(), busy=busy)
    assert "actor 1 has not answered for 0 s, and what it was asked for is waited for" in caplog.text


def test_actors_that_were_started_end_where_another_cannot_be():
    started = []

    class Full(Launcher):
        def start(self, number, life):
            if number == 2:
                raise StorageError("no more")
            started.append(super().start(number, life))
            return started[-1]

    with pytest.raises(StorageError, match="no more"):
        trained(config(), Actors(3), made=Full)
    assert [client.dead for client in started] == [True, True]


def test_nothing_is_skipped_where_actors_store_more_than_was_due(tmp_path):
    """An actor of eight environments stores up to seven steps more."""
    metrics, run, _ = trained(
        config(total_steps=303, eval_every=101), Actors(1, envs=8), checkpoints=Checkpoints(tmp_path, 100)
    )
    assert metrics.of("eval/mean_reward")[0].tolist() == [101, 202, 303]
    assert run.clock.steps >= 303
    again = LearnerRun(config(total_steps=303, eval_every=101), 0, Actors(1, envs=8))
    load(tmp_path, again, 8)
    assert (again.clock.steps, again.until) == (run.clock.steps, 303)


def test_hooks_go_on_from_a_checkpoint(tmp_path):
    class Batches(Hook):
        seen = 0

        def on_update(self, run, update, batch):
            self.seen += 1

        def state(self):
            return {"seen": np.array(self.seen)}

        def restore(self, state):
            self.seen = int(state["seen"])

    trained(config(), checkpoints=Checkpoints(tmp_path, 100), hooks=[Batches()])
    hook = Batches()
    _, run, _ = trained(config(), resume=tmp_path, hooks=[hook])
    assert hook.seen == run.agents.updates == 41

    class Others(Batches):
        def restore(self, state):
            self.seen = int(state["others"])

    with pytest.raises(SnapshotError, match="Others finds no state in the checkpoint"):
        trained(config(), resume=tmp_path, hooks=[Others()])


def test_the_speed_is_of_what_was_trained_since_the_run_goes_on(tmp_path, monkeypatch):
    """A second passes between two looks at the clock, so the speeds add up to the steps."""
    monkeypatch.setattr(metrics_recorder, "time", SimpleNamespace(perf_counter=map(float, count()).__next__))
    trained(config(total_steps=200), checkpoints=Checkpoints(tmp_path, 100))
    speeds = []

    class Reported(Hook):
        def on_metrics(self, now, values):
            speeds.extend(values.get("time/fps", ()))

    with monkeypatch.context() as patch:  # continues from the checkpoint, with a longer budget
        patch.setattr(checkpoint, "check_same_run", lambda *_: None)
        trained(config(total_steps=300), resume=tmp_path, hooks=[Reported()])
    assert speeds
    assert sum(speeds) <= 100


def test_a_replay_of_another_run_is_not_taken_for_ones_own(tmp_path):
    trained(config(), checkpoints=Checkpoints(tmp_path, 100))
    shutil.rmtree(tmp_path / "replay")
    with pytest.raises(SnapshotError, match="holds no snapshot of a RemoteReplay"):
        trained(config(), resume=tmp_path)
    other, _ = replay(50, shards=2)
    other.save(tmp_path / "replay")
    with pytest.raises(SnapshotError, match="has lost its replay to another one, which was begun in the same folder"):
        trained(config(), resume=tmp_path)


def test_checkpoints_that_cannot_be_are_refused_before_ray_is_started(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="`folder` must be a folder"):
        train(config(), hooks=[Checkpoints(tmp_path / "file")])
    with pytest.raises(ConfigError, match="`hooks` must have one Checkpoints at most with actors, but got 2"):
        train(config(), hooks=[Checkpoints(tmp_path / "a"), Checkpoints(tmp_path / "b")])


def test_what_an_environment_does_wrong_comes_out():
    with pytest.raises(NonFiniteError, match="`reward` of test/Counter-v0 must be finite"):
        trained(config(env_options={"poison": 4}))


def test_a_run_goes_on_from_its_checkpoint(tmp_path):
    saving = Checkpoints(tmp_path / "run", 100)
    whole, run, _ = trained(config(total_steps=300), checkpoints=saving)
    assert (tmp_path / "run" / "agents-0.npz").is_file()

    other = tmp_path / "other"
    with pytest.raises(StopError):
        trained(config(total_steps=300), checkpoints=Checkpoints(other, 100), hooks=[stops(200)])
    metrics, run, launcher = trained(config(total_steps=300), checkpoints=Checkpoints(other, 100), resume=other)
    assert run.clock.steps == 300
    assert run.agents.updates == 66
    lives = {client.life for client in launcher.started}
    assert len(lives) == 1
    assert min(lives) >= 1
    assert metrics.of("eval/mean_reward")[0].tolist() == whole.of("eval/mean_reward")[0].tolist() == [100, 200, 300]
    assert len(list(other.glob("learner-*.npz"))) == 1
    metrics, run, _ = trained(config(total_steps=300), shards=Shards(3), resume=other)  # nothing is left to do
    assert run.clock.steps == 300
    with pytest.raises(SnapshotError, match="is another one: it was trained with total_steps=300, but got 400"):
        trained(config(total_steps=400), resume=other)
    with pytest.raises(SnapshotError, match="it began with environments=2, but got 3"):
        trained(config(total_steps=300), Actors(3), resume=other)
    with pytest.raises(SnapshotError, match="it began with seed=0, but got 1"):
        trained(config(total_steps=300), seed=1, resume=other)
    with pytest.raises(SnapshotError, match="holds no run with actors"):
        trained(config(), resume=tmp_path)
    state = next(other.glob("learner-*.npz"))
    state.write_bytes(state.read_bytes()[:-1])
    with pytest.raises(SnapshotError, match="is not what was written"):
        trained(config(total_steps=300), resume=other)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"total_steps": None, "total_episodes": 5}, "the budget must be in steps"),
        ({"learner": QLearning(), "env": "FrozenLake-v1"}, "must learn from drawn batches alone"),
        ({"learner": DQN(replay="device")}, '`replay` of the learner must be "host", but got "device"'),
        ({"make_replay": print}, "`make_replay` must be left out"),
        ({"measure_every": 10}, "`measure_every` must be left out"),
        ({"visits": True}, "`visits` must be left out"),
        ({"sampler": RankBased()}, "RankBased cannot be drawn from several shards exactly"),
        ({"env": "Pendulum-v1"}, "DQN cannot learn Pendulum-v1: DQN needs Discrete actions"),
        ({"learner": DQN(capacity=1)}, "`shards` must be at most the capacity"),
    ],
)
def test_what_cannot_be_trained_by_actors_is_said_in_one_line(wrong, said):
    with pytest.raises(ConfigError, match=said):
        trained(config(**wrong))


def test_hooks_that_step_environments_are_refused():
    class Steps(Hook):
        def on_step(self, run, step, ids):
            """Never called."""

    with pytest.raises(ConfigError, match=r"`hooks` with actors must do without .*, but got Steps, which needs on_s"):
        trained(config(), hooks=[Steps()])


def test_a_torch_learner_and_reducible_loss(one_thread):
    torch = one_thread

    def module(space, actions):
        return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, actions))

    learner = DQN(module=module, batch_size=16, capacity=400, learning_starts=40, train_period=8)
    _, run, launcher = trained(config(ReLo(), learner, total_steps=120, eval_every=None))
    assert run.agents.updates == 11
    theirs = launcher.started[0].actor._agents
    theirs.take_weights(run.agents.weights())
    obs = np.ones((1, 4, 3), np.float32)
    assert np.array_equal(theirs.q_values(obs), run.agents.q_values(obs))


SMALL = {"learning_starts": 40, "batch_size": 16, "buffer_size": 500, "policy_kwargs": {"net_arch": [8]}}
ALGORITHMS = [
    ("SAC", {}, Prioritized(beta=0.5), ()),
    ("TD3", {"action_noise": {"type": "normal", "sigma": 0.1}}, Uniform(), (NStep(3, 0.99),)),
]


@pytest.mark.parametrize(("algorithm", "arguments", "sampler", "transforms"), ALGORITHMS, ids=["SAC", "TD3"])
def test_actor_critics(algorithm, arguments, sampler, transforms, one_thread, tmp_path):
    """Their own `train` learns, the newest actor acts; errors come back as priorities; a checkpoint holds all."""
    pytest.importorskip("stable_baselines3")
    learner = SB3(algorithm, arguments=SMALL | arguments)
    given = config(sampler, learner, "Pendulum-v1", transforms=transforms, total_steps=60, eval_every=30)
    saving = Checkpoints(tmp_path, 30)
    metrics, run, launcher = trained(given, Actors(2, envs=2, unroll=2), checkpoints=saving)
    assert run.agents.updates == given.total_steps - 40
    assert np.isfinite(metrics.of("train/critic_loss")[1]).all()
    assert (len(metrics.of("train/td_error_mean")[1]) > 0) == sampler.wants_feedback
    theirs, obs = launcher.started[0].actor._agents, np.ones((1, 5, 3), np.float32)
    theirs.take_weights(run.agents.weights())
    assert np.array_equal(theirs.act(obs, explore=False), run.agents.act(obs, explore=False))
    assert not np.array_equal(theirs.act(obs, explore=True), run.agents.act(obs, explore=False))
    state = run.agents.state()
    again = LearnerRun(given, 1, Actors(2)).agents
    assert not np.array_equal(again.act(obs, explore=False), run.agents.act(obs, explore=False))
    again.restore(state)
    assert np.array_equal(again.act(obs, explore=False), run.agents.act(obs, explore=False))
    assert again.updates == run.agents.updates


def test_weights_of_uniform_draws_over_uneven_shards_are_in_the_loss(one_thread):
    """Where one shard has more steps than its last tally says, rows have P/q."""
    pytest.importorskip("stable_baselines3")
    given = config(Uniform(), SB3("TD3", arguments=SMALL), "Pendulum-v1", total_steps=120, eval_every=None)
    turns, seen = cycle([0, 0, 1]), Weights()

    def busy(client):
        return client.number == 1 and client.actor is not None and next(turns) == 0

    metrics, run, _ = trained(given, Actors(2, unroll=3), busy=busy, hooks=[seen])
    assert seen.uneven > 0
    assert run.agents.updates == given.total_steps - 40
    assert np.isfinite(metrics.of("train/critic_loss")[1]).all()


class Weights(Hook):
    """Counts batches with weights."""

    uneven = 0

    def on_update(self, run, update, batch):
        self.uneven += bool((batch.weight != 1.0).any())


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
def test_what_an_algorithm_does_by_its_own_loop_is_refused(algorithm, arguments, env, message):
    pytest.importorskip("stable_baselines3")
    with pytest.raises(ConfigError, match=message):
        LearnerRun(config(Uniform(), SB3(algorithm, arguments=arguments), env), 0, Actors(1))
