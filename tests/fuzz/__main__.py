"""Mutate files and read them, in worker processes, so that one that dies or hangs is found and its file kept.

python -m tests.fuzz                            for 60 seconds
python -m tests.fuzz --mutations 1000000        so many, however long it takes
python -m tests.fuzz --target storage --case 7  one case, in this process
"""

import argparse
import json
import mmap
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np

from . import targets

PATIENCE = 20.0  # seconds: far above what any case takes on a busy machine
KEPT = Path("build/fuzz")
PROGRAM = [sys.executable, "-m", "tests.fuzz"]
SHARES = {"storage": 3, "snapshots": 1}  # about as much time for each
EACH = 2000  # cases of a worker before another takes over


def work(name, seed, start, stop, folder):
    """Do cases; what is wrong is written down, and a number in shared memory says which case is on."""
    import resource
    import warnings

    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33))
    target = targets.TARGETS[name](seed)
    with (Path(folder) / "at").open("r+b") as file, (Path(folder) / "wrong").open("a") as wrong:
        at = np.frombuffer(mmap.mmap(file.fileno(), 16), np.int64)
        at[1] = 1  # has begun
        for number in range(start, stop):
            at[0] = number
            try:
                target.run(number)
            except Exception:
                wrong.write(json.dumps([number, traceback.format_exc()]) + "\n")
                wrong.flush()
        at[0] = stop
    target.close()


class Worker:
    """A process that does a stretch of cases, and continues after one that killed it."""

    def __init__(self, name, seed, start, stop):
        self.name, self.seed, self.stop = name, seed, stop
        self.folder = tempfile.TemporaryDirectory()
        self.wrong = []
        self.begin(start)

    def begin(self, start):
        """Start, or start again."""
        self.put(start)
        self.start, self.seen, self.since = start, start, time.monotonic()
        asked = ["--work", self.name, str(self.seed), str(start), str(self.stop), self.folder.name]
        self.process = subprocess.Popen([*PROGRAM, *asked], stderr=subprocess.PIPE)

    def put(self, number):
        """Say which case is on, and that it has not begun."""
        (Path(self.folder.name) / "at").write_bytes(number.to_bytes(16, "little"))

    def at(self):
        """Return the case that is on, and whether the process has come so far as to begin."""
        number, begun = np.fromfile(Path(self.folder.name) / "at", np.int64).tolist()
        return number, begun == 1

    def over(self):
        """Return whether it has ended; a case that hangs or kills it is noted, and the others continue."""
        code, (at, begun) = self.process.poll(), self.at()
        if at != self.seen or not begun:
            self.seen, self.since = at, time.monotonic()
        if code is None and time.monotonic() - self.since > PATIENCE:
            self.process.kill()
            self.process.wait()
            self.wrong.append((at, f"hangs for {PATIENCE:.0f} seconds"))
        elif code is None:
            return False
        elif code != 0:
            said = self.process.stderr.read().decode(errors="replace")[-2000:]
            self.wrong.append((at, f"ends with {code}: {said}"))
        else:
            return True
        if at + 1 >= self.stop:
            return True
        self.begin(at + 1)
        return False

    def finish(self):
        """End it; return how many cases it did, and what went wrong."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stderr.close()
        file = Path(self.folder.name) / "wrong"
        reported = [tuple(json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []
        done = self.at()[0]
        self.folder.cleanup()
        return done, self.wrong + reported


def fuzz(names, seed, mutations, seconds, workers):
    """Do cases of all targets in turn; return how many were done, and (target, case, what) of those that went wrong."""
    until = time.monotonic() + seconds
    done, wrong, running = dict.fromkeys(names, 0), [], []
    ahead = dict.fromkeys(names, 0)
    weights = {name: SHARES.get(name, 1) for name in names}
    share = {name: -(-mutations * weight // sum(weights.values())) for name, weight in weights.items()}
    while True:
        for worker in [worker for worker in running if worker.over() or time.monotonic() > until]:
            running.remove(worker)
            last, failures = worker.finish()
            done[worker.name] += last - worker.first
            wrong += [(worker.name, *failure) for failure in failures]
        for name in sorted(names, key=lambda name: ahead[name] / weights[name]):
            if len(running) < workers and ahead[name] < share[name] and time.monotonic() < until:
                stop = min(ahead[name] + EACH, share[name])
                running.append(Worker(name, seed, ahead[name], stop))
                running[-1].first, ahead[name] = ahead[name], stop
        if not running:
            return done, wrong
        time.sleep(0.05)


def keep(name, seed, number):
    """Write the files of a case beside the corpus, and return where."""
    KEPT.mkdir(parents=True, exist_ok=True)
    target = targets.TARGETS[name](seed)
    kind = "snapshot" if name == "snapshots" else name
    world = target.random(number)[1].split(".")[1]
    file = KEPT / f"{kind}.{world}.{seed}-{number}.zip"
    targets.pack(file, target.unchanged(number))
    target.close()
    return file


def main():
    """Run what the command line asks for; exit code 1 if anything went wrong."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--target", choices=sorted(targets.TARGETS), help="one of them alone")
    parser.add_argument("--mutations", type=int, help="how many, in all; default: as many as the time allows")
    parser.add_argument("--seconds", type=float, help="default: 60, or without end if --mutations says how many")
    parser.add_argument("--seed", type=int, default=0, help="of the cases; each seed has others")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes at a time")
    parser.add_argument("--case", type=int, help="do this one in this process, and keep its files")
    parser.add_argument("--make-corpus", action="store_true", help="write the corpus again")
    asked = parser.parse_args()
    names = [asked.target] if asked.target else sorted(targets.TARGETS)
    if asked.make_corpus:
        return targets.make_corpus()
    if asked.case is not None:
        print(keep(names[0], asked.seed, asked.case), flush=True)
        return targets.TARGETS[names[0]](asked.seed).run(asked.case)
    seconds = asked.seconds or (60 if asked.mutations is None else 1e9)
    begun = time.monotonic()
    done, wrong = fuzz(names, asked.seed, asked.mutations or 10**12, seconds, asked.workers)
    for name, number, what in wrong[:20]:
        print(f"{name}, case {number} (seed {asked.seed}), kept as {keep(name, asked.seed, number)}:\n{what}")
    said = ", ".join(f"{count:,} of {name}" for name, count in done.items())
    print(f"{sum(done.values()):,} mutations ({said}) in {time.monotonic() - begun:.0f} s: {len(wrong)} went wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        name, seed, start, stop, folder = sys.argv[2:]
        sys.exit(work(name, int(seed), int(start), int(stop), folder))
    sys.exit(main())
