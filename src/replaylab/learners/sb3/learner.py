"""An algorithm of Stable-Baselines3 as a learner."""

from __future__ import annotations

from dataclasses import dataclass, replace

from replaylab.errors import ConfigError
from replaylab.learners.api.whole_algorithm import SeedRun, WholeAlgorithm
from replaylab.learners.sb3 import algorithms
from replaylab.learners.sb3.settings import SB3Settings


@dataclass(frozen=True)
class SB3(SB3Settings):
    """An off-policy algorithm of Stable-Baselines3 or sb3-contrib, or your own subclass of one.

    Its own `learn` runs separately for each seed, with ``seed=``; the sampler and the transforms of the configuration
    become those of its `ReplayLabBuffer`. With a sampler that wants TD errors it is trained `WithPriorities`. The
    rows of a run with `Uniform` are those of the algorithm on a plain `ReplayLabBuffer`, bit for bit.

    Attributes:
        algorithm: DQN, QRDQN, DDPG, TD3, SAC, TQC or CrossQ; or ``module:Class`` for a custom one.
        policy: One of the algorithm's policies, by its name.
        arguments: Further arguments of the algorithm, as plain data; those not given are filled in with its defaults,
            but `device` with "cpu". ``"module:Name"`` refers to an object of a module; `action_noise` is
            ``{"type": "normal", "sigma": 0.1}`` or of type "ornstein_uhlenbeck", `learning_rate` a number or a schedule
            such as ``{"type": "linear", "start": 1e-3, "end": 0.0}``, and `replay_buffer_kwargs` may hold
            ``compressed``, ``compute_terminated`` and ``handle_timeout_termination``.
        code: Digits that distinguish versions of custom modules, in the order in which the text names them; filled in.

    Raises:
        ConfigError: There is no such algorithm, policy or argument.
        MissingExtraError: Stable-Baselines3 is not installed.

    Example:
        >>> learner = SB3("DQN", arguments={"learning_starts": 50, "policy_kwargs": {"net_arch": [32]}})
        >>> learner.arguments["exploration_fraction"]
        0.1
    """

    def train(self, run: SeedRun) -> None:
        """Train one seed by the algorithm's `learn`.

        Raises:
            ConfigError: The configuration asks for something that the algorithm cannot do.
        """
        from replaylab.learners.sb3.training import train

        if self.code != algorithms.code_of(self.algorithm, self.arguments):
            raise ConfigError(
                f"the modules that {self.algorithm} and its arguments name have changed since the settings were read; "
                "read them again"
            )
        train(self, run)

    def early(self) -> tuple[WholeAlgorithm, int]:
        """Return the algorithm with a small buffer and an early first update, and the step of that update."""
        arguments = self.arguments
        starts = min(arguments.get("learning_starts", 0), max(100, 2 * arguments.get("batch_size", 1)))
        wanted = {"learning_starts": starts, "train_freq": 1, "gradient_steps": 1}
        wanted["buffer_size"] = min(arguments.get("buffer_size", 1_000), max(1_000, starts))
        return replace(self, arguments=arguments | {k: v for k, v in wanted.items() if k in arguments}), starts + 3
