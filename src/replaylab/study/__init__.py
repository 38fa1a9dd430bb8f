"""Studies: compare replay strategies over environments and seeds, and report with statistics.

    from replaylab.study import Study

    study = Study.from_toml("quick")   # a shipped study, or the path of your own file
    study.run()                        # runs what is missing
    print(study.report())              # results/quick/report.html

Needs the lab extra: ``pip install "replaylab[lab]"``.
"""

from replaylab.errors import MissingExtraError

try:
    from replaylab.study.spec import Spec
    from replaylab.study.study import Study, Summary
except ModuleNotFoundError as error:
    if (error.name or "").startswith("replaylab"):
        raise
    raise MissingExtraError(
        f'replaylab.study needs {error.name}, which is not installed. Run: pip install "replaylab[lab]"'
    ) from error

__all__ = ["Spec", "Study", "Summary"]
