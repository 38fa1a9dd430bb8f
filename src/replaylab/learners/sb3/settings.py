"""The settings of an algorithm of Stable-Baselines3, as a learner."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from replaylab.arguments import check, mapping, text
from replaylab.errors import ConfigError
from replaylab.learners.api.whole_algorithm import SeedRun
from replaylab.learners.metrics.registry import METRICS, Metric
from replaylab.learners.sb3 import algorithms

if TYPE_CHECKING:
    from replaylab.learners.api.whole_algorithm import WholeAlgorithm

_KNOWN = {one.name for one in METRICS}

LOGGED = (
    Metric("train/actor_loss", "Loss of the actor", "return", "the actor's loss"),
    Metric("train/critic_loss", "Loss of the critics", "reward²", "the critics' loss, without importance weights"),
    Metric("train/ent_coef", "Entropy coefficient", "none", "α of the entropy bonus"),
    Metric("train/ent_coef_loss", "Loss of the entropy coefficient", "none", "of log α"),
    Metric("train/learning_rate", "Learning rate", "none", "of the optimisers"),
    Metric("replay/size", "Steps stored", "steps", "in the replay buffer"),
    Metric("replay/stale_updates", "Stale feedback", "steps", "TD errors of steps that had been overwritten, so far"),
)
"""What the library's algorithms and `ReplayLabBuffer` log, in addition to what our own learners do."""


@dataclass(frozen=True)
class SB3:
    """An off-policy algorithm of Stable-Baselines3 or sb3-contrib, or your own subclass of one.

    Its own `learn` runs, for each seed by itself, with ``seed=``; the sampler and the transforms of the configuration
    become those of its `ReplayLabBuffer`. With a sampler that wants TD errors it is trained `WithPriorities`. The
    rows of a run with `Uniform` are those of the algorithm on a plain `ReplayLabBuffer`, bit for bit.

    Attributes:
        algorithm: DQN, QRDQN, DDPG, TD3, SAC, TQC or CrossQ; or ``module:Class`` of your own.
        policy: One of the algorithm's policies, by its name.
        arguments: Further arguments of the algorithm, as plain data; those not given are filled in with its defaults,
            but `device` with "cpu". ``"module:Name"`` stands for what is called so in a module; `action_noise` is
            ``{"type": "normal", "sigma": 0.1}`` or of type "ornstein_uhlenbeck", `learning_rate` a number or a schedule
            such as ``{"type": "linear", "start": 1e-3, "end": 0.0}``, and `replay_buffer_kwargs` may hold
            ``compressed``, ``compute_terminated`` and ``handle_timeout_termination``.
        code: Digits that tell versions of your own modules apart, those that the texts name; filled in.

    Raises:
        ConfigError: There is no such algorithm, policy or argument.
        MissingExtraError: Stable-Baselines3 is not installed.

    Example:
        >>> learner = SB3("DQN", arguments={"learning_starts": 50, "policy_kwargs": {"net_arch": [32]}})
        >>> learner.arguments["exploration_fraction"]
        0.1
    """

    algorithm: str
    policy: str = "MlpPolicy"
    arguments: dict[str, Any] = field(default_factory=dict)
    code: str = field(default="", metadata={"said_if_changed": True})

    def __post_init__(self) -> None:
        check(self, algorithm=text, policy=text, arguments=mapping, code=text)
        found = algorithms.find(self.algorithm)
        algorithms.check_policy(found, self.policy)
        complete = algorithms.completed(found, self.arguments)
        object.__setattr__(self, "arguments", complete)
        object.__setattr__(self, "code", self.code or algorithms.code_of(self.algorithm, complete))

    @property
    def gamma(self) -> float | None:
        """The discount γ; None: the algorithm has none."""
        return self.arguments.get("gamma")

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What is logged: by the library's algorithms, and what a class of your own lists in `metrics`."""
        own = getattr(algorithms.find(self.algorithm), "metrics", ())
        known = {one.name for one in own} | _KNOWN
        return (*own, *(one for one in LOGGED if one.name not in known))

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
        """Return the same with a small buffer, learning from the first batch on, and when that has been drawn."""
        given = self.arguments
        starts = min(given.get("learning_starts", 0), max(100, 2 * given.get("batch_size", 1)))
        wanted = {"learning_starts": starts, "train_freq": 1, "gradient_steps": 1}
        wanted["buffer_size"] = min(given.get("buffer_size", 1_000), max(1_000, starts))
        return replace(self, arguments=given | {k: v for k, v in wanted.items() if k in given}), starts + 3
