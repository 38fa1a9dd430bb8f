"""`train` in one line, for tests of what it does, and what two trainings have in common."""

import numpy as np

from replaylab.learners import Callbacks, Checkpoints, Hook, TrainingConfig
from replaylab.learners import train as train_configuration


def train(
    env_id,
    learner,
    sampler,
    seeds,
    total_steps=None,
    *,
    on_metrics=None,
    on_end=None,
    progress=None,
    save=None,
    save_every=None,
    resume=None,
    hooks=(),
    **settings,
):
    """Train with these settings; the functions and the folder become hooks."""
    configuration = TrainingConfig(env_id, learner, sampler, total_steps, **settings)
    attached = [Callbacks(on_metrics=on_metrics, on_end=on_end, progress=progress), *hooks]
    if save is not None:
        attached.append(Checkpoints(save, save_every))
    return train_configuration(configuration, seeds, attached, resume=resume)


class Drawn(Hook):
    """The ids of each batch, and how many steps were stored then."""

    def __init__(self):
        self.ids, self.steps = [], []

    def on_update(self, run, update, batch):
        self.ids.append(batch.id.copy())
        self.steps.append(run.clock.steps)


def assert_same_rows(left, right, rows=slice(None)):
    """All rows of a run, or some of them, are those of another one, bit for bit."""
    for name, column in right.columns.items():
        np.testing.assert_array_equal(left.columns[name][rows], column)
