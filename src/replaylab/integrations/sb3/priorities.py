"""Prioritized replay for every off-policy algorithm of Stable-Baselines3, with its own `train`."""

import warnings
from typing import Any, ClassVar

import torch
from stable_baselines3 import DDPG, DQN, SAC, TD3
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from replaylab.errors import ConfigError
from replaylab.integrations.sb3.buffer import ReplayLabBuffer
from replaylab.integrations.sb3.layout import check_same
from replaylab.integrations.sb3.pickles import unpickled
from replaylab.integrations.watched_rewards import COMPILED
from replaylab.replay import Prioritized


class WithPriorities(OffPolicyAlgorithm):
    """A mixin that puts importance weights into an algorithm's loss, and feeds its TD errors back to the sampler.

    List it before the algorithm: ``class PrioritizedSAC(WithPriorities, SAC)``. Arguments are the algorithm's own; its
    buffer is a `ReplayLabBuffer`, which draws by `Prioritized()` unless ``replay_buffer_kwargs`` has another sampler. β
    and other schedules follow the algorithm's progress in `learn`.

    The algorithm's own `train` runs. Each row's gradient of the critics' loss is multiplied by its weight, which is the
    gradient of the weighted loss; the losses that are logged stay unweighted, and so does the actor's. The error that
    is fed back is |δ| = |target − value|, the mean over critics; of quantiles, the difference of their means. Networks
    may be compiled (`torch.compile`).

    Attributes:
        takes_weights: True.

    Raises:
        ConfigError: The buffer is of another class; or, from `train`, the loss is of a kind in which no TD error can be
            seen.
    """

    takes_weights: ClassVar[bool] = True
    replay_buffer: ReplayLabBuffer

    def _setup_model(self) -> None:
        kind = self.replay_buffer_class or ReplayLabBuffer
        if not issubclass(kind, ReplayLabBuffer):
            raise ConfigError(
                f"`replay_buffer_class` of {type(self).__name__} must be ReplayLabBuffer, which gives weights and "
                f"takes TD errors, but got {kind.__name__}; leave it out"
            )
        self.replay_buffer_class = kind
        self.replay_buffer_kwargs = {"sampler": Prioritized()} | self.replay_buffer_kwargs
        with warnings.catch_warnings():  # the library's, that a buffer class is not notified of n_steps
            warnings.filterwarnings("ignore", "`n_steps=")
            super()._setup_model()

    def train(self, *args: Any, **kwargs: Any) -> None:
        """Do the algorithm's own updates, weighted, with feedback.

        Raises:
            ConfigError: `train` is compiled, or the loss is of a kind in which no TD error can be seen.
        """
        if torch.compiler.is_compiling():
            raise ConfigError(COMPILED)
        buffer = self.replay_buffer
        if buffer.serves is not self:  # a copy, or one that another algorithm made
            buffer.attach(self)
        buffer.carry(True)
        try:
            super().train(*args, **kwargs)
            buffer.feed_back()
        finally:
            buffer.carry(False)

    def load_replay_buffer(self, path: Any, truncate_last_traj: bool = True) -> None:  # noqa: ARG002
        """Load a saved buffer; the steps of one of the library's own buffers are read into the current buffer.

        Args:
            path: As for the library's method.
            truncate_last_traj: Not used: the next observation shows whether an episode continues.

        Raises:
            ConfigError: The saved buffer has other spaces, another number of environments, another γ or another n.
        """
        loaded, current = unpickled(path, self.verbose), getattr(self, "replay_buffer", None)
        if not isinstance(loaded, ReplayLabBuffer):
            if current is None:
                raise ConfigError(
                    f"a {type(loaded).__name__} is read into the algorithm's buffer, which was deleted; create the "
                    "algorithm again, then load"
                )
            current.read_in(loaded)
            return
        names = ("observation_space", "action_space", "gamma")
        check_same("loaded", loaded, {name: getattr(self if current is None else current, name) for name in names})
        loaded.device = self.device
        self.replay_buffer = loaded


class PrioritizedDQN(WithPriorities, DQN):
    """`DQN` with priorities; see `WithPriorities`."""


class PrioritizedDDPG(WithPriorities, DDPG):
    """`DDPG` with priorities; see `WithPriorities`."""


class PrioritizedTD3(WithPriorities, TD3):
    """`TD3` with priorities; see `WithPriorities`."""


class PrioritizedSAC(WithPriorities, SAC):
    """`SAC` with priorities; see `WithPriorities`."""
