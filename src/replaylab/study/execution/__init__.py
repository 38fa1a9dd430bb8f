"""Running a study: the run and its estimate, executors that train chunks, and reporters of progress."""

from replaylab.study.execution.estimate import CALIBRATION_SECONDS, Estimate, estimate_study
from replaylab.study.execution.executor import Executor
from replaylab.study.execution.local.in_process import InProcess
from replaylab.study.execution.local.processes import LocalProcesses, chosen_executor
from replaylab.study.execution.reporter import Reporter
from replaylab.study.execution.study_run import RunSummary, run_study

__all__ = [
    "CALIBRATION_SECONDS",
    "Estimate",
    "Executor",
    "InProcess",
    "LocalProcesses",
    "Reporter",
    "RunSummary",
    "chosen_executor",
    "estimate_study",
    "run_study",
]
