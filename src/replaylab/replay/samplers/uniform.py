"""Uniform sampling: every stored step equally often, in shuffled epochs, or with the newest step added."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from replaylab import _core
from replaylab.arguments import flag, one_of, option
from replaylab.errors import ConfigError
from replaylab.replay.samplers.sampler import Sampler


@dataclass(frozen=True)
class Uniform(Sampler):
    """Every stored step with equal probability.

    Sampling probability: P(i) = 1/N. Source: Lin 1992; Mnih et al. 2015.

    Attributes:
        replace: Whether a step may come twice in a batch. If not, a batch needs B ≤ N, and its rows come in random
            order; with `Sequence` no sequence comes twice, all of N stored ones alike, whatever their length (otherwise
            a sequence has the chance of its steps together). Default: True.
        stratified: Whether a batch is one draw from each of B equal segments of the buffer's places, as those of
            `Prioritized` are: draws equal those of ``Prioritized(alpha=0)``. If not, rows are independent. Not with
            ``replace=False``. Default: False.
    """

    replace: bool = option(flag, True)
    stratified: bool = option(flag, False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stratified and not self.replace:
            raise ConfigError(
                "`stratified` of Uniform must be False with replace=False, but got True; leave one of them out"
            )

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""
        with_replacement = "stratified" if self.stratified else "uniform"
        return _core.SamplerConfig(with_replacement if self.replace else "distinct")


@dataclass(frozen=True)
class Combined(Sampler):
    """Uniform draws and always the newest step, as the batch's last row.

    Sampling probability of one row: ``P(i) = (U/N + [i is newest]) / (U + 1)`` with U uniform draws; U = B for mode
    "plus" (B + 1 rows), U = B − 1 for mode "replace" (B rows). With `distinct` the newest has ``P = 1 / (U + 1)`` and
    every other step ``P = U / (N − 1) / (U + 1)``. Source: Zhang & Sutton 2017.

    Attributes:
        mode: "plus" or "replace". Default: "plus".
        distinct: Whether the U draws are of different steps, none the newest; a batch then needs U + 1 ≤ N, and
            `Sequence` is refused. Default: False.
    """

    mode: Literal["plus", "replace"] = option(one_of("plus", "replace"), "plus")
    distinct: bool = option(flag, False)

    distribution_needs_batch_size: ClassVar[bool] = True
    needs_order: ClassVar[bool] = True
    core_kind: ClassVar[str] = "combined"

    @property
    def draws_sequences(self) -> bool:  # type: ignore[override]
        """Unless its steps are distinct."""
        return not self.distinct

    def rows(self, batch_size: int) -> int:
        """Return B, and one more for mode "plus"."""
        return batch_size + (self.mode == "plus")

    def core_options(self) -> dict[str, float]:
        """Return the options of its kind in the compiled core."""
        return {"replace": self.mode == "replace", "distinct": self.distinct}


@dataclass(frozen=True)
class ShuffledEpochs(Sampler):
    """Every step once an epoch, in random order: no repetition until all have come.

    An epoch is made of the steps stored when it begins; those overwritten meanwhile are passed over, those
    stored meanwhile wait for the next. With `Sequence` it is made of sequences, each passed over once the step that was
    its newest is overwritten. Sampling probability of one row, with M steps of the epoch still due:
    ``P(i) = (min(B, M)·[i is due]/M + max(B − M, 0)/N) / B``. Source: Fujita 2025.
    """

    distribution_needs_batch_size: ClassVar[bool] = True
    core_kind: ClassVar[str] = "epochs"
