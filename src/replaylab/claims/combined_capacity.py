"""Claim 5, combined replay: whether a too large buffer hurts, and whether combined replay helps.

Zhang & Sutton 2017 say that uniform replay suffers from a buffer that is too large (or too small), and that adding the
newest step to every batch rescues it. The shipped study ``grid-world`` has their grid world, as far as it is published
(the grid itself is not), with a table, a linear function and a network.

Fedus et al. 2020 find no harm from capacity at a fixed ratio of updates to steps. Pardo et al. 2018 find most of the
harm gone where time limits are not taken for terminations. The study ``combined-capacity`` has all three conditions on
CartPole and Acrobot. The contrasts of both studies are the findings.
"""

from collections.abc import Iterator

from replaylab.claims.claim import Claim, ReplicatedFigure
from replaylab.claims.study_findings import Said, complete, contrast_findings
from replaylab.study import Study

NO_HARM = ("higher", "equivalent")
HARM = Said("below 0 (Zhang & Sutton)", ("lower",))
RESCUE = Said("above 0 (Zhang & Sutton)", ("higher",))
NO_MATTER = Said("not below 0 (Zhang & Sutton)", NO_HARM)
GRID_WORLD = {
    "table: large buffer": HARM,
    "table: combined replay from the large buffer": RESCUE,
    "table: large buffer, combined replay": NO_MATTER,
    "linear: large buffer": HARM,
    "linear: combined replay from the large buffer": RESCUE,
    "linear: large buffer, combined replay": NO_MATTER,
    "network: large buffer": HARM,
    "network: small buffer": HARM,
    "network: combined replay from the large buffer": RESCUE,
    "network: large buffer, combined replay": NO_MATTER,
}
SAID = {
    "large buffer, as published": HARM,
    "small buffer, as published": HARM,
    "combined replay from the large buffer": RESCUE,
    "large buffer, fixed replay ratio": Said("not below 0 (Fedus et al.)", NO_HARM),
    "large buffer, correct time limits": Said("not below 0 (Pardo et al.)", NO_HARM),
    "harm that correct time limits take away": Said("above 0 (Pardo et al.)", ("higher",)),
}


def measure(grid_world: Study, capacity: Study) -> Iterator[ReplicatedFigure]:
    """Run what is missing of the studies, and yield one finding for each contrast.

    Args:
        grid_world: ``grid-world``; what was run of it before is only read.
        capacity: ``combined-capacity``, likewise.

    Raises:
        ConfigError: A run failed.
    """
    yield from contrast_findings(complete(grid_world), GRID_WORLD)
    yield from contrast_findings(complete(capacity), SAID)


CLAIM = Claim(
    5,
    "Combined replay",
    "A buffer that is too large hurts uniform replay, and combined replay rescues it; contested: no harm at a fixed "
    "replay ratio, and most of it gone where time limits are handled correctly.",
    "Zhang & Sutton 2017; Fedus et al. 2020; Pardo et al. 2018",
    25,
    measure,
    ("grid-world", "combined-capacity"),
)
