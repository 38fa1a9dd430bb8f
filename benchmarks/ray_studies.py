"""What running a study on Ray costs beside worker processes of the same machine, as ratios in one run.

    python -m benchmarks.ray_studies --study quick --rounds 5
    python -m benchmarks.ray_studies --study classic-control --share 3

Each round runs the same populations with both executors, in turns that change from round to round; a ratio is that of
the times within one round, of which the median and the extremes are printed. Each round starts a Ray of its own, which
is not timed; both executors start their worker processes anew, which is.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from replaylab.distributed.ray_session import RaySession
from replaylab.distributed.studies import RayExecutor
from replaylab.study import Executor, LocalProcesses, Spec, Study
from replaylab.study.catalog import find

EXECUTORS: dict[str, Callable[[int], Executor]] = {
    "local": LocalProcesses,
    "ray": lambda workers: RayExecutor(workers=workers),
}


def some(name: str, share: int) -> Spec:
    """Return a study with one in ``share`` of its environments, and of its seeds where it has only one environment."""
    spec = Spec.from_toml(find(name))
    kept = spec.environments[::share]
    seeds = spec.seeds if len(spec.environments) > 1 else spec.seeds[::share]
    return spec.model_copy(update={"environments": kept, "seeds": seeds})


def seconds(spec: Spec, name: str, workers: int) -> float:
    """Run a study from nothing, and return how long that took."""
    session = RaySession(cores=workers) if name == "ray" else None
    if session is not None:
        session.open()
    try:
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            assert Study(spec, Path(folder)).run(executor=EXECUTORS[name](workers), checkpoint_every=None).complete
            return time.perf_counter() - began
    finally:
        if session is not None:
            session.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", default="quick", help="a shipped study, or a file")
    parser.add_argument("--share", type=int, default=1, help="run one in so many of its environments")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    spec = some(given.study, given.share)
    ratios = []
    for round_ in range(given.rounds):
        names = list(EXECUTORS)[:: -1 if round_ % 2 else 1]
        took = {name: seconds(spec, name, given.workers) for name in names}
        ratios.append(took["ray"] / took["local"])
        print(f"round {round_ + 1}: local {took['local']:.1f} s, ray {took['ray']:.1f} s, ratio {ratios[-1]:.3f}")
    print(f"{spec.name}: ray / local {median(ratios):.3f} (median), {min(ratios):.3f} to {max(ratios):.3f}")


if __name__ == "__main__":
    main()
