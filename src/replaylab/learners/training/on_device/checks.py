"""What a run on a device can train."""

from collections.abc import Sequence
from typing import cast

from replaylab.arguments import shown
from replaylab.errors import ConfigError
from replaylab.learners.dqn.settings import DQNSettings
from replaylab.learners.training.configuration import TrainingConfig
from replaylab.replay import Sampler

LOOP = 'with replay="device"'
"""The loop, as messages call it."""

LACKS = ("before_store", "on_step", "on_draw", "on_update")
"""Events for which steps or batches would have to come from the device."""


def device_learner(configuration: TrainingConfig, seeds: Sequence[int]) -> DQNSettings:
    """Return the learner of a run on a device.

    Raises:
        ConfigError: Something needs the other loop.
    """
    sampler = configuration.sampler
    if len(seeds) != 1:
        raise ConfigError(
            f"{LOOP} `seeds` must be a single one, but got {len(seeds)}; train the others separately (in a study: "
            "chunk_size = 1)"
        )
    if configuration.total_steps is None:
        raise ConfigError(f"{LOOP} the budget must be in steps, but got total_episodes={configuration.total_episodes}")
    if not isinstance(sampler, Sampler) or (sampler.wants_feedback and sampler.feedback_kind != "td_error"):
        raise ConfigError(
            f"{LOOP} `sampler` must draw by itself and by TD errors, but got {shown(sampler)}; take Uniform() or "
            "Prioritized()"
        )
    configuration.refuse_settings_of_the_host(LOOP)
    return cast("DQNSettings", configuration.driven_learner)
