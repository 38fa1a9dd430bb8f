"""Part "graphs": no synchronization, replays of a CUDA graph, and compiled functions."""

from typing import Any

import torch

from benchmarks.device_check.figures import Figures
from benchmarks.device_check.sizes import OBS, Sizes, chained, filled
from benchmarks.device_check.timing import captured, eager_us, graph_us
from replaylab.replay import Prioritized, Sampler, Uniform

SAMPLERS: tuple[Sampler, ...] = (Prioritized(0.6, 0.4), Uniform())


def run(figures: Figures, sizes: Sizes) -> None:
    """Measure all of it."""
    if figures.on_gpu:
        figures.attempt("synchronization", lambda: _synchronization(figures, sizes))
        figures.attempt("graph replays", lambda: _replays(figures, sizes))
    else:
        figures.skip("synchronization and graph replays", "they need a GPU")
    figures.attempt("torch.compile", lambda: _compiled(figures, sizes))


class Step:
    """A step of training: add two time steps, draw, compute a loss, learn, and feed back.

    Args:
        sampler: Of the replay.
        sizes: Of the check.
        device: Where it runs.
    """

    def __init__(self, sampler: Sampler, sizes: Sizes, device: torch.device) -> None:
        self.rows = sizes.batches[0]
        self.replay = filled(sizes.capacity // 4, sizes.envs, device, sampler, 3, next_obs="derived")
        self.steps = chained(device, sizes.envs, torch.Generator(device).manual_seed(4))
        torch.manual_seed(0)
        self.network = torch.nn.Linear(OBS, 1).to(device)

    def __call__(self) -> dict[str, torch.Tensor]:
        for step in self.steps:
            self.replay.add(**step)
        batch = self.replay.sample(self.rows)
        with torch.no_grad():
            after = self.network(batch.next_obs)[:, 0]
            error = batch.reward + batch.discount * after - self.network(batch.obs)[:, 0]
            # a step of gradient descent by hand, so that every operation is captured and compiled
            gradient = (batch.weight * error) @ batch.obs / self.rows
            self.network.weight.add_(0.01 * gradient)
        applied = self.replay.update_priorities(batch.id, error)
        return {"id": batch.id, "obs": batch.obs, "weight": batch.weight, "error": error, "applied": applied}

    def state(self) -> dict[str, torch.Tensor]:
        """Return everything that steps change."""
        return {**dict(self.replay.named_buffers()), "weight": self.network.weight}


def _add_differences(figures: Figures, what: str, first: Step, second: Step) -> None:
    """Note how many tensors of two steps differ, which must be none."""
    other = second.state()
    names = [name for name, tensor in first.state().items() if not torch.equal(tensor, other[name])]
    figures.add(what, len(names), "", "0", not names, note=", ".join(names), anywhere=True)


def _synchronization(figures: Figures, sizes: Sizes) -> None:
    for sampler in SAMPLERS:
        step = Step(sampler, sizes, figures.device)
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(sizes.steps):
                step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        name = type(sampler).__name__
        figures.add(f"{name}: steps under set_sync_debug_mode('error')", sizes.steps, "", "no synchronization", True)


def _replays(figures: Figures, sizes: Sizes) -> None:
    for sampler in SAMPLERS:
        eager, graphed = (Step(sampler, sizes, figures.device) for _ in range(2))
        graph = captured(graphed)
        for _ in range(3):  # as before the capture
            eager()
        for number in range(sizes.steps):
            for step in (eager, graphed):
                step.steps[0]["reward"].fill_(float(number % 7))
            graph.replay()
            eager()
        name = type(sampler).__name__
        _add_differences(figures, f"{name}: tensors that differ after {sizes.steps:,} replays", eager, graphed)
        how = (figures.device, sizes)
        took = graph_us(graphed, *how)
        figures.add(f"{name}: 2 adds + sample({eager.rows}) + loss + update, graph", took, "µs")
        figures.add(f"{name}: the same, called from Python", eager_us(eager, *how), "µs")


def _compiled(figures: Figures, sizes: Sizes) -> None:
    """Compile a step, with CUDA graphs on a GPU; on a CPU only its graph is made, which takes seconds."""
    counters = torch._dynamo.utils.counters
    options: dict[str, Any] = {"mode": "reduce-overhead"} if figures.on_gpu else {"backend": "aot_eager"}
    how = "reduce-overhead" if figures.on_gpu else "aot_eager"
    for sampler in SAMPLERS:
        torch.compiler.reset()
        counters.clear()
        step, eager = (Step(sampler, sizes, figures.device) for _ in range(2))
        compiled = torch.compile(step.__call__, fullgraph=True, dynamic=False, **options)
        for _ in range(3):
            _marked(figures)
            compiled()
        graphs = counters["stats"]["unique_graphs"]
        for _ in range(sizes.steps):
            _marked(figures)
            compiled()
        for _ in range(3 + sizes.steps):
            eager()
        name = f"torch.compile, {how}, {type(sampler).__name__}"
        breaks = sum(counters["graph_break"].values())
        figures.add(f"{name}: graph breaks", breaks, "", "0", breaks == 0, anywhere=True)
        again = counters["stats"]["unique_graphs"] - graphs
        figures.add(f"{name}: recompilations", again, "", "0", again == 0, anywhere=True)
        skips = counters["inductor"]["cudagraph_skips"]
        if figures.on_gpu:
            figures.add(f"{name}: graphs that were skipped", skips, "", "0", skips == 0)
            took = eager_us(lambda: (_marked(figures), compiled()), figures.device, sizes)  # noqa: B023
            figures.add(f"{name}: a step, called from Python", took, "µs")
        else:  # on a GPU the compiled learner's sums differ in the last digits
            _add_differences(figures, f"{name}: tensors that differ from eager", step, eager)


def _marked(figures: Figures) -> None:
    if figures.on_gpu:
        torch.compiler.cudagraph_mark_step_begin()
