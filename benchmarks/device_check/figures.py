"""Measured figures with their targets, as a table and as JSON."""

import json
import platform
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One measurement.

    Attributes:
        part: The part of the check.
        what: What was measured.
        value: In `unit`; None: it was skipped or has failed, for the reason in `note`.
        unit: Of `value`.
        target: What it should be, "" if nothing is asked.
        reached: Whether it is; None: unknown here, as times are on a CPU.
        note: Anything else.
    """

    part: str
    what: str
    value: float | None
    unit: str
    target: str
    reached: bool | None
    note: str


@dataclass
class Figures:
    """The measurements of a run.

    Attributes:
        device: Where it ran.
        figures: The figures.
        skipped: What was left out, and why.
        part: The part that runs now.
        deadline: Moment of `time.perf_counter` after which nothing of it begins.
    """

    device: Any
    figures: list[Figure] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    part: str = ""
    deadline: float = float("inf")

    @property
    def on_gpu(self) -> bool:
        return bool(self.device.type == "cuda")

    @property
    def how(self) -> str:
        """The way in which `graph_us` times a call."""
        return "graph" if self.on_gpu else "eager"

    def about(self) -> dict[str, Any]:
        """Return the device with its driver, clocks and power, and versions."""
        import numpy as np
        import torch

        about: dict[str, Any] = {"device": platform.processor() or "CPU"}
        if self.on_gpu:
            about = {"device": torch.cuda.get_device_name(self.device)}
            names = ("driver_version", "clocks.sm", "clocks.mem", "power.draw", "power.limit", "temperature.gpu")
            command = [
                "nvidia-smi",
                f"--query-gpu={','.join(names)}",
                "--format=csv,noheader",
                "-i",
                str(self.device.index),
            ]
            try:
                ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
                about |= zip(names, ran.stdout.strip().split(", "), strict=True)
            except (OSError, subprocess.SubprocessError, ValueError) as error:
                about["nvidia-smi"] = f"{type(error).__name__}: {error}"
        versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
        return about | versions | {"triton": version_of("triton")}

    def add(
        self,
        what: str,
        value: float,
        unit: str,
        target: str = "",
        reached: bool | None = None,
        *,
        note: str = "",
        anywhere: bool = False,
    ) -> float:
        """Note a figure and return it; targets of time count on a GPU only, others `anywhere`."""
        if not (self.on_gpu or anywhere):
            reached = None
        self.figures.append(Figure(self.part, what, float(value), unit, target, reached, note))
        print(line_of(self.figures[-1]), flush=True)
        return value

    def skip(self, what: str, why: str) -> None:
        """Note that something is left out."""
        self.skipped[f"{self.part}: {what}"] = why
        print(f"skipped: {what} ({why})", flush=True)

    def attempt(self, what: str, measure: Callable[[], None]) -> None:
        """Measure something whose failure does not stop the rest; skip it after the part's deadline."""
        if time.perf_counter() > self.deadline:
            self.skip(what, "the part's time is over")
            return
        try:
            measure()
        except ImportError as error:
            self.skip(what, f"{error}".splitlines()[0])
        except Exception as error:  # of any kind, since it may come from a peer or a driver
            note = f"{type(error).__name__}: {error}".splitlines()[0]
            self.figures.append(Figure(self.part, what, None, "", "", False, f"failed: {note}"))
            print(line_of(self.figures[-1]), flush=True)

    def write(self, path: Path, arguments: dict[str, Any]) -> None:
        """Write all of it as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        figures = [asdict(figure) for figure in self.figures]
        result = {**self.about(), "arguments": arguments, "figures": figures, "skipped": self.skipped}
        path.write_text(json.dumps(result, indent=1) + "\n")


def version_of(package: str) -> str | None:
    """Return the version of an installed package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def line_of(figure: Figure) -> str:
    """Return a figure as a line of the table."""
    value = "" if figure.value is None else f"{figure.value:,.2f} {figure.unit}".rstrip()
    verdict = {True: "reached", False: "MISSED", None: ""}[figure.reached]
    return f"{figure.what:<66}{value:>18}  {figure.target:<34}{verdict:<9}{figure.note}".rstrip()


def table(figures: Figures) -> str:
    """Return everything as text."""
    lines = [line_of(figure) for figure in figures.figures if figure.target or figure.reached is False]
    skipped = [f"skipped: {what} ({why})" for what, why in figures.skipped.items()]
    about = ", ".join(f"{name} {value}" for name, value in figures.about().items())
    return "\n".join(["", about, "against the targets:", *lines, *skipped])
