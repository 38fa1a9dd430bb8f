"""Training with steps, draws and updates on a device; here the device is the CPU, unless a test is marked."""

import numpy as np
import pytest
import torch

from replaylab.errors import ConfigError
from replaylab.learners import DQN, SGD, Callbacks, DQNAsPublished, Hook, RMSprop, TrainingConfig
from replaylab.learners.training.device_run import DeviceRun
from replaylab.learners.training.preflight import check_trainable
from replaylab.replay import LAP, Batch, EpisodeEnds, FrameStack, NStep, Prioritized, ReLo, Uniform
from replaylab.torch.captured import EAGER_CALLS, Captured
from tests.learners.calls import assert_same_rows, train
from tests.learners.dqn.pixels import ENV_ID as DOTS
from tests.torch.worlds import never_waits

STACK = FrameStack(4, stacked_input=True)
CARTPOLE = "CartPole-v1"


def learner(**changes):
    settings = {
        "hidden": (16,),
        "pixel_network": "data_efficient",
        "batch_size": 8,
        "capacity": 60,
        "learning_starts": 12,
        "train_period": 3,
        "target_period": 4,
        "envs": 3,
    }
    return DQN(replay="device", **settings | changes)


def run_of(settings, env_id=CARTPOLE, sampler=None, steps=120, seed=5, **options):
    usual = {"eval_every": None, "log_every": 6}
    return DeviceRun(TrainingConfig(env_id, settings, sampler or Uniform(), steps, **usual | options), [seed])


def batches_of(run):
    """Let a run tell the batches that it draws, as arrays with an axis of one replica."""
    batches, sample = [], run.replay.sample

    def recording(batch_size):
        batch = sample(batch_size)
        batches.append(Batch({name: column.numpy(force=True)[None].copy() for name, column in batch.items()}))
        return batch

    run.replay.sample = recording
    return batches


CASES = {
    "perceptron": (CARTPOLE, {}, [], Uniform()),
    "n-step, prioritized": (CARTPOLE, {"double": False, "tau": 0.3}, [NStep(3, 0.99)], Prioritized(0.6, 0.4)),
    "squared": (CARTPOLE, {"loss": "squared", "max_grad_norm": None, "optimizer": RMSprop()}, [], LAP()),
    "pixels": (DOTS, {"dueling": True}, [NStep(2, 0.99), STACK], Prioritized()),
    "stored stacks": (DOTS, {"optimizer": SGD(0.9)}, [], Uniform()),
}


@pytest.mark.parametrize("case", CASES)
def test_its_updates_equal_those_of_the_host(case):
    """The core's agents, given the batches that were drawn on the device, see the same and learn the same."""
    env_id, changes, transforms, sampler = CASES[case]
    run = run_of(learner(**changes), env_id, sampler, transforms=transforms)
    env = run.env
    host = DQN(**{k: v for k, v in vars(learner(**changes)).items() if k not in ("replay", "envs")})
    agents = host.agents(env.single_observation_space, env.single_action_space, [5])
    batches, errors = batches_of(run), []
    run.begin()
    while run.clock.steps < 60:
        before = len(batches)
        run.turn()
        errors += [run.updates.newest()[0].td_error] if len(batches) > before else []
    env.close()
    assert len(batches) == len(errors) == (60 - 12) // 3 + 1
    for batch, td_error in zip(batches, errors, strict=True):
        np.testing.assert_allclose(agents.update(batch).td_error, td_error, rtol=1e-3, atol=1e-4)
    obs = batches[-1].obs
    np.testing.assert_allclose(run.agents.q_values(obs), agents.q_values(obs), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(run.agents.target_q_values(obs), agents.target_q_values(obs), rtol=1e-3, atol=1e-4)


def test_frames_are_stored_once_and_drawn_as_they_were_seen():
    run = run_of(learner(capacity=90), DOTS, transforms=[STACK], steps=60)
    run.begin()
    seen = []
    for _ in range(20):
        seen.append(run.envs.obs)
        run.turn()
    stored = run.replay.as_batch(torch.arange(60))
    np.testing.assert_array_equal(stored.obs, np.concatenate(seen))
    going = ~(stored.terminated | stored.truncated)[:-3].numpy()
    np.testing.assert_array_equal(stored.next_obs[:-3][going], np.concatenate(seen[1:])[going])
    frame = 36 * 36
    assert run.replay.nbytes < 3 * 90 * frame


def test_a_single_environment_plays_as_with_a_host_replay():
    """With the same seed and random play the episodes are the same; evaluations are at the same steps."""
    options = {"eval_every": 50, "eval_episodes": 2, "log_every": 10}
    settings = {"epsilon": 1.0, "hidden": (16,), "learning_starts": 20, "capacity": 200}
    on_device, here = (
        train(CARTPOLE, DQN(replay=replay, **settings), Uniform(), [3], 100, **options) for replay in ("device", "host")
    )
    assert set(on_device.columns["metric"]) == set(here.columns["metric"])
    for name in ("rollout/ep_rew", "rollout/ep_len", "train/updates", "rollout/exploration_rate"):
        np.testing.assert_array_equal(on_device.of(name), here.of(name))
    np.testing.assert_array_equal(on_device.of("eval/mean_reward")[0], here.of("eval/mean_reward")[0])
    np.testing.assert_array_equal(on_device.of("eval/mean_reward")[0], [50, 100])


def test_steps_of_all_environments_count():
    """A budget that is no multiple of E ends with it; updates come for each period that has passed."""
    settings = learner(train_period=2, gradient_steps=2)
    metrics = train(CARTPOLE, settings, Uniform(), [3], 100, eval_every=40, eval_episodes=1, log_every=10)
    assert metrics.of("eval/mean_reward")[0].tolist() == [40, 80, 100]
    steps, updates = metrics.of("train/updates")
    assert steps[0] == 12
    assert steps[-1] == 100
    assert updates[0] == 2  # 10 to 12
    assert updates[-1] == 2 * (100 // 2 - 10 // 2)
    lengths = metrics.of("rollout/ep_len")[1]
    assert 100 - 3 * 40 < lengths.sum() <= 102
    ages = metrics.of("replay/age_mean")[1]
    assert (ages > 0).all()
    assert (ages < 60).all()


def test_environments_explore_separately():
    run = run_of(learner(epsilon=1.0, envs=20))
    actions = np.stack([run.agents.act(np.zeros((1, 20, 4), np.float32), explore=True)[0] for _ in range(30)])
    assert len({tuple(column) for column in actions.T}) == 20
    run.env.close()


@pytest.mark.parametrize(
    ("env_id", "transforms", "mode"),
    [
        (CARTPOLE, [NStep(3, 0.99)], "SameStep"),
        (DOTS, [STACK], "Disabled"),
        pytest.param(CARTPOLE, [NStep(3, 0.99)], "Disabled", marks=pytest.mark.slow),
        pytest.param(DOTS, [STACK], "SameStep", marks=pytest.mark.slow),
    ],
)
def test_a_continued_run_gives_the_same_rows(env_id, transforms, mode, tmp_path):
    class Stop(Hook):
        def before_turn(self, run):
            if run.clock.steps >= 36:
                raise KeyboardInterrupt

    def trained(hooks=(), **options):
        return train(
            env_id, learner(capacity=30), Prioritized(), [3], 60, transforms=transforms, autoreset_mode=mode,
            eval_every=30, eval_episodes=1, log_every=6, hooks=hooks, **options,
        )  # fmt: skip

    unbroken = trained()
    with pytest.raises(KeyboardInterrupt):
        trained([Stop()], save=tmp_path, save_every=30)
    assert_same_rows(trained(save=tmp_path, save_every=30, resume=tmp_path), unbroken)


class Watching(Hook):
    def on_step(self, run, step, ids):
        raise AssertionError


@pytest.mark.parametrize(
    ("settings", "options", "text"),
    [
        ({}, {"seeds": [1, 2]}, "`seeds` must be a single one, but got 2"),
        ({}, {"total_steps": None, "total_episodes": 3}, "the budget must be in steps"),
        ({}, {"sampler": ReLo()}, "`sampler` must draw by itself and by TD errors, but got ReLo"),
        ({}, {"sampler": EpisodeEnds()}, "`sampler` of DeviceReplay must be one of"),
        ({}, {"measure_every": 10}, "`measure_every` must be left out"),
        ({}, {"visits": True}, "`visits` must be left out"),
        ({}, {"trace_every": 2}, "`trace_every` must be left out"),
        ({}, {"autoreset_mode": "NextStep"}, "`autoreset_mode` must be None, SAME_STEP or DISABLED, but got NEXT_STEP"),
        ({}, {"env_id": "FrozenLake-v1"}, "observations must be in a Box"),
        ({}, {"hooks": [Watching()]}, "must do without before_store, on_step"),
        ({}, {"env_id": DOTS, "transforms": [FrameStack(4, padding="zero", stacked_input=True)]}, 'padding="repeat"'),
    ],
)
def test_what_needs_the_other_loop_is_refused(settings, options, text):
    arguments = {"env_id": CARTPOLE, "sampler": Uniform(), "seeds": [1], "total_steps": 30} | options
    with pytest.raises(ConfigError, match=text):
        train(learner=learner(**settings), **arguments)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"envs": 2}, '`envs` of DQN must be 1 unless `replay` is "device", but got 2'),
        ({"replay": "disk"}, '`replay` of DQN must be "host" or "device"'),
        ({"precision": "tf32"}, '`precision` of DQN must be "float32" where the compiled core'),
        ({"precision": "float8", "device": "cuda"}, "`precision` of DQN must be"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, text):
    with pytest.raises(ConfigError, match=text):
        DQN(**settings)


def test_flaws_that_change_what_is_stored_are_refused():
    flawed = DQNAsPublished(replay="device", envs=2, end_reward=-1.0)
    with pytest.raises(ConfigError, match="must do without before_store"):
        train(CARTPOLE, flawed, Uniform(), [0], 20)


def test_a_trial_steps_all_environments():
    check_trainable(TrainingConfig(DOTS, learner(envs=7, capacity=10**6), Uniform(), 500, transforms=[STACK]))
    with pytest.raises(ConfigError, match="`sampler` of DeviceReplay"):
        check_trainable(TrainingConfig(DOTS, learner(), EpisodeEnds(), 500, measure_every=None))


def test_bfloat16_and_tf32_round_products_only():
    def errors(precision):
        run = run_of(learner(precision=precision, epsilon=1.0), DOTS, transforms=[STACK])
        run.begin()
        for _ in range(8):
            run.turn()
        assert {p.dtype for p in run.agents.learners[0].online.parameters()} == {torch.float32}
        return run.updates.newest()[0].td_error

    exact, short, tf32 = errors("float32"), errors("bfloat16"), errors("tf32")
    assert short.dtype == np.float32
    assert np.any(short != exact)
    np.testing.assert_allclose(short, exact, atol=0.05)
    np.testing.assert_allclose(tf32, exact, atol=0.05)
    assert torch.get_float32_matmul_precision() == "highest"


def test_progress_is_reported_and_schedules_end_with_the_budget():
    heard = []
    metrics = train(
        CARTPOLE, learner(envs=4), Uniform(), [3], 102, log_every=1, eval_every=None,
        hooks=[Callbacks(progress=heard.append)],
    )  # fmt: skip
    assert heard == [100, 102]
    assert metrics.of("rollout/exploration_rate")[1][-1] == pytest.approx(0.05)


def test_off_a_gpu_nothing_is_captured():
    calls = []
    captured = Captured(lambda: calls.append(1), torch.device("cpu"))
    for _ in range(EAGER_CALLS + 3):
        captured()
    assert len(calls) == EAGER_CALLS + 3


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize("optimizer", [None, RMSprop(), SGD(0.9)], ids=["adam", "rmsprop", "sgd"])
def test_graphs_learn_as_single_operations_do(optimizer, precision, monkeypatch):
    """The same seed draws the same batches; the sums of a GPU have no fixed order."""

    def trained():
        changes = {} if optimizer is None else {"optimizer": optimizer}
        settings = learner(device="cuda", epsilon=1.0, learning_rate=1e-5, precision=precision, **changes)
        run = run_of(settings, DOTS, transforms=[NStep(2, 0.99), STACK], steps=150)
        run.begin()
        while not run.clock.over.all():
            run.turn()
        return run

    graphs = trained()
    monkeypatch.setattr("replaylab.torch.captured.EAGER_CALLS", 10**9)
    single = trained()
    obs = np.random.default_rng(0).integers(256, size=(1, 5, 4, 36, 36), dtype=np.uint8)
    assert graphs.agents.updates == single.agents.updates > 3 * EAGER_CALLS
    np.testing.assert_allclose(graphs.agents.q_values(obs), single.agents.q_values(obs), atol=1e-3)
    np.testing.assert_array_equal(graphs.updates.newest()[1].id, single.updates.newest()[1].id)
    state, wanted = graphs.agents.state(), single.agents.state()
    assert all(np.isfinite(array).all() for array in state.values() if array.dtype.kind == "f")
    steps = [name for name in state if name.startswith("step.")]
    assert all(np.array_equal(state[name], wanted[name]) for name in steps)


@pytest.mark.cuda
def test_a_turn_waits_for_the_device_only_for_actions():
    run = run_of(learner(device="cuda"), DOTS, Prioritized(), transforms=[STACK], steps=600)
    run.begin()
    for _ in range(30):
        run.turn()
    with never_waits():
        run.updates()
