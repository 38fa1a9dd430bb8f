"""Published statements about experience replay, each with the experiment that tests it here."""

from collections.abc import Iterable

from replaylab.claims import (
    bit_flip,
    blind_cliffwalk,
    cleanrl,
    cliff_walking,
    combined_capacity,
    unbiased,
)
from replaylab.claims.claim import Claim, ReplicatedFigure, ReplicationOutcome, overall
from replaylab.claims.minatar import components, curve, first_million
from replaylab.errors import ConfigError

__all__ = ["CLAIMS", "Claim", "ReplicatedFigure", "ReplicationOutcome", "chosen", "overall"]

MODULES = (
    blind_cliffwalk,
    cliff_walking,
    bit_flip,
    cleanrl,
    combined_capacity,
    unbiased,
    components,
    curve,
    first_million,
)

CLAIMS: dict[int, Claim] = {module.CLAIM.number: module.CLAIM for module in MODULES}
"""The claims, by number."""


def chosen(numbers: Iterable[int]) -> list[Claim]:
    """Return the claims of these numbers; without numbers all claims.

    Raises:
        ConfigError: There is no claim of a number.
    """
    numbers = list(numbers) or list(CLAIMS)
    unknown = [number for number in numbers if number not in CLAIMS]
    if unknown:
        raise ConfigError(f"`numbers` must be of {list(CLAIMS)}, but got {unknown}")
    return [CLAIMS[number] for number in numbers]
