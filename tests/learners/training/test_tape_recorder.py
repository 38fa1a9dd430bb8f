"""A run's tape: what each update learned from, also of a run that was continued from a checkpoint."""

from dataclasses import replace

import numpy as np
import pytest

from replaylab.errors import ConfigError
from replaylab.learners import Checkpoints, Hook, QLearning, TapeRecorder, TrainingConfig, train
from replaylab.replay import Prioritized
from replaylab.research import ByStepsToEnd, Tape
from replaylab.research.tape_file import TapeReader
from tests.learners.calls import Drawn

LEARNER = QLearning(batch_size=4, learning_starts=10, capacity=30)


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


class Seen(Hook):
    """Return the results of the environments, step by step: ids and both flags."""

    def __init__(self):
        self.steps = []

    def on_step(self, run, step, ids):
        self.steps.append((ids.copy(), step.terminated.copy(), step.truncated.copy()))


def bins(ids, newest, steps, replica):
    """The kind of each row's episode when `newest` was, and the magnitudes of its steps to the end and of its age."""
    ends = {int(i[replica]): bool(t[replica]) for i, t, u in steps if t[replica] or u[replica]}
    bins_of_rows = []
    for row in ids.tolist():
        end = min((e for e in ends if row <= e <= newest), default=None)
        to_end = None if end is None else (end - row).bit_length()
        bins_of_rows.append((ends.get(end), to_end, (newest - row).bit_length()))
    return bins_of_rows


def far(drawn, other):
    """Whether two bins are of different kinds, or more than one apart in steps to the end or age."""
    return drawn[0] != other[0] or any(abs((a or 0) - (b or 0)) > 1 for a, b in zip(drawn[1:], other[1:], strict=True))


def test_another_seed_draws_from_the_same_bins(tmp_path):
    """And alone, each seed by its own tape's replica, it draws the same: replicas do not mix."""
    recorded, replayed, seen_by_recorded, mine = Drawn(), Drawn(), Seen(), Seen()
    options = {"total_steps": 120}
    train(configured(**options), [0, 1, 2], hooks=[TapeRecorder(tmp_path / "tape"), recorded, seen_by_recorded])
    placebo = ByStepsToEnd(str(tmp_path / "tape"), 1)
    metrics = train(configured(placebo, measure_every=20, **options), [5, 6, 7], hooks=[replayed, mine])
    wanted, drawn_ids = np.stack(recorded.ids), np.stack(replayed.ids)
    rows, moved = 0, np.zeros(3)
    for k in range(len(drawn_ids)):
        for r in range(3):
            asked = bins(wanted[k, (r + 1) % 3], k + 9, seen_by_recorded.steps, (r + 1) % 3)
            drawn = bins(drawn_ids[k, r], k + 9, mine.steps, r)
            moved[r] += sum(map(far, asked, drawn))
            rows += len(asked)
    assert not (wanted == drawn_ids).all()
    for r, seed in enumerate((5, 6, 7)):
        steps, shares = metrics.of("replay/moved_share", seed=seed)
        assert steps[-1] == 120
        assert shares[-1] == pytest.approx(moved[r] / (rows / 3))
    assert moved.sum() < rows / 2
    for r, seed in enumerate((5, 6, 7)):
        alone = Drawn()
        train(configured(placebo.of_replica(r, 3), **options), [seed], hooks=[alone])
        np.testing.assert_array_equal(np.stack(alone.ids)[:, 0], drawn_ids[:, r])


def test_a_tape_of_another_run_stays_refused_after_learning(tmp_path):
    train(configured(), [0, 1], hooks=[TapeRecorder(tmp_path / "tape")])
    early = replace(configured(Tape(str(tmp_path / "tape"))), learner=replace(LEARNER, learning_starts=5))
    with pytest.raises(ConfigError, match=r"draw 0 of the tape .* asks for step \d+, but the buffer holds") as reported:
        train(early, [0, 1])
    assert "learning_starts" not in str(reported.value)


def test_a_continued_run_has_the_whole_tape(tmp_path):
    train(configured(), [0, 1], hooks=[TapeRecorder(tmp_path / "whole")])

    class Killed(Hook):
        def after_turn(self, run):
            if run.clock.steps == 45:
                raise KeyboardInterrupt

    hooks = [Checkpoints(tmp_path / "kept", every=20), TapeRecorder(tmp_path / "again")]
    with pytest.raises(KeyboardInterrupt):
        train(configured(), [0, 1], hooks=[*hooks, Killed()])
    assert not (tmp_path / "again").exists()
    hooks = [Checkpoints(tmp_path / "kept", every=20), TapeRecorder(tmp_path / "again")]
    train(configured(), [0, 1], hooks=hooks, resume=tmp_path / "kept")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "whole").read_bytes()
    assert TapeReader(tmp_path / "whole").draws == 51


def test_budgets_in_episodes_are_refused():
    with pytest.raises(ConfigError, match="a tape needs runs of equal length, but the budget is in episodes"):
        train(configured(total_steps=None, total_episodes=3), [0], hooks=[TapeRecorder()])


def test_measures_of_a_tape_have_no_distribution(tmp_path):
    train(configured(), [0], hooks=[TapeRecorder(tmp_path / "tape")])
    metrics = train(configured(Tape(str(tmp_path / "tape")), measure_every=20), [0])
    evenness, ages = (metrics.of(f"replay/{name}", seed=0)[1] for name in ("sampling_evenness", "drawn_age_mean"))
    assert np.isnan(evenness).all()
    assert len(ages)
    assert np.isfinite(ages).all()
    assert (metrics.of("replay/moved_share", seed=0)[1] == 0).all()
