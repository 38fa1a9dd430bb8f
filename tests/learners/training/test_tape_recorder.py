"""A run's tape: what each update learned from, also of a run that was continued from a checkpoint."""

from dataclasses import replace

import numpy as np
import pytest

from replaylab.errors import ConfigError
from replaylab.learners import Checkpoints, Hook, QLearning, TapeRecorder, TrainingConfig, train
from replaylab.replay import Prioritized, Tape
from replaylab.replay.samplers.tape_file import TapeReader

LEARNER = QLearning(batch_size=4, learning_starts=10, capacity=30)


class Drawn(Hook):
    """Every update's ids."""

    def __init__(self):
        self.ids = []

    def on_update(self, run, update, batch):
        self.ids.append(batch.id.copy())


def configured(sampler=Prioritized(beta=0.0), **options):  # noqa: B008
    options = {"total_steps": 60} | options
    return TrainingConfig("FrozenLake-v1", LEARNER, sampler, eval_every=None, **options)


def test_another_seed_learns_from_what_was_recorded(tmp_path):
    recorded, replayed = Drawn(), Drawn()
    train(configured(), [0, 1, 2], hooks=[TapeRecorder(tmp_path / "tape"), recorded])
    train(configured(Tape(str(tmp_path / "tape"), 1)), [0, 1, 2], hooks=[replayed])
    ids = np.stack(recorded.ids)
    assert ids.shape == (51, 3, 4)
    np.testing.assert_array_equal(np.stack(replayed.ids), np.roll(ids, -1, axis=1))
    assert not (np.stack(replayed.ids) == ids).all()


def test_a_tape_of_another_run_is_not_mended_by_learning_later(tmp_path):
    train(configured(), [0, 1], hooks=[TapeRecorder(tmp_path / "tape")])
    early = replace(configured(Tape(str(tmp_path / "tape"))), learner=replace(LEARNER, learning_starts=5))
    with pytest.raises(ConfigError, match=r"draw 0 of the tape .* asks for a step that is not here") as told:
        train(early, [0, 1])
    assert "learning_starts" not in str(told.value)


def test_a_continued_run_has_the_whole_tape(tmp_path):
    train(configured(), [0, 1], hooks=[TapeRecorder(tmp_path / "whole")])

    class Killed(Hook):
        def after_turn(self, run):
            if run.clock.steps == 45:
                raise KeyboardInterrupt

    kept = [Checkpoints(tmp_path / "kept", every=20), TapeRecorder(tmp_path / "again")]
    with pytest.raises(KeyboardInterrupt):
        train(configured(), [0, 1], hooks=[*kept, Killed()])
    assert not (tmp_path / "again").exists()
    kept = [Checkpoints(tmp_path / "kept", every=20), TapeRecorder(tmp_path / "again")]
    train(configured(), [0, 1], hooks=kept, resume=tmp_path / "kept")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "whole").read_bytes()
    assert TapeReader(tmp_path / "whole").draws == 51


def test_budgets_in_episodes_are_refused():
    with pytest.raises(ConfigError, match="a tape needs runs of equal length, but the budget is in episodes"):
        train(configured(total_steps=None, total_episodes=3), [0], hooks=[TapeRecorder()])


def test_measures_of_a_tape_have_no_law(tmp_path):
    train(configured(), [0], hooks=[TapeRecorder(tmp_path / "tape")])
    metrics = train(configured(Tape(str(tmp_path / "tape")), measure_every=20), [0])
    evenness, ages = (metrics.of(f"replay/{name}", seed=0)[1] for name in ("law_evenness", "drawn_age_mean"))
    assert np.isnan(evenness).all()
    assert len(ages)
    assert np.isfinite(ages).all()
