"""Times this buffer beside its peers and beside the machine's limit: `python -m benchmarks.replay`.

Two buffers of each library, uniform and prioritized, hold a million steps of (17, 6, 17) float32, full and
wrapped. See README.md for what is timed and how.
"""

import argparse
import importlib.util
import json
import platform
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks import report
from benchmarks.contestant import Contestant, Pool, resident_bytes
from benchmarks.limit import Limit, compile_limit
from benchmarks.ours import Replaylab
from benchmarks.peers import PEERS
from benchmarks.timing import draw_priorities, run_rounds

POOL = 64_000
MODULES = {"stable-baselines3": "stable_baselines3"}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.replay",
        description=__doc__,
        epilog="example: python -m benchmarks.replay --rounds 100 --out results.json",
    )
    parser.add_argument("--steps", type=int, default=1_000_000, help="capacity of every buffer")
    parser.add_argument("--rounds", type=int, default=200, help="interleaved rounds (default: 200)")
    parser.add_argument("--quick", action="store_true", help="100,000 steps and 10 rounds: a smoke test")
    parser.add_argument("--no-peers", action="store_true", help="only this library and the limit")
    parser.add_argument("--no-limit", action="store_true", help="without the C++ limit loop")
    parser.add_argument("--seed", type=int, default=0, help="seed of all inputs")
    parser.add_argument("--out", type=Path, help="JSON file (default: benchmarks/results/replay-<time>.json)")
    options = parser.parse_args(arguments)
    if options.quick:
        options.steps, options.rounds = 100_000, 10
    if options.steps < POOL or options.rounds < 1:
        parser.error(f"--steps must be at least {POOL} and --rounds at least 1")
    return options


def contenders(no_peers: bool) -> list[type[Contestant]]:
    """Return this library and the peers that are installed, saying which are not."""
    found: list[type[Contestant]] = [Replaylab]
    for peer in () if no_peers else PEERS:
        if importlib.util.find_spec(MODULES.get(peer.package, peer.package)) is None:
            print(f'{peer.label}: not installed: pip install "replaylab[bench]"')
        else:
            found.append(peer)
    return found


def build(
    kinds: list[type[Contestant]], steps: int, pool: Pool, rng: np.random.Generator
) -> tuple[list[Contestant], dict[str, dict[str, float | None]]]:
    """Fill two buffers of each library; return them and the memory each takes for a step, in bytes."""
    contestants: list[Contestant] = []
    memory: dict[str, dict[str, float | None]] = {}
    priorities = draw_priorities(rng, steps)
    for kind in kinds:
        memory[kind.label] = {}
        for prioritized in (False, True):
            try:
                kind(POOL, prioritized).fill(pool, priorities[:POOL])  # imports, compiles
            except ValueError:
                continue  # the library has no such buffer
            before = resident_bytes()
            contestant = kind(steps, prioritized)
            contestant.fill(pool, priorities)
            after = resident_bytes()
            contestant.check()
            grown = None if before is None or after is None else (after - before) / steps / kind.rings
            memory[kind.label]["prioritized" if prioritized else "uniform"] = grown
            contestants.append(contestant)
        print(f"{kind.label} {kind.version()}: filled", flush=True)
    return contestants, memory


def show_round(number: int, rounds: int) -> None:
    """Say how far the rounds are: one line rewritten on a terminal, now and then a line elsewhere."""
    if sys.stdout.isatty():
        print(f"\rround {number} of {rounds}", end="\n" if number == rounds else "", flush=True)
    elif number % max(1, rounds // 5) == 0:
        print(f"round {number} of {rounds}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, print the table and the targets, write the JSON file."""
    options = parse(arguments)
    rng = np.random.default_rng(options.seed)
    np.random.seed(options.seed)  # noqa: NPY002  (some peers draw from the global generator)
    pool = Pool.draw(rng, POOL)
    contestants, memory = build(contenders(options.no_peers), options.steps, pool, rng)

    with tempfile.TemporaryDirectory() as folder:
        program = None if options.no_limit else compile_limit(Path(folder))
        if program is None and not options.no_limit:
            print("limit: not timed, for no C++ compiler works here (set CXX, or install g++)")
        with Limit(program, options.steps) if program else nullcontext() as limit:
            times = run_rounds(
                contestants,
                limit,
                pool,
                options.rounds,
                options.seed,
                lambda number: show_round(number, options.rounds),
            )

    versions = {"python": platform.python_version(), "numpy": np.__version__}
    versions |= {c.label: c.version() for c in contestants}
    settings = {"steps": options.steps, "rounds": options.rounds, "seed": options.seed}
    result = report.as_json(times, settings, versions, memory)

    print(f"\n{options.steps:,} steps, {options.rounds} rounds, {result['machine']['processor']}\n")
    print(report.table(times))
    print("\n* the fastest peer\n\nbytes of memory a step (a row's own data: 166)")
    for label, figures in memory.items():
        values = ", ".join(f"{kind} {value:.0f}" for kind, value in figures.items() if value is not None)
        print(f"  {label:14} {values}")
    print("\ntargets")
    print("\n".join(report.target_lines(times)))

    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    out: Path = options.out or Path(__file__).parent / "results" / f"replay-{stamp}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"\nwritten to {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
