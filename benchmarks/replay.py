"""Times this buffer beside its peers and beside the machine's limit.

    python -m benchmarks.replay --parts rows frames --rounds 50 --out results.json

In five parts, one after the other: plain rows, uniform and prioritized; n-step returns; frame stacks;
hindsight; sequences. Then cost against capacity, as a plot. See README.md for what is timed and how.
"""

import argparse
import gc
import platform
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import capacity, frames, guard, harness, hindsight, n_step, report, scene, sequences
from benchmarks.contestant import Contestant, Pool
from benchmarks.limit import ROWS, Limit, compile_limit
from benchmarks.ours import Replaylab
from benchmarks.peers import Cpprb, Rlox, StableBaselines3, Tianshou
from benchmarks.scene import Scene, filled, installed
from benchmarks.tensor_peers import Flashbax, Torchrl
from benchmarks.timing import Times, draw_priorities, rows_of, run_rounds

POOL = 64_000
PEERS: tuple[type[Contestant], ...] = (Cpprb, Rlox, StableBaselines3, Tianshou, Torchrl, Flashbax)
SCENES = {scene.name: scene for scene in (n_step.SCENE, frames.SCENE, hindsight.SCENE, sequences.SCENE)}
PARTS = ("rows", *SCENES, "capacity")
HERE = Path(__file__).parent


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = harness.parser(__doc__, 200)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to time (default: all)")
    parser.add_argument("--steps", type=int, default=1_000_000, help="capacity of the rings; frames: a tenth")
    parser.add_argument("--quick", action="store_true", help="100,000 steps and 10 rounds: a smoke test")
    parser.add_argument("--no-peers", action="store_true", help="only this library and the limit")
    parser.add_argument("--no-limit", action="store_true", help="without the C++ limit loops")
    parser.add_argument("--keep", action="store_true", help="keep the ratios to the limit in benchmarks/limits.json")
    parser.add_argument("--seed", type=int, default=0, help="seed of all inputs")
    parser.add_argument("--out", type=Path, help="JSON file (default: benchmarks/results/replay-<time>.json)")
    parser.add_argument("--figures", type=Path, default=HERE / "figures", help="folder of the plot")
    options = parser.parse_args(arguments)
    if options.quick:
        options.steps, options.rounds = 100_000, 10
    if options.steps < POOL or options.rounds < 1:
        parser.error(f"--steps must be at least {POOL} and --rounds at least 1")
    return options


def contenders(no_peers: bool) -> list[type[Contestant]]:
    """Return this library and the peers that are installed, saying which are not."""
    return [Replaylab, *installed(() if no_peers else PEERS)]


def build(
    kinds: list[type[Contestant]], steps: int, pool: Pool, rng: np.random.Generator
) -> tuple[list[Contestant], dict[str, dict[str, float | None]]]:
    """Fill two buffers of each library; return them and the memory each takes for a step, in bytes."""
    contestants: list[Contestant] = []
    memory: dict[str, dict[str, float | None]] = {"bytes a step, uniform": {}, "bytes a step, prioritized": {}}
    priorities = draw_priorities(rng, steps)
    for kind in kinds:
        for prioritized in (False, True):
            try:
                small = kind(POOL, prioritized)
            except (ValueError, RuntimeError) as error:  # it has no such buffer, or not here
                print(f"{kind.label}: not timed: {error}")
                continue
            small.fill(pool, priorities[:POOL])  # imports, compiles
            if prioritized:
                small.check_priorities()
            del small
            contestant, grown = filled(partial(kind, steps, prioritized), steps * kind.rings, pool, priorities)
            contestant.check()
            memory[f"bytes a step, {'prioritized' if prioritized else 'uniform'}"][kind.label] = grown
            contestants.append(contestant)
        print(f"{kind.label} {kind.version()}: filled", flush=True)
    return contestants, memory


def show_round(number: int, rounds: int) -> None:
    """Say how far the rounds are: one line rewritten on a terminal, now and then a line elsewhere."""
    if sys.stdout.isatty():
        print(f"\rround {number} of {rounds}", end="\n" if number == rounds else "", flush=True)
    elif number % max(1, rounds // 5) == 0:
        print(f"round {number} of {rounds}", flush=True)


class Run:
    """One run: what was asked for, and what has been found so far."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.times: Times = {}
        self.memory: report.Memory = {}
        self.versions = {"python": platform.python_version(), "numpy": np.__version__}
        self.curves: capacity.Curves = {}

    def program(self, source: Path) -> Path | None:
        """Compile a limit, or say why there is none."""
        if self.options.no_limit:
            return None
        program = compile_limit(self.folder, source)
        if program is None:
            print("limit: not timed, for no C++ compiler works here (set CXX, or install g++)")
        return program

    def time(self, rows: Callable[[Limit | None], Any], source: Path, *sizes: int) -> None:
        """Time some rows beside the limit of that source."""
        program = self.program(source)
        rounds = self.options.rounds
        with Limit(program, *sizes) if program else nullcontext() as limit:
            self.times |= run_rounds(rows(limit), rounds, self.options.seed, partial(show_round, rounds=rounds))

    def plain(self) -> None:
        """Time plain rows, uniform and prioritized."""
        rng = np.random.default_rng(self.options.seed)
        pool = Pool.draw(rng, POOL)
        contestants, memory = build(contenders(self.options.no_peers), self.options.steps, pool, rng)
        self.memory |= memory
        self.versions |= {c.label: c.version() for c in contestants}
        self.time(lambda limit: rows_of(contestants, limit, pool), ROWS, self.options.steps)

    def scene(self, part: Scene) -> None:
        """Time a transform."""
        labs = [kind for kind in part.drawers if kind.package == Replaylab.package]
        peers = [] if self.options.no_peers else [kind for kind in part.drawers if kind not in labs]
        steps = part.steps(self.options.steps)
        drawers, memory = scene.build([*labs, *installed(peers)], steps, part.steps(POOL // 4))
        self.memory[f"bytes a step, {part.name}"] = memory
        self.versions |= {d.label: d.version() for d in drawers}
        self.time(lambda limit: part.rows(drawers, limit), part.limit, *part.sizes(steps))

    def capacity(self) -> None:
        """Time draws against capacity, and plot them."""
        kinds = [Replaylab, *installed(() if self.options.no_peers else (Cpprb, Rlox))]
        most = 10 * self.options.steps
        capacities = (
            [c for c in capacity.CAPACITIES if c <= most] if not self.options.quick else capacity.CAPACITIES[:2]
        )
        rounds = min(self.options.rounds, 30)
        program = self.program(ROWS)
        self.curves = capacity.measure(kinds, program, capacities, rounds, self.options.seed, show_ring)
        self.options.figures.mkdir(parents=True, exist_ok=True)
        capacity.draw(self.curves, self.options.figures / "capacity.svg")

    def part(self, name: str) -> None:
        """Run one part and give its memory back."""
        print(f"\n{name}", flush=True)
        if name == "rows":
            self.plain()
        elif name == "capacity":
            self.capacity()
        else:
            self.scene(SCENES[name])
        gc.collect()


def show_ring(label: str, steps: int) -> None:
    """Say how far the curves are."""
    print(f"{label}, {steps:,} steps: timed", flush=True)


def one_thread() -> None:
    """Keep PyTorch to one thread, where it is installed: everybody gets one."""
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, print the table, the targets and what got slower, write the JSON file."""
    options = parse(arguments)
    np.random.seed(options.seed)  # noqa: NPY002  (some peers draw from the global generator)
    one_thread()
    with tempfile.TemporaryDirectory() as folder:
        run = Run(options, Path(folder))
        for name in PARTS:
            if name in options.parts:
                run.part(name)

    settings = {"steps": options.steps, "rounds": options.rounds, "seed": options.seed, "parts": list(options.parts)}
    result = report.as_json(run.times, settings, run.versions, run.memory) | {"capacity": run.curves}

    processor = harness.machine()["processor"]
    print(f"\n{options.steps:,} steps, {options.rounds} rounds, {processor}\n")
    print(report.table(run.times, run.memory))
    print("\n* the fastest peer, or the smallest")
    print("\n".join(capacity.lines(run.curves)))
    print("\ntargets")
    print("\n".join(report.target_lines(run.times)))
    print("\nbeside the ratios in benchmarks/limits.json")
    ratios = guard.ratios_to_limit(run.times)
    conditions = {"processor": processor, "steps": options.steps, "peers": not options.no_peers}
    print("\n".join(f"  {line}" for line in guard.compare(ratios, conditions)) + "\n")
    if options.keep:
        guard.keep(ratios, conditions)

    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    out: Path = options.out or HERE / "results" / f"replay-{stamp}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    harness.write_json(out, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
