"""Samplers of this library's own experiments, which show why a replay strategy helps.

**Placebo**: a sampler that draws like another one except for the property whose effect is in question. If a learner
gains as much by the placebo, that property is not the cause of the gain. `Tape` is the placebo of choosing by TD error:
its draws are as old, as uneven and as clustered as those of prioritized replay, but another learner's errors chose
them. `ByStepsToEnd` keeps only the draws' ages and positions in the episode. `Permuted` gives each priority to another
step, and `AntiPrioritized` reverses their order.

**Dial**: a sampler with one number that changes one property of uniform batches and leaves the others unchanged.
`Blocks` changes how much the rows of a batch depend on each other. `BinnedPrioritized` changes how much TD errors
decide from which positions steps come, and which steps of a position come.

Users choose among the samplers of `replaylab.replay`; study files name these, too.
"""

from replaylab.research.binned_prioritized import BinnedPrioritized
from replaylab.research.by_steps_to_end import ByStepsToEnd
from replaylab.research.placebos import AntiPrioritized, Blocks, Permuted
from replaylab.research.tape import Tape
from replaylab.research.tape_file import TapeWriter

__all__ = [
    "AntiPrioritized",
    "BinnedPrioritized",
    "Blocks",
    "ByStepsToEnd",
    "Permuted",
    "Tape",
    "TapeWriter",
]
