"""Agents that learn here from what others step elsewhere, and whose policy actors follow."""

from typing import cast

from gymnasium.vector import VectorEnv

from replaylab.arguments import shown
from replaylab.distributed.training.options import Actors
from replaylab.errors import ConfigError
from replaylab.learners import SB3, Learner, PublishedAgents, TrainingConfig
from replaylab.learners.api.exploration import EpsilonGreedyAgents
from replaylab.learners.training.factories import agents_for, check_feedback, environments
from replaylab.replay import Sampler


def followed(configuration: TrainingConfig, seed: int, actors: Actors) -> tuple[Learner, VectorEnv, PublishedAgents]:
    """Return the learner, an environment for its spaces, which is never stepped, and the agents.

    Raises:
        ConfigError: Something does not fit training by actors.
    """
    learner = _stepped(configuration)
    _check(configuration, learner)
    env = environments(configuration, 1)
    agents = agents_for(configuration, learner, env, [seed])
    if not isinstance(agents, PublishedAgents):
        raise ConfigError(
            f"`learner` must be one whose agents have `weights` and `take_weights`, to be followed by actors, but "
            f"got {type(configuration.learner).__name__}; add them, or take DQN"
        )
    if isinstance(agents, EpsilonGreedyAgents):
        agents.tell_epsilon(float(actors.epsilons().mean()))
    sampler = cast("Sampler", configuration.sampler)
    check_feedback(learner, agents, sampler, sampler.feedback_kind if sampler.wants_feedback else None)
    return learner, env, agents


def _stepped(configuration: TrainingConfig) -> Learner:
    """Return the learner whose agents act on what others step.

    Raises:
        ConfigError: It is an algorithm that steps environments itself.
    """
    if not isinstance(configuration.learner, SB3):
        return configuration.driven_learner
    from replaylab.learners.sb3.agents import SteppedSB3  # Stable-Baselines3, only now that it is needed

    return cast("Learner", SteppedSB3(configuration.learner, configuration))


def _check(configuration: TrainingConfig, learner: Learner) -> None:
    """Refuse what needs a loop that steps environments itself."""
    name = type(configuration.learner).__name__
    if configuration.total_steps is None:
        raise ConfigError(
            "with actors the budget must be in steps, which all of them share, but got total_episodes="
            f"{configuration.total_episodes}; give total_steps"
        )
    if getattr(learner, "replay", "host") == "device":
        raise ConfigError('with actors `replay` of the learner must be "host", but got "device"; leave it out')
    if learner.online or not learner.batch_size:
        raise ConfigError(f"with actors `learner` must learn from drawn batches alone, but got {name}; take DQN")
    if not isinstance(configuration.sampler, Sampler):
        raise ConfigError(
            f"with actors `sampler` must draw by itself, but got {shown(configuration.sampler)}, which asks "
            "agents of this process; take Uniform() or Prioritized()"
        )
    configuration.refuse_settings_of_the_host("with actors")
