"""The claims, by number."""

from collections.abc import Iterable

from replaylab.claims import blind_cliffwalk, cliff_walking, unbiased
from replaylab.claims.finding import Claim
from replaylab.errors import ConfigError

CLAIMS: dict[int, Claim] = {
    claim.number: claim for claim in (blind_cliffwalk.CLAIM, cliff_walking.CLAIM, unbiased.CLAIM)
}


def chosen(numbers: Iterable[int]) -> list[Claim]:
    """Return the claims of these numbers, all if there are none.

    Raises:
        ConfigError: There is no claim of a number.
    """
    numbers = list(numbers) or list(CLAIMS)
    unknown = [number for number in numbers if number not in CLAIMS]
    if unknown:
        raise ConfigError(f"`numbers` must be of {list(CLAIMS)}, but got {unknown}")
    return [CLAIMS[number] for number in numbers]
