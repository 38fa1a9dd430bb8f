"""Base class of samplers, which choose the stored steps for a batch, with their exact probabilities.

A sampler is a small frozen configuration; the state it needs lives in the buffer. N is the number of stored
steps, B the batch size asked for, δ a TD error.
"""

from typing import ClassVar, Literal

from replaylab import _core
from replaylab.arguments import check, whole
from replaylab.replay.data.schedules import Schedule
from replaylab.replay.data.seeding import Seed
from replaylab.replay.samplers.engine import DrawEngine, Layout

COUNT = whole(most=2**53)
"""Counts go to the core as float64, which holds them exactly up to there."""

FeedbackKind = Literal["td_error", "reducible_loss"]
"""Feedback that a learner passes to `update_priorities`: TD errors δ, or a row's loss under the online network minus
its loss under the target network."""


class Sampler:
    """Base class of samplers; pass a sampler to `ReplayBuffer(sampler=...)`.

    Attributes:
        wants_feedback: Whether `update_priorities` changes what is drawn.
        keeps_priorities: Whether it keeps a priority for every stored step, which `ReplayStats` shows.
        feedback_kind: The feedback it needs: "td_error", or "reducible_loss", L_online − L_target.
        distribution_needs_batch_size: Whether `probabilities` depends on the batch size.
        distribution_needs_progress: Whether it depends on the scheduled number.
        needs_order: Whether it depends on the steps' order or age, which a `Reservoir` does not keep.
        needs_episodes: Whether it depends on episodes, which ``terminated`` and ``truncated`` then end.
        end_fields: Fields that end the episodes it draws by. The buffer must have at least one of them; with
            ``episodes="manual"`` it need not have ``truncated``, since `end_episode` truncates.
        clock_fields: Fields whose values are the times of steps.
        no_closed_form: Why `probabilities` cannot state the sampling probability of one row; "" where it can.
        in_core: Whether the compiled core draws; if not, the sampler cannot be part of a `Mixture`.
        draws_sequences: Whether `Sequence` can be made of what it draws.
        allows_removal: Whether steps can be removed; not if it draws by the places of all steps.
        core_kind: Its kind in the compiled core; of a sampler that draws in Python, what draws its pool, if it has one.
        record_nbytes: Bytes that are recorded in Python about each stored step.
    """

    wants_feedback: ClassVar[bool] = False
    keeps_priorities: ClassVar[bool] = False
    feedback_kind: ClassVar[FeedbackKind] = "td_error"
    distribution_needs_batch_size: ClassVar[bool] = False
    distribution_needs_progress: ClassVar[bool] = False
    needs_order: ClassVar[bool] = False
    needs_episodes: ClassVar[bool] = False
    end_fields: ClassVar[tuple[str, ...]] = ()
    clock_fields: ClassVar[tuple[str, ...]] = ()
    no_closed_form: ClassVar[str] = ""
    in_core: ClassVar[bool] = True
    draws_sequences: ClassVar[bool] = True
    allows_removal: ClassVar[bool] = True
    core_kind: ClassVar[str] = "uniform"
    record_nbytes: ClassVar[int] = 0

    def __post_init__(self) -> None:
        check(self)

    @property
    def has_closed_form(self) -> bool:
        """Whether `ReplayBuffer.probabilities` states the exact sampling probability of one row."""
        return not self.no_closed_form

    @property
    def takes_priorities(self) -> bool:
        """Whether ``update_priorities(ids, priority=...)`` has an effect; if not, it raises."""
        return self.wants_feedback

    @property
    def scheduled(self) -> float | Schedule:
        """The number that may change over a run; if it does, pass ``progress`` to `sample`."""
        return 0.0

    @property
    def schedules(self) -> tuple[float | Schedule, ...]:
        """`scheduled`, or of a mixture that of each part: one number for each sampler of the core that draws."""
        return (self.scheduled,)

    def of_replica(self, replica: int, replicas: int) -> "Sampler":  # noqa: ARG002
        """Return the sampler of one of several replicas, each of which has its own buffer: here this one."""
        return self

    def rows(self, batch_size: int) -> int:
        """Return how many rows a batch has when `batch_size` were asked for."""
        return batch_size

    def engine(self, core: _core.Replay, layout: Layout, seed: Seed) -> DrawEngine:  # noqa: ARG002
        """Return what draws for a buffer: here the compiled core, which has its own streams from the same seed."""
        return DrawEngine(core, layout)

    def core_options(self) -> dict[str, float]:
        """Return the options of its kind in the compiled core."""
        return {}

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""
        return _core.SamplerConfig(self.core_kind, self.core_options())
