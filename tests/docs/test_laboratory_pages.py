"""Lists on the laboratory's pages are complete, and the commands on all pages are accepted."""

import re
import shlex
import tomllib

import numpy as np
import pytest

from replaylab.commands import main as cli
from replaylab.learners import QLearning
from replaylab.learners.metrics import METRICS, REGISTRY
from replaylab.replay import Uniform
from replaylab.study.catalog import find
from replaylab.study.results.store import SCHEMA
from replaylab.study.spec.components import LEARNERS, SAMPLERS, STRATEGIES
from replaylab.study.spec.spec import Spec
from replaylab.study.spec.study_tables import Overrides
from replaylab.study.spec.toml_model import (
    Budget,
    EvaluationTable,
    LearnerTable,
    LoggingTable,
    MeasuresTable,
    StrategyTable,
    StudyToml,
    Watch,
)
from tests.docs.test_pages import DOCS, PAGES
from tests.learners.calls import train

STUDIES = (DOCS / "laboratory/studies.md").read_text()
FIRST, *CHANGES = map(tomllib.loads, re.findall(r"^```toml\n(.*?)^```$", STUDIES, re.M | re.S))
"""The study of the page, and the tables of the blocks that change it."""
TEXTS = [page.read_text().replace("\\\n", " ") for page in [*PAGES, DOCS.parent / "README.md"]]
COMMAND = re.compile(r"^\$ replaylab (.*?)(?: > \S+)?(?: {2,}#.*)?$", re.M)
COMMANDS = sorted({line for text in TEXTS for line in COMMAND.findall(text)})


def rows_of(text, heading):
    """The names in the first column of the table below a heading."""
    table = text.split(f"{heading}\n", 1)[1].split("\n#", 1)[0]
    return {name for first in re.findall(r"^\| (`.*?) \|", table, re.M) for name in re.findall(r"`(.*?)`", first)}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_accepted(command, monkeypatch):
    """As far as reading them goes: options, parts and shipped studies exist."""

    def read(self):
        if isinstance(self, cli.StudyRun) and not str(self.study).endswith(".toml"):
            find(self.study)
        if isinstance(self, cli.TrainCommand):
            self.chunk()
        return 0

    for kind in (
        cli.StudyNew,
        cli.StudyRun,
        cli.StudyReport,
        cli.TrainCommand,
        cli.WatchCommand,
        cli.ClusterCommand,
    ):
        monkeypatch.setattr(kind, "__call__", read)
    assert cli.main(shlex.split(command)) == 0


def test_there_are_commands_to_read():
    assert len(COMMANDS) >= 10


def test_learners_and_strategies_are_listed():
    section = STUDIES.split("## Learners and strategies\n", 1)[1].split("\n#", 1)[0]
    assert set(LEARNERS) | set(STRATEGIES) - set(SAMPLERS) <= set(re.findall(r"`(\w+)`", section))


def test_every_key_is_listed():
    tables = {
        "budget": Budget,
        "evaluation": EvaluationTable,
        "logging": LoggingTable,
        "measures": MeasuresTable,
        "watch": Watch,
    }
    keys = {f"{table}.{key}" for table, kind in tables.items() for key in kind.model_fields}
    keys |= {
        "learners.NAME",
        "strategies.NAME",
        'env_options."ID"',
        'scores."ID"',
        'equivalence."ID"',
        'reference."ID"',
    }
    written_otherwise = {"learners", "strategies", "env_options", "scores", "equivalence", "reference"}
    keys |= set(StudyToml.model_fields) - set(tables) - written_otherwise
    assert rows_of(STUDIES, "## Keys") == keys
    assert rows_of(STUDIES, "## Overrides of a strategy") - {"[strategies.NAME]"} == set(Overrides.model_fields)


def changed_by(tables):
    """Return the page's study after a block: its tables replace those of the same name, or are added."""
    named = tables.keys() & {"learners", "strategies"}
    return FIRST | tables | {key: FIRST[key] | tables[key] for key in named}


@pytest.mark.parametrize("tables", [{}, *CHANGES], ids=lambda tables: "-".join(tables) or "unchanged")
def test_toml_blocks_are_studies(tables):
    assert Spec.from_table(changed_by(tables)).runs > 0


def test_every_key_has_an_example():
    blocks = [FIRST, *CHANGES]
    assert {key for block in blocks for key in block} == set(StudyToml.model_fields)
    for table in ("budget", "evaluation", "logging", "measures", "watch"):
        keys = {key for block in blocks for key in block.get(table, {})}
        assert keys == set(StudyToml.model_fields[table].annotation.model_fields)
    for table, kind in {"learners": LearnerTable, "strategies": StrategyTable}.items():
        keys = {key for block in blocks for values in block.get(table, {}).values() for key in values}
        assert set(kind.model_fields) - {"factors"} <= keys


def test_columns_are_those_of_the_files():
    section = STUDIES.split("## The rows\n", 1)[1]
    listed = dict(re.findall(r"^\| `(\w+)` \| \w+ \| (.*?) \|$", section, re.M))
    assert list(listed) == SCHEMA.names
    assert listed["step"] == SCHEMA.field("step").metadata[b"meaning"].decode()


def test_metrics_are_those_of_a_run():
    evaluations = {"eval_every": 50, "eval_episodes": 1, "held_out": 2, "value_error": True}
    settings = {"total_steps": 100, "log_every": 50, "visits": True, "trace_every": 1} | evaluations
    learner = QLearning(batch_size=4)
    reported = set()
    metrics = train(
        "FrozenLake-v1", learner, Uniform(), [0], **settings, on_metrics=lambda _, new: reported.update(new)
    )
    recorded = {REGISTRY[name].name for name in np.unique(metrics.columns["metric"])}
    assert recorded == {metric.name for metric in METRICS if metric.when not in ("measures", "listeners")}
    assert reported - recorded == {metric.name for metric in METRICS if metric.when == "listeners"}
