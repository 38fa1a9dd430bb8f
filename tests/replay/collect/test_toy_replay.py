"""A replay of the user's own goes through recorder, stream, step writer and mixture as a `ReplayBuffer` does."""

import pickle

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from replaylab.errors import ConfigError, EmptyBufferError, IdError
from replaylab.replay import (
    Field,
    MixedReplay,
    Replay,
    ReplayBuffer,
    ReplayRecorder,
    ReplayStream,
    RestorableReplay,
    SamplerReplay,
    StepWriter,
)
from replaylab.replay.protocols import missing_of
from tests.replay.collect.scripted_env import MODES, SCRIPTS, ScriptedEnv, make_vector
from tests.replay.toy_replay import SavingToyReplay, ToyReplay, assert_same_steps

FLAG = Field((), bool)
FIELDS = {"obs": Field(), "reward": Field(), "next_obs": Field(), "terminated": FLAG, "truncated": FLAG}


def as_buffer(toy):
    """A buffer declared as the toy is."""
    return ReplayBuffer(
        toy.capacity, toy.fields, num_envs=toy.num_envs, replicas=toy.replicas, autoreset=toy.autoreset, seed=0
    )


def test_it_is_a_replay():
    toy = ToyReplay(3, FIELDS)
    assert isinstance(toy, Replay)
    assert not isinstance(toy, RestorableReplay | SamplerReplay)
    assert isinstance(as_buffer(toy), RestorableReplay)
    assert isinstance(as_buffer(toy), SamplerReplay)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("capacity", [1000, 37])
@pytest.mark.parametrize("layout", [{}, {"replicas": 4}, {"replicas": 2}], ids=str)
def test_recorder(mode, capacity, layout):
    modelled = ReplayBuffer.for_env(make_vector("box", mode), capacity, **layout)
    toy = ToyReplay(
        capacity, modelled.fields, num_envs=modelled.num_envs, replicas=modelled.replicas, autoreset=modelled.autoreset
    )
    for replay in (toy, modelled):
        recorder = ReplayRecorder(make_vector("box", mode), replay, reset_ended=True)
        recorder.reset(seed=0)
        for action in np.random.default_rng(0).integers(0, 7, (60, 4)):
            recorder.step(action)
    assert_same_steps(toy, modelled)
    assert sum(step["terminated"] for steps_of_env in toy.steps_kept for _, step in steps_of_env) > 5


def test_recorder_of_a_single_environment():
    toy = ToyReplay(50, ReplayBuffer.for_env(ScriptedEnv("box", 0, SCRIPTS[0]), 1).fields)
    buffer = as_buffer(toy)
    for replay in (toy, buffer):
        recorder = ReplayRecorder(ScriptedEnv("box", 0, SCRIPTS[0]), replay, reset_ended=True)
        recorder.reset(seed=0)
        assert [recorder.step(t % 7) and recorder.ids for t in range(60)] == list(range(60))
    assert_same_steps(toy, buffer)


def steps(count):
    for t in range(count):
        yield {"obs": t, "reward": t / 2, "next_obs": t + 1, "terminated": t % 7 == 6, "truncated": t % 5 == 4}


class TestStream:
    def test_the_same_steps_are_stored(self):
        toy = ToyReplay(10, FIELDS)
        buffer = as_buffer(toy)
        for replay in (toy, buffer):
            stream = ReplayStream(steps(33), replay, 4, warmup=6)
            batches = list(stream)
            assert len(batches) == stream.drawn == 28
            assert (stream.size, stream.position, stream.cycles) == (10, 3, 3)
            np.testing.assert_array_equal(batches[-1].next_obs, batches[-1].obs + 1)
        assert_same_steps(toy, buffer)

    @pytest.mark.parametrize("by_folder", [False, True])
    def test_state_and_restore(self, tmp_path, by_folder):
        stream = ReplayStream(steps(33), SavingToyReplay(10, FIELDS, seed=3), 4)
        source = iter(stream)
        for _ in range(9):
            next(source)
        state = pickle.loads(pickle.dumps(stream.state(tmp_path / "kept" if by_folder else None)))
        rest = [batch.id.tolist() for batch in source]
        replay = SavingToyReplay(10, FIELDS)
        again = ReplayStream(list(steps(33))[state["taken"] :], replay, 4)
        again.restore(state)
        assert [batch.id.tolist() for batch in again] == rest
        assert (again.taken, again.drawn, again.buffer) == (stream.taken, stream.drawn, replay)

    def test_a_replay_without_restore_raises(self):
        stream = ReplayStream(steps(33), ToyReplay(10, FIELDS), 4)
        next(iter(stream))
        with pytest.raises(ConfigError, match=r"needs a RestorableReplay, but ToyReplay has no `restore`; use a"):
            stream.restore(stream.state())


def test_step_writer():
    toy = ToyReplay(20, FIELDS, num_envs=2)
    buffer = as_buffer(toy)
    for replay in (toy, buffer):
        writer = StepWriter(replay)
        for t in range(30):
            writer.add(obs=[t, 100 + t], reward=[0.5, t], where=[True, t % 3 > 0])
            if t % 11 == 10:
                writer.end_episode(obs=[t + 1, 101 + t], terminated=[True, False])
    assert_same_steps(toy, buffer)


class TestMixture:
    def mixture(self):
        toy, buffer = ToyReplay(10, FIELDS), ReplayBuffer(10, FIELDS, seed=1)
        for step in steps(15):
            toy.add(**step)
        for step in steps(4):
            buffer.add(**step)
        return toy, buffer, MixedReplay((toy, buffer), shares=(0.25, 0.75))

    def test_shares_and_distribution(self):
        _, _, mixed = self.mixture()
        batch = mixed.sample(8)
        assert batch.source.tolist() == [0] * 2 + [1] * 6
        distribution = mixed.probabilities(batch.source, batch.id, batch_size=8)
        np.testing.assert_allclose(distribution, batch.probability)
        np.testing.assert_allclose(distribution, [0.025] * 2 + [0.1875] * 6)

    def test_feedback_goes_to_each(self):
        toy, _, mixed = self.mixture()
        assert mixed.update_priorities({"source": [0, 0, 1], "id": [2, 14, 3]}, [1.0, 2.0, 3.0]) == 2
        ids, td_error, _ = toy.feedback[-1]
        assert ids.tolist() == [2, 14, -1]
        assert td_error.tolist() == [1.0, 2.0, 3.0]

    def test_an_id_that_the_toy_never_gave_out_changes_nothing(self):
        toy, _, mixed = self.mixture()
        with pytest.raises(IdError):
            mixed.update_priorities({"source": [1, 0], "id": [3, 15]}, [1.0, 2.0])
        assert len(toy.feedback) == 1, "the toy is asked first, and it refuses"

    def test_an_empty_one_is_reported(self):
        with pytest.raises(EmptyBufferError, match="buffer 0 of the MixedReplay is empty"):
            MixedReplay((ToyReplay(10, FIELDS), ReplayBuffer(10, FIELDS))).sample(4)


class TestRefusals:
    """An object that is not a replay raises, with its missing members."""

    class Half:
        capacity = 5

        def add(self, **steps): ...

        def sample(self, batch_size): ...

    @pytest.mark.parametrize(
        "take",
        [
            lambda replay: ReplayRecorder(gym.make("CartPole-v1"), replay),
            lambda replay: ReplayStream([], replay, 4),
            StepWriter,
        ],
    )
    def test_each_names_the_members_that_are_missing(self, take):
        rule = r"`buffer` must be .*a ReplayBuffer or another Replay, with __len__, autoreset, end_episode, .*, but got"
        with pytest.raises(ConfigError, match=rule):
            take(self.Half())

    def test_a_mixture(self):
        with pytest.raises(ConfigError, match="two or more ReplayBuffers, or other Replays, but got"):
            MixedReplay((self.Half(), ToyReplay(3, FIELDS)))

    def test_a_class_is_none(self):
        with pytest.raises(ConfigError, match=r"another Replay, .*but got <class"):
            StepWriter(ToyReplay)

    def test_every_member_is_asked_for(self):
        toy = ToyReplay(3, FIELDS)
        members = set(missing_of(self.Half(), Replay)) | {"capacity", "add", "sample"}
        assert all(hasattr(toy, name) for name in members)
        assert len(members) == 16


def test_the_mode_is_compared():
    with pytest.raises(ConfigError, match="autoreset mode, 'same_step', but has 'next_step'"):
        ReplayRecorder(
            make_vector("box", AutoresetMode.SAME_STEP),
            ToyReplay(9, {"obs": Field((4,))}, num_envs=4, autoreset="next_step"),
        )
