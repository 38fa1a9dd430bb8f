"""Time of a study on Ray beside worker processes of the same machine, as ratios in one run.

    python -m benchmarks.ray_studies --study quick --rounds 5
    python -m benchmarks.ray_studies --study classic-control --share 3 --seeds 10

Each round runs the same chunks with both executors, in turns that change from round to round; a ratio is that of
the times within one round, of which the median and the extremes are printed. Each round starts its own Ray with
its worker processes, which is not timed; both executors start the processes that train again, which is. The rows that
they leave must be the same to the last bit, or the benchmark ends with an error.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import ray

from benchmarks import harness
from replaylab.distributed.ray_session import RaySession
from replaylab.distributed.studies import RayExecutor
from replaylab.study import Executor, LocalProcesses, Spec, Study
from replaylab.study.catalog import find

EXECUTORS: dict[str, Callable[[int], Executor]] = {
    "local": LocalProcesses,
    "ray": lambda workers: RayExecutor(workers=workers),
}


def some(name: str, share: int, seeds: int | None) -> Spec:
    """Return a study with one in ``share`` of its environments, and its first seeds, at most ``seeds``."""
    spec = Spec.from_toml(find(name))
    return spec.model_copy(update={"environments": spec.environments[::share], "seeds": spec.seeds[:seeds]})


def started(session: RaySession, workers: int) -> None:
    """Open a session, and wait until so many of Ray's worker processes are there."""
    session.open()
    held = ray.remote(num_cpus=1)(lambda: time.sleep(3.0))  # and Ray's own services, which start beside them
    ray.get([held.remote() for _ in range(workers)])


def run(spec: Spec, name: str, workers: int) -> tuple[float, dict[str, bytes]]:
    """Run a study from nothing, and return how many seconds that took, and the files of its rows."""
    session = RaySession(cores=workers) if name == "ray" else None
    try:
        if session is not None:
            started(session, workers)
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            assert Study(spec, Path(folder)).run(executor=EXECUTORS[name](workers), checkpoint_every=None).complete
            passed = time.perf_counter() - began
            return passed, {path.name: path.read_bytes() for path in Path(folder, "runs").iterdir()}
    finally:
        if session is not None:
            session.close()


def main() -> None:
    parser = harness.parser(__doc__, 5)
    parser.add_argument("--study", default="quick", help="a shipped study, or a file")
    parser.add_argument("--share", type=int, default=1, help="run one in so many of its environments")
    parser.add_argument("--seeds", type=int, help="run so many of its seeds; else all")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    spec = some(options.study, options.share, options.seeds)
    ratios, files = [], 0
    for round_ in range(options.rounds):
        names = list(EXECUTORS)[:: -1 if round_ % 2 else 1]
        seconds = {name: run(spec, name, options.workers) for name in names}
        (local, rows), (on_ray, same) = seconds["local"], seconds["ray"]
        if rows != same:
            raise SystemExit(
                f"{sum(rows[name] != same.get(name) for name in rows)} of {len(rows)} files of rows differ."
            )
        ratios.append(on_ray / local)
        files += len(rows)
        print(f"round {round_ + 1}: local {local:.1f} s, ray {on_ray:.1f} s, ratio {ratios[-1]:.3f}", flush=True)
    print(
        f"{spec.name}: ray / local {median(ratios):.3f} (median), {min(ratios):.3f} to {max(ratios):.3f}; "
        f"{files} pairs of files of rows, all equal"
    )


if __name__ == "__main__":
    main()
