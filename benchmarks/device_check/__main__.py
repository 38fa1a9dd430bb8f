"""Check `DeviceReplay` on a GPU against its targets.

    make device-check ARGS="kernels peers graphs"
    make device-check ARGS="pong --strategy prioritized --minutes 6" WHEELS=some/folder

Without a GPU it runs small on the CPU: then times are not compared with targets. All parts together end after
`--seconds`, whatever happens: what was measured until then is written.
"""

import argparse
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from benchmarks.device_check import graphs, host, kernels, peers, pong
from benchmarks.device_check.figures import Figures, table
from benchmarks.device_check.sizes import FULL, SMALL, Sizes

PARTS = ("kernels", "peers", "host", "graphs", "pong")


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    parser = argparse.ArgumentParser(prog="make device-check", description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all unless given")
    parser.add_argument("--parts", dest="more", nargs="+", default=[], metavar="PART", help="the same")
    parser.add_argument("--seconds", type=float, default=480.0, help="when all ends")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="where to run")
    parser.add_argument("--small", action="store_true", help="small sizes; on a CPU always")
    parser.add_argument(
        "--strategy", choices=("uniform", "prioritized"), default="prioritized", help="of the part pong"
    )
    parser.add_argument("--minutes", type=float, default=6.0, help="how long the part pong learns; small: seconds")
    parser.add_argument(
        "--wheels", type=Path, default=None, help="a folder with wheels and FastTD3's fast_td3_utils.py"
    )
    parser.add_argument("--out", type=Path, default=Path("build/device-check/figures.json"), help="where to write JSON")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts, and return 1 if a target was missed or something failed."""
    options = parser().parse_args(arguments)
    chosen = [*options.parts, *options.more] or list(PARTS)
    unknown = sorted(set(chosen) - set(PARTS))
    if unknown:
        parser().error(f"parts are {', '.join(PARTS)}, but got {', '.join(unknown)}")
    figures = Figures(torch.empty(0, device=options.device).device)
    small = options.small or not figures.on_gpu
    sizes: Sizes = SMALL if small else FULL
    if not figures.on_gpu:
        torch.set_num_threads(1)  # of small tensors threads only wait for each other
    game = pong.Game(options.strategy, options.minutes)
    if small:
        game = pong.Game(options.strategy, options.minutes / 60, 10_000, 8, 64, 4, 1_000, 2, 20)
    parts: dict[str, Callable[[], None]] = {
        "kernels": lambda: kernels.run(figures, sizes),
        "peers": lambda: peers.run(figures, sizes, options.wheels),
        "host": lambda: host.run(figures, sizes),
        "graphs": lambda: graphs.run(figures, sizes),
        "pong": lambda: pong.run(figures, game),
    }
    arguments_used = {key: str(value) for key, value in vars(options).items()}

    def report() -> None:
        figures.write(options.out, arguments_used)
        print(table(figures))
        print(options.out, flush=True)

    def give_up() -> None:
        figures.skip("the rest", f"{options.seconds:g} seconds are over")
        report()
        os._exit(1)  # a part may wait for the device

    started = time.perf_counter()
    watchdog = threading.Timer(options.seconds, give_up)
    watchdog.daemon = True
    watchdog.start()
    for place, name in enumerate(chosen):
        print(f"==> {name}", flush=True)
        figures.part, began = name, time.perf_counter()
        left = options.seconds - (began - started)
        figures.deadline = began + left / (len(chosen) - place)
        figures.attempt(name, parts[name])
        figures.add("seconds of this part", time.perf_counter() - began, "s")
        figures.write(options.out, arguments_used)
    watchdog.cancel()
    report()
    return int(any(figure.reached is False for figure in figures.figures))


if __name__ == "__main__":
    raise SystemExit(main())
