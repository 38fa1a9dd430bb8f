"""Claim 5, combined replay: whether a buffer that is too large hurts, and what mends it.

Zhang & Sutton 2017 say that uniform replay suffers from a buffer that is too large (or too small), and that adding the
newest step to every batch rescues it. Fedus et al. 2020 find no harm from capacity at a fixed ratio of updates to
steps. Pardo et al. 2018 find most of the harm gone where time limits are not taken for terminations. The shipped study
``combined-capacity`` has all three conditions on CartPole and Acrobot; its contrasts are the findings.
"""

from collections.abc import Iterator

from replaylab.claims.claim import Claim, ReplicatedFigure
from replaylab.claims.study_findings import Said, complete, contrast_findings
from replaylab.study import Study

NO_HARM = ("higher", "equivalent")
SAID = {
    "large buffer, as published": Said("below 0 (Zhang & Sutton)", ("lower",)),
    "small buffer, as published": Said("below 0 (Zhang & Sutton)", ("lower",)),
    "combined replay from the large buffer": Said("above 0 (Zhang & Sutton)", ("higher",)),
    "large buffer, fixed replay ratio": Said("not below 0 (Fedus et al.)", NO_HARM),
    "large buffer, correct time limits": Said("not below 0 (Pardo et al.)", NO_HARM),
    "harm that correct time limits take away": Said("above 0 (Pardo et al.)", ("higher",)),
}


def measure(study: Study | None = None) -> Iterator[ReplicatedFigure]:
    """Run what is missing of the study, and yield one finding for each contrast.

    Args:
        study: None: ``combined-capacity``, in ``results/combined-capacity``; what was run there before is only read.

    Raises:
        ConfigError: A run failed.
    """
    yield from contrast_findings(complete(study or Study.from_toml("combined-capacity")), SAID)


CLAIM = Claim(
    5,
    "Combined replay",
    "A buffer that is too large hurts uniform replay, and combined replay rescues it; contested: no harm at a fixed "
    "replay ratio, and most of it gone where time limits are handled correctly.",
    "Zhang & Sutton 2017; Fedus et al. 2020; Pardo et al. 2018",
    8,
    measure,
)
