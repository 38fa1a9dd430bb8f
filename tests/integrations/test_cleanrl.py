"""The buffer for CleanRL's scripts: their interface, and what it knows more."""

import inspect
import pickle
from itertools import pairwise

import numpy as np
import pytest

torch = pytest.importorskip("torch")
gym = pytest.importorskip("gymnasium")

from gymnasium import spaces  # noqa: E402
from gymnasium.vector import AutoresetMode, SyncVectorEnv  # noqa: E402

from replaylab.errors import ConfigError, DtypeError, FieldError, ShapeError  # noqa: E402
from replaylab.integrations.cleanrl import ReplayBuffer  # noqa: E402
from replaylab.replay import FrameStack, Hindsight, Linear, NStep, Prioritized, Sequence  # noqa: E402

BOX, DISCRETE = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4)


class Counting(gym.Env):
    """Observes its step in the episode, from 1 on; terminates after 4 steps, or is cut off after 3."""

    observation_space, action_space = spaces.Box(-100, 100, (1,)), spaces.Discrete(2)

    def __init__(self, terminates):
        self.terminates = terminates

    def reset(self, *, seed=None, options=None):
        self.step_number = 1
        return np.ones(1, np.float32), {}

    def step(self, action):
        self.step_number += 1
        over = self.step_number == (5 if self.terminates else 4)
        return np.full(1, self.step_number, np.float32), 1.0, over and self.terminates, over and not self.terminates, {}


def older(infos):
    """Return what Gymnasium 0.29 would have."""
    names = {"final_obs": "final_observation", "_final_obs": "_final_observation"}
    return {names.get(name, name): value for name, value in infos.items()}


def played(steps, infos_as=lambda infos: infos, mode=AutoresetMode.SAME_STEP, wrap=lambda env: env, **options):
    """Return a buffer that the loop of CleanRL's scripts has filled, with one environment of each kind."""
    envs = SyncVectorEnv([lambda end=end: wrap(Counting(end)) for end in (True, False)], autoreset_mode=mode)
    space, actions = envs.single_observation_space, envs.single_action_space
    rb = ReplayBuffer(1_000, space, actions, "cpu", n_envs=2, handle_timeout_termination=False, **options)
    obs, _ = envs.reset(seed=0)
    for _ in range(steps):
        next_obs, rewards, terminations, truncations, infos = envs.step(np.zeros(2, int))
        infos, real_next_obs = infos_as(infos), next_obs.copy()
        for idx, trunc in enumerate(truncations):
            if trunc and mode is AutoresetMode.SAME_STEP:
                real_next_obs[idx] = infos.get("final_observation", infos.get("final_obs"))[idx]
        rb.add(obs, real_next_obs, np.zeros(2, int), rewards, terminations, infos)
        obs = next_obs
    return rb


class TestTheInterface:
    def test_constructor_and_add_begin_with_cleanrls_arguments(self):
        names = ["buffer_size", "observation_space", "action_space", "device", "n_envs"]
        names += ["optimize_memory_usage", "handle_timeout_termination"]
        named = inspect.signature(ReplayBuffer).parameters
        assert [*named][:7] == names
        assert [named[name].default for name in names[3:]] == ["auto", 1, False, True]
        added = inspect.signature(ReplayBuffer.add).parameters
        assert [*added][1:7] == ["obs", "next_obs", "action", "reward", "done", "infos"]

    @pytest.mark.parametrize(
        ("space", "action", "shape", "kind"),
        [
            (BOX, DISCRETE, (1,), torch.int64),
            (spaces.Discrete(7), spaces.MultiDiscrete([3, 4]), (2,), torch.int64),
            (spaces.MultiBinary(5), spaces.Box(-1, 1, (2,), np.float64), (2,), torch.float32),
            (spaces.Box(0, 255, (4, 6, 6), np.uint8), spaces.MultiBinary(3), (3,), torch.int8),
        ],
    )
    def test_shapes_and_dtypes(self, space, action, shape, kind):
        rb = ReplayBuffer(20, space, action, "cpu", n_envs=2, seed=0)
        for _ in range(3):
            obs, acts = (np.stack([space_sampled.sample() for _ in range(2)]) for space_sampled in (space, action))
            rb.add(obs, obs, acts, np.ones(2), np.array([True, False]), {})
        data = rb.sample(6)
        assert data._fields == ("observations", "actions", "next_observations", "dones", "rewards")
        observations, actions, next_observations, dones, rewards = data
        assert observations.shape == next_observations.shape == (6, *rb.obs_shape)
        assert observations.dtype == torch.as_tensor(np.zeros(1, space.dtype)).dtype
        assert (actions.shape, actions.dtype) == ((6, *shape), kind)
        assert dones.shape == rewards.shape == data.weights.shape == (6, 1)
        assert dones.dtype == rewards.dtype == data.weights.dtype == torch.float32
        assert set(dones.ravel().tolist()) <= {0.0, 1.0}
        assert data.discounts is None
        assert rb.observations.shape == rb.next_observations.shape == (10, 2, *rb.obs_shape)
        assert rb.actions.shape == (10, 2, rb.action_dim)
        assert rb.rewards.shape == rb.dones.shape == rb.timeouts.shape == (10, 2)

    def test_places(self):
        rb = ReplayBuffer(11, BOX, DISCRETE, "cpu", n_envs=2)
        assert (rb.buffer_size, rb.pos, rb.full, rb.size(), rb.action_dim, rb.obs_shape) == (5, 0, False, 0, 1, (3,))
        for i in range(7):
            rb.add(np.full((2, 3), i), np.zeros((2, 3)), np.zeros(2, int), np.zeros(2), np.zeros(2, bool), {})
        assert (rb.pos, rb.full, rb.size()) == (2, True, 5)
        assert rb.observations[:, 0, 0].tolist() == [5, 6, 2, 3, 4]
        rb.reset()
        assert (rb.pos, rb.full, rb.size()) == (0, False, 0)

    def test_draws_follow_the_seed_of_the_script(self):
        def ids():
            np.random.seed(3)  # noqa: NPY002 - as the scripts do
            rb = ReplayBuffer(50, BOX, DISCRETE, "cpu")
            steps = np.zeros((20, 1, 3)), np.zeros((20, 1, 3)), np.zeros((20, 1), int), np.ones((20, 1))
            rb.extend(*steps, np.zeros((20, 1), bool), [{}] * 20)
            return rb.sample(32).ids.tolist()

        assert ids() == ids()

    def test_pickles_continue(self):
        rb = played(9, sampler=Prioritized(beta=0.5), seed=4)
        again = pickle.loads(pickle.dumps(rb))
        assert again.sample(16).ids.tolist() == rb.sample(16).ids.tolist()


class TestEnds:
    @pytest.mark.parametrize("infos_as", [lambda infos: infos, older], ids=["1.x", "0.29"])
    def test_time_limits_are_read_from_infos(self, infos_as):
        rb = played(12, infos_as)
        terminated, truncated = (rb.replay.columns[name][:24].reshape(12, 2) for name in ("terminated", "truncated"))
        assert terminated[:, 0].tolist() == [False, False, False, True] * 3
        assert truncated[:, 1].tolist() == [False, False, True] * 4
        assert not terminated[:, 1].any()
        assert not truncated[:, 0].any()
        np.testing.assert_array_equal(rb.next_observations[:12, :, 0], rb.observations[:12, :, 0] + 1)

    def test_returns_of_n_steps_stop_there(self):
        rb = played(12, transforms=[NStep(10, gamma=0.5)])
        data = rb.sample(500)
        start = data.observations
        left = torch.where(torch.as_tensor(data.ids % 2 == 0)[:, None], 5 - start, 4 - start)
        late = torch.as_tensor(data.ids // 2 >= 10)[:, None]  # the newest episode is not over
        assert torch.equal(data.rewards[~late], (2 - 2 * 0.5**left)[~late])
        ends = torch.as_tensor(data.ids % 2 == 0)[:, None] & ~late
        assert (data.dones[ends] == 1).all()
        assert (data.discounts[ends] == 0).all()
        cut_off = torch.as_tensor(data.ids % 2 == 1)[:, None] & ~late
        assert torch.equal(data.discounts[cut_off], (0.5**left)[cut_off])
        assert (data.next_observations[cut_off] == 4).all()

    def test_autoresets_are_refused_or_left_out(self):
        record = gym.wrappers.RecordEpisodeStatistics
        with pytest.raises(ConfigError, match=r"environments \[1\] reset themselves in the step after"):
            played(12, mode=AutoresetMode.NEXT_STEP, wrap=record)
        rb = played(20, mode=AutoresetMode.NEXT_STEP, wrap=record, autoreset="next_step")
        stored = rb.replay.get(range(int(rb.replay.next_id)))
        np.testing.assert_array_equal(stored["next_obs"], stored["obs"] + 1)
        assert (stored["terminated"].sum(), stored["truncated"].sum()) == (4, 5)
        assert len(stored["obs"]) == 40 - 9

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_resets_with_nan_in_observations_are_refused(self, dtype):
        rb, zero, no = ReplayBuffer(20, BOX, DISCRETE, "cpu"), np.zeros((1, 3), dtype), np.zeros(1, int)
        last = np.array([[np.nan, 1.0, 2.0]])
        rb.add(zero, last, no, np.ones(1), np.ones(1, bool), {})
        with pytest.raises(ConfigError, match="reset themselves in the step after"):
            rb.add(last.astype(dtype), zero, no, np.zeros(1), np.zeros(1, bool), {})

    def test_steps_that_look_like_resets_are_stored(self):
        """An episode ends where the next one begins, with a reward of 0."""
        for autoreset in (None, "disabled"):
            rb = ReplayBuffer(20, BOX, DISCRETE, "cpu", autoreset=autoreset)
            zero, no = np.zeros((1, 3)), np.zeros(1, int)
            rb.add(zero, zero, no, np.zeros(1), np.ones(1, bool), {})
            if autoreset is None:
                with pytest.raises(ConfigError, match='if that step was a transition, with autoreset="disabled"'):
                    rb.add(zero, zero, no, np.zeros(1), np.zeros(1, bool), {})
            else:
                rb.add(zero, zero, no, np.zeros(1), np.zeros(1, bool), {})
                assert len(rb.replay) == 2

    def test_the_loop_may_say_it_itself(self):
        rb = ReplayBuffer(20, BOX, DISCRETE, "cpu", transforms=[NStep(3, 1.0)])
        for i in range(4):
            ends = {"truncated": np.array([i == 1])}
            rb.add(np.full((1, 3), i), np.zeros((1, 3)), np.zeros(1, int), np.ones(1), np.zeros(1, bool), {}, **ends)
        assert rb.replay.as_batch(range(4)).n_steps.tolist() == [2, 1, 2, 1]

    @pytest.mark.parametrize("handled", [True, False])
    def test_lists_of_infos(self, handled):
        rb = ReplayBuffer(20, BOX, DISCRETE, "cpu", n_envs=2, handle_timeout_termination=handled)
        infos = [{"TimeLimit.truncated": True}, {}]
        rb.add(np.zeros((2, 3)), np.zeros((2, 3)), np.zeros(2, int), np.ones(2), np.ones(2, bool), infos)
        assert rb.dones[0].tolist() == [0.0 if handled else 1.0, 1.0]
        assert rb.timeouts[0].tolist() == [1.0 if handled else 0.0, 0.0]


def test_priorities_take_two_lines():
    rb = played(12, sampler=Prioritized(alpha=1.0, beta=Linear(0.4, 1.0), epsilon=0.0))
    data = rb.sample(64, progress=0.0)
    td = torch.as_tensor(data.ids == 5, dtype=torch.float32).requires_grad_()
    assert rb.update_priorities(data.ids, td[:, None]) == 64
    distribution = rb.replay.probabilities(data.ids, progress=1.0)
    assert distribution[data.ids == 5].max() > 1 / 24
    assert (distribution[data.ids != 5] == 0).all()
    assert (rb.sample(8, progress=1.0).weights <= 1.0).all()


def test_next_observations_need_not_be_stored():
    stored, half = (played(12, seed=1, optimize_memory_usage=less) for less in (False, True))
    for column, other in zip(stored.sample(100), half.sample(100), strict=True):
        assert torch.equal(column, other)
    np.testing.assert_array_equal(stored.next_observations, half.next_observations)


def test_frames_are_stored_once():
    space = spaces.Box(0, 255, (4, 8, 8), np.uint8)
    stack = FrameStack(4, padding="repeat", stacked_input=True)
    rb = ReplayBuffer(20, space, DISCRETE, "cpu", optimize_memory_usage=True, transforms=[stack])
    frames = np.arange(8, dtype=np.uint8)[:, None, None] * np.ones((8, 8), np.uint8)
    stacks = [frames[np.maximum(np.arange(i - 3, i + 1), 0)] for i in range(8)]
    for before, after in pairwise(stacks):
        rb.add(before[None], after[None], np.zeros(1, int), np.ones(1), np.zeros(1, bool), {})
    data = rb.sample(30)
    for row, place in enumerate(data.ids):
        assert torch.equal(data.observations[row], torch.as_tensor(stacks[place]))
        assert torch.equal(data.next_observations[row], torch.as_tensor(stacks[place + 1]))


def test_what_their_batches_cannot_hold_is_refused():
    for transform in (Sequence(4, overlap=0, burn_in=0), Hindsight(len, compute_terminated=len), NStep):
        with pytest.raises(ConfigError, match="must be NStep or FrameStack"):
            ReplayBuffer(9, BOX, DISCRETE, "cpu", transforms=[transform])
    with pytest.raises(FieldError, match="stacked_input=True and the length of the observations' first axis"):
        ReplayBuffer(9, BOX, DISCRETE, "cpu", transforms=[FrameStack(4)])
    with pytest.raises(FieldError, match="`observation_space` must be Box"):
        ReplayBuffer(9, spaces.Dict({"a": BOX}), DISCRETE, "cpu")


def test_infos_of_resets_in_the_same_step_are_believed():
    rb = ReplayBuffer(10, spaces.Box(0, 1, (1,)), spaces.Discrete(2), "cpu")
    same = np.zeros((1, 1), np.float32)
    for step in range(6):
        rb.add(same, same, np.array([0]), np.zeros(1), np.array([step % 2 == 1]), [{}])
    assert rb.size() == 6


@pytest.mark.parametrize(
    ("changed", "error", "says"),
    [
        ({"obs": np.zeros((2, 2, 3))}, ShapeError, r"`obs` must be of shape \(2, 3, 2\), but got \(2, 2, 3\)"),
        ({"next_obs": np.zeros((3, 2, 2))}, ShapeError, "`next_obs` must be of shape"),
        (
            {"action": np.array([1.0, 0.5])},
            DtypeError,
            r"`action` must hold whole numbers.* but got .*0\.5",
        ),
        ({"action": np.array([1.0, np.nan])}, DtypeError, "`action` must hold whole numbers"),
        ({"action": np.zeros(3, int)}, ShapeError, "`action` must be of shape"),
        ({"reward": np.zeros(3)}, ShapeError, r"`reward` must be of shape \(2,\), but got \(3,\)"),
        ({"reward": np.ones(2, complex)}, DtypeError, "field `reward` stores float32, but got complex128"),
    ],
)
def test_values_of_another_shape_are_refused_and_not_cut(changed, error, says):
    buffer = ReplayBuffer(10, spaces.Box(-1, 1, (3, 2)), spaces.Discrete(2), "cpu", n_envs=2)
    step = {"obs": np.zeros((2, 3, 2)), "next_obs": np.zeros((2, 3, 2)), "action": np.zeros(2, int)}
    step |= {"reward": np.zeros(2), "done": np.zeros(2, bool), "infos": {}}
    with pytest.raises(error, match=says):
        buffer.add(**step | changed)
    assert buffer.size() == 0
    buffer.add(**step | {"action": np.array([[1.0], [0.0]]), "reward": np.zeros((2, 1))})  # what differs by axes of 1
    assert buffer.size() == 1


def test_double_observations_are_rounded_as_cleanrl_does():
    """MuJoCo's, of which CleanRL's scripts set the space's dtype to float32."""
    space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    space.dtype = np.dtype(np.float32)
    rb = ReplayBuffer(10, space, DISCRETE, "cpu")
    obs = np.array([[0.1, 1 / 3, 2.0]])
    rb.add(obs, obs + 1, np.zeros(1, int), np.array([0.1]), np.zeros(1, bool), {})
    assert rb.observations[0, 0].tolist() == obs.astype(np.float32)[0].tolist()
    assert rb.next_observations[0, 0].tolist() == (obs + 1).astype(np.float32)[0].tolist()
    assert rb.sample(2).observations.dtype == torch.float32


def test_an_info_called_episode_is_no_time_limit():
    class Telling(gym.Wrapper):
        def step(self, action):
            obs, reward, terminated, truncated, info = self.env.step(action)
            return obs, reward, terminated, truncated, info | {"episode": 7}

    plain, telling = (played(40, wrap=wrap).replay for wrap in (lambda env: env, Telling))
    ids = np.arange(len(plain))
    for name in ("truncated", "terminated", "next_obs"):
        np.testing.assert_array_equal(plain.get(ids)[name], telling.get(ids)[name])
    assert 0 < telling.get(ids)["truncated"].mean() < 0.5


def test_environments_that_reset_otherwise_than_is_said():
    with pytest.raises(ConfigError, match=r"in the step that ends an episode .* leave `autoreset` out"):
        played(20, autoreset="next_step")


def test_flags_of_another_shape():
    buffer = ReplayBuffer(10, BOX, DISCRETE, "cpu", n_envs=1)
    row = np.zeros((1, 3), np.float32)
    with pytest.raises(ShapeError, match=r"`truncated` must be of shape \(1,\), but got \(2,\)"):
        buffer.add(row, row, np.zeros(1, int), np.zeros(1), np.zeros(1), {}, truncated=np.ones(2, bool))


@pytest.mark.parametrize("name", ["final_obs", "final_observation"])
def test_a_final_observation_of_another_shape_is_refused(name):
    buffer = ReplayBuffer(10, spaces.Box(0, 255, (3, 6, 5), np.uint8), DISCRETE, "cpu", n_envs=2)
    obs, ended = np.zeros((2, 3, 6, 5), np.uint8), np.array([False, True])
    step = (obs, obs, np.zeros(2, int), np.zeros(2), ended)
    final = np.array([None, np.zeros((6, 5, 3), np.uint8)], object)
    with pytest.raises(ShapeError, match=rf"`infos\['{name}'\]` must be of shape \(3, 6, 5\), but got \(6, 5, 3\)"):
        buffer.add(*step, {name: final, f"_{name}": ended})
    assert buffer.size() == 0


def test_actions_with_several_axes_are_stored_as_rows():
    buffer = ReplayBuffer(10, BOX, spaces.Box(-1, 1, (2, 3)), "cpu", n_envs=2)
    obs, action = np.zeros((2, 3)), np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    for actions in (action, action.reshape(2, 6)):
        buffer.add(obs, obs, actions, np.zeros(2), np.zeros(2, bool), {})
    np.testing.assert_array_equal(buffer.actions[:2], [action.reshape(2, 6)] * 2)
    with pytest.raises(ShapeError):
        buffer.add(obs, obs, action.swapaxes(1, 2), np.zeros(2), np.zeros(2, bool), {})
