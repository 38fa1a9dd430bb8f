"""Studies: compare replay strategies over environments and seeds, and report with statistics.

    from replaylab.study import Study

    study = Study.from_toml("quick")   # a shipped study, or the path of a custom file
    study.run()                        # runs what is missing
    print(study.report())              # results/quick/report.html

Needs the lab extra: ``pip install "replaylab[lab]"``.
"""

from importlib.util import find_spec as _find_spec

from replaylab.extras import missing_extra

for _library in ("duckdb", "filelock", "jinja2", "matplotlib", "pyarrow", "pydantic", "rich", "scipy"):
    if _find_spec(_library) is None:
        raise missing_extra("replaylab.study", _library, "lab")

from replaylab.study.execution import Executor, InProcess, LocalProcesses, RunSummary  # noqa: E402
from replaylab.study.spec.spec import Spec  # noqa: E402
from replaylab.study.study import Study  # noqa: E402

__all__ = ["Executor", "InProcess", "LocalProcesses", "RunSummary", "Spec", "Study"]
