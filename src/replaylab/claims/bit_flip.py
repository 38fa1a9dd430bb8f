"""Claim 3, bit flip: the gain of hindsight if success by chance is out of reach.

Andrychowicz et al. 2017, section 3.1 and figure 1. For each number of bits, with and without hindsight, at most
800 cycles (of 16 episodes and 40 updates) in each of 3 runs, fewer once all have solved it: a run has solved it when
95 of 100 greedy episodes reach their goal. "Learns" is reproduced if all runs solve it, "fails" if none reaches its
goal in more than 10 of 100. Near n = 13, where the budget decides, nothing is tested.
"""

from collections.abc import Iterator, Sequence

from replaylab.claims.bit_flip_runs import TEST_EPISODES, BitFlipRuns, success_curve
from replaylab.claims.claim import Claim, ReplicatedFigure, agreement

SOLVED, FAILED = 95, 10
CYCLES = 800
EVERY = 20
PLAN = ((True, (5, 10, 15, 20, 30)), (False, (5, 10, 15, 20)))
"""With hindsight or not, and the numbers of bits."""
FAILS_BEYOND = 13


def measure(
    plan: Sequence[tuple[bool, Sequence[int]]] = PLAN, seeds: Sequence[int] = range(3), cycles: int = CYCLES
) -> Iterator[ReplicatedFigure]:
    """Yield the share of successes at the end for every number of bits."""
    for hindsight, sizes in plan:
        for n in sizes:
            yield _finding(n, hindsight, seeds, cycles)


def _finding(n: int, hindsight: bool, seeds: Sequence[int], cycles: int) -> ReplicatedFigure:
    runs = BitFlipRuns(n, seeds, hindsight=hindsight, cycles=cycles)
    curve = success_curve(runs, cycles, EVERY)
    cycle, successes = next(curve)
    while cycle < cycles and not (successes >= SOLVED).all():
        cycle, successes = next(curve)
    learns = hindsight or n <= FAILS_BEYOND
    holds = bool((successes >= SOLVED).all() if learns else (successes <= FAILED).all())
    shares = successes / TEST_EPISODES
    return ReplicatedFigure(
        f"{'with' if hindsight else 'without'} hindsight, n = {n}: successes after {cycle} cycles",
        "learns" if learns else "fails",
        float(shares.mean()),
        float(shares.min()),
        float(shares.max()),
        f"mean and range of {len(seeds)} runs",
        agreement(holds),
    )


CLAIM = Claim(
    3,
    "Bit flip",
    "Without hindsight deep Q-learning fails beyond about 13 bits; with it, it learns up to 50.",
    "Andrychowicz et al. 2017, section 3.1",
    10,
    measure,
)
