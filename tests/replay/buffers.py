"""Fields, samplers, filled buffers and a check of errors that many tests share."""

from dataclasses import dataclass

import numpy as np
import pytest

from replaylab.replay import CustomSampler, Field, ReplayBuffer

FLAGS = {"terminated": Field((), bool), "truncated": Field((), bool)}
GOALS = {"achieved_goal": Field((2,)), "desired_goal": Field((2,))}


def transition(obs=Field(), **more):  # noqa: B008
    """Return the fields of a transition, without an action."""
    return {"obs": obs, "reward": Field(), "next_obs": obs, **FLAGS, **more}


@dataclass(frozen=True)
class Even(CustomSampler):
    """All steps alike, in Python."""

    def distribution(self, view, batch_size):
        return np.full(len(view), 1 / len(view))


@dataclass(frozen=True)
class Seeing(Even):
    """All steps alike; `seen` has the episode of each step and its place in it, of every draw."""

    def distribution(self, view, batch_size):
        seen.append((view.episodes.tolist(), view.steps_in_episode.tolist()))
        return super().distribution(view, batch_size)


seen: list = []


def filled(sampler=None, capacity=20, steps=None, *, seed=0, dtype=np.int64, **options):
    """Return a buffer whose field `x` counts so many steps (default: its capacity), the same in every replica."""
    flags = getattr(sampler, "end_fields", ())
    fields = {"x": Field((), dtype)} | {name: Field((), bool) for name in flags}
    buffer = ReplayBuffer(capacity, fields, sampler=sampler, seed=seed, **options)
    lead = () if buffer.replicas is None else (buffer.replicas,)
    steps = capacity if steps is None else steps
    no_ends = dict.fromkeys(flags, np.zeros((*lead, steps), bool))
    buffer.extend(x=np.broadcast_to(np.arange(steps), (*lead, steps)), **no_ends)
    return buffer


def refused(error, words, call):
    """Assert that a call raises exactly this error, whose message holds these words, parted by "..."; return it."""
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert type(caught.value) is error, message
    assert all(part in message for part in words.split(" ... ")), message
    return message


def cases(rows):
    """Return refusals as parameters that are named by their words."""
    return [pytest.param(*row, id=f"{row[0].__name__}: {row[1]}".replace("\0", "NUL")) for row in rows]
