"""Part "kernels": draws, feedback and adds of a prioritized replay, beside copies of the same bytes."""

import itertools

import torch

from benchmarks.device_check.figures import Figures
from benchmarks.device_check.sizes import Sizes, chained, filled, filled_rows, repeated_ids
from benchmarks.device_check.timing import GRAPH_CALLS, eager_us, graph_us, host_us
from replaylab.replay import Field, Prioritized
from replaylab.torch import DeviceReplay
from replaylab.torch.options import kernels_run

SAMPLER = Prioritized(0.6, 0.4)


def run(figures: Figures, sizes: Sizes) -> None:
    """Measure all of it."""
    if not kernels_run(DeviceReplay(8, {"x": Field()}, device=figures.device).options):
        figures.skip("Triton kernels", "they do not run here, so PyTorch's operations are measured")
    if figures.on_gpu:
        figures.attempt("CPU and GPU draw the same", lambda: _same_draws(figures, sizes))
    else:
        figures.skip("CPU and GPU draw the same", "it needs a GPU")
    figures.attempt("draws and updates", lambda: _draws_and_updates(figures, sizes))
    figures.attempt("draws from Python", lambda: _from_python(figures, sizes))
    figures.attempt("adds", lambda: _adds(figures, sizes))


def _same_draws(figures: Figures, sizes: Sizes) -> None:
    """Draw and feed back on the CPU and on the device, and compare the ids and leaves bit for bit."""
    generator = torch.Generator().manual_seed(2)
    options = {"sampler": SAMPLER, "seed": 3}
    replays = [DeviceReplay(2**16, {"x": Field()}, device=place, **options) for place in ("cpu", figures.device)]
    values = torch.rand(2**16, generator=generator)  # made on the CPU: other devices have other random numbers
    for replay in replays:
        replay.update_priorities(replay.extend(x=values), values)
    equal = True
    for _ in range(sizes.steps):
        drawn = [replay.sample(1_000) for replay in replays]
        errors = torch.randn(1_000, generator=generator)
        for replay, batch in zip(replays, drawn, strict=True):
            replay.update_priorities(batch.id, errors)
        equal = equal and torch.equal(drawn[0].id, drawn[1].id.cpu())
    sums = [replay.parts.draws.tree.sums.cpu() for replay in replays]
    equal = equal and torch.equal(*sums)
    drawn_rows = 1_000 * sizes.steps
    figures.add("ids drawn on CPU and GPU, and all sums", drawn_rows, "ids", "equal bit for bit", equal, anywhere=True)


def _draws_and_updates(figures: Figures, sizes: Sizes) -> None:
    replay = filled_rows(sizes.capacity, figures.device, SAMPLER)
    _draws(figures, sizes, replay)
    _updates(figures, sizes, replay)


def _draws(figures: Figures, sizes: Sizes, replay: DeviceReplay) -> None:
    device = figures.device
    table = torch.rand(sizes.capacity, 43, device=device)
    for place, rows in enumerate(sizes.batches):
        fresh = torch.randint(sizes.capacity, (GRAPH_CALLS, rows), device=device)
        turns = itertools.cycle(fresh)
        how = (device, sizes)
        limit = graph_us(
            lambda turns=turns: torch.index_select(table, 0, next(turns)),
            *how,
            between=lambda fresh=fresh: fresh.random_(sizes.capacity),  # as draws, too, are always new
        )
        figures.add(f"index_select of {rows:,} rows, {figures.how}", limit, "µs")
        took = graph_us(lambda rows=rows: replay.sample(rows), *how)
        target, reached = "≤ limit + 8 µs", took <= limit + 8
        if place == 2:
            target, reached = "≤ 4 × limit, aiming at 2 ×", took <= 4 * limit
        note = f"{took / limit:.1f} × limit"
        figures.add(
            f"prioritized draw + gather of {rows:,} rows, {figures.how}", took, "µs", target, reached, note=note
        )


def _from_python(figures: Figures, sizes: Sizes) -> None:
    rows, device = sizes.batches[0], figures.device
    for n_steps in (1, 3):
        replay = filled(sizes.capacity, sizes.envs, device, SAMPLER, n_steps, next_obs="derived")
        took = host_us(lambda replay=replay: replay.sample(rows), device, sizes)
        target = "≤ 35 µs" if n_steps == 1 else ""
        name = f"prioritized sample of {rows:,} rows, n = {n_steps}, derived"
        figures.add(f"{name}, until the call returns", took, "µs", target, took <= 35 if target else None)
        took = eager_us(lambda replay=replay: replay.sample(rows), device, sizes)
        figures.add(f"{name}, called from Python", took, "µs")
        took = graph_us(lambda replay=replay: replay.sample(rows), device, sizes)
        figures.add(f"{name}, {figures.how}", took, "µs")
        draw = replay.captured(rows)
        took = host_us(draw, device, sizes)
        figures.add(f"{name}, captured(), until the call returns", took, "µs")


def _updates(figures: Figures, sizes: Sizes, replay: DeviceReplay) -> None:
    device, took = figures.device, []
    large = filled_rows(sizes.large, device, SAMPLER, 1)
    for buffer in (replay, large):
        ids = repeated_ids(buffer, sizes.updated)
        turns = itertools.cycle(torch.randn(2, sizes.updated, device=device))  # an equal update changes nothing
        took.append(graph_us(lambda: buffer.update_priorities(ids, next(turns)), device, sizes))  # noqa: B023
    name = f"update of {sizes.updated:,} ids, a quarter repeated, {figures.how}"
    figures.add(name, took[0], "µs", "≤ 15 µs", took[0] <= 15)
    ratio = took[1] / took[0]
    figures.add(f"the same in {sizes.large:,} rows", ratio, "×", "≤ 1.5 ×", ratio <= 1.5, note=f"{took[1]:.1f} µs")


def _adds(figures: Figures, sizes: Sizes) -> None:
    device, how = figures.device, (figures.device, sizes)
    generator = torch.Generator(device).manual_seed(3)
    turns = itertools.cycle(chained(device, sizes.updated, generator))
    source = torch.rand(sizes.updated, 43, device=device)
    goal = torch.empty_like(source)
    copied = graph_us(lambda: goal.copy_(source), *how)
    figures.add(f"copy_ of {sizes.updated:,} rows, {figures.how}", copied, "µs")
    for next_obs in ("stored", "derived"):
        capacity = max(sizes.capacity, 4 * sizes.updated)
        replay = filled(capacity, sizes.updated, device, SAMPLER, next_obs=next_obs)
        took = graph_us(lambda replay=replay: replay.add(**next(turns)), *how)
        name, note = f"add of {sizes.updated:,} rows, next_obs={next_obs}", f"{took / copied:.1f} × copy_"
        figures.add(f"{name}, {figures.how}", took, "µs", note=note)
        took = eager_us(lambda replay=replay: replay.add(**next(turns)), *how)
        figures.add(f"{name}, called from Python", took, "µs")
