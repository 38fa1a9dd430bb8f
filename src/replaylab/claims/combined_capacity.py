"""Claim 5, combined replay: whether a buffer that is too large hurts, and what mends it.

Zhang & Sutton 2017 say that uniform replay suffers from a buffer that is too large (or too small), and that adding the
newest step to every batch rescues it. Fedus et al. 2020 find no harm from capacity at a fixed ratio of updates to
steps. Pardo et al. 2018 find most of the harm gone where time limits are not taken for terminations. The shipped study
``combined-capacity`` has all three conditions on CartPole and Acrobot; its contrasts, declared before it was run, are
the findings. What a source says counts as reproduced if the contrast's verdict agrees with it, as not reproduced if the
verdict contradicts it, and as contested if the contrast is undecided.
"""

from collections.abc import Iterator

from replaylab.claims.claim import Claim, ReplicatedFigure, ReplicationOutcome
from replaylab.errors import ConfigError
from replaylab.study import Study

NO_HARM = ("higher", "equivalent")
SAID = {
    "large buffer, as published": ("below 0 (Zhang & Sutton)", ("lower",)),
    "small buffer, as published": ("below 0 (Zhang & Sutton)", ("lower",)),
    "combined replay from the large buffer": ("above 0 (Zhang & Sutton)", ("higher",)),
    "large buffer, fixed replay ratio": ("not below 0 (Fedus et al.)", NO_HARM),
    "large buffer, correct time limits": ("not below 0 (Pardo et al.)", NO_HARM),
    "harm that correct time limits take away": ("above 0 (Pardo et al.)", ("higher",)),
}
"""What the sources say of each contrast of the study: in words, and as verdicts that agree."""


def measure(study: Study | None = None) -> Iterator[ReplicatedFigure]:
    """Run what is missing of the study, and yield one finding for each contrast.

    Args:
        study: None: ``combined-capacity``, in ``results/combined-capacity``; what was run there before is only read.

    Raises:
        ConfigError: A run failed.
    """
    study = study or Study.from_toml("combined-capacity")
    if not study.run().complete:
        raise ConfigError(f"runs of {study.spec.name} failed; their tracebacks are in {study.folder / 'failures'}")
    for found in study.contrasts().results:
        said, agreeing = SAID[found.contrast.name]
        yield ReplicatedFigure(
            f"{found.contrast.name}: difference in score",
            said,
            found.size.estimate,
            found.size.low,
            found.size.high,
            f"interquartile mean of {len(found.each.seeds)} seeds, 95 %",
            judged(found.verdict, agreeing),
        )


def judged(verdict: str, agreeing: tuple[str, ...]) -> ReplicationOutcome:
    """Return what a contrast's verdict says about a statement with which these verdicts agree."""
    if verdict == "undecided":
        return ReplicationOutcome.CONTESTED
    return ReplicationOutcome.REPRODUCED if verdict in agreeing else ReplicationOutcome.NOT_REPRODUCED


CLAIM = Claim(
    5,
    "Combined replay",
    "A buffer that is too large hurts uniform replay, and combined replay rescues it; contested: no harm at a fixed "
    "replay ratio, and most of it gone where time limits are handled correctly.",
    "Zhang & Sutton 2017; Fedus et al. 2020; Pardo et al. 2018",
    8,
    measure,
)
