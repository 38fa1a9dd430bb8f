"""Part "host": a `ReplayBuffer` in the host's memory whose batches are copied to the device, beside `DeviceReplay`."""

from benchmarks.device_check.figures import Figures
from benchmarks.device_check.sizes import Sizes, filled, filled_host
from benchmarks.device_check.timing import eager_us, graph_us
from replaylab.replay import Prioritized


def run(figures: Figures, sizes: Sizes) -> None:
    """Measure all of it."""
    device = figures.device
    host = filled_host(sizes.capacity)
    replay = filled(sizes.capacity, sizes.envs, device, Prioritized(0.6, 0.4), next_obs="derived")
    name = str(device)
    for rows, times in ((sizes.batches[0], 8), (sizes.batches[2], 50)):
        how = (device, sizes)
        direct = eager_us(lambda rows=rows: host.sample(rows).torch(name), *how)
        figures.add(f"ReplayBuffer: sample({rows:,}).torch", direct, "µs")
        graph = graph_us(lambda rows=rows: replay.sample(rows), *how)
        ratio = direct / graph
        what = f"DeviceReplay.sample({rows:,}), {figures.how}, faster by"
        figures.add(what, ratio, "×", f"≥ {times} ×", ratio >= times, note=f"{graph:.1f} µs")
        for prefetch in (0, 2):
            batches = host.batches(rows, prefetch=prefetch, device=name)
            took = eager_us(lambda batches=batches: next(batches), *how)
            batches.close()
            target, reached = ("≤ sample().torch", took <= direct) if prefetch else ("", None)
            figures.add(f"ReplayBuffer: batches({rows:,}, prefetch={prefetch})", took, "µs", target, reached)
