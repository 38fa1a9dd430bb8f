"""The comparison of `make golden`, and its scene; the complete recording takes minutes, so that part is run by hand."""

import re
from pathlib import Path

import golden
import numpy as np
from golden.collect import samplers
from golden.compare import declared_changes, differences
from golden.scene import World, drawn

from replaylab import replay, research

BASE = {"draws/A": np.array([1, 2]), "signatures/m.Old.call": np.asarray("(x)"), "rows/x": np.array([np.nan, 1.0])}


def test_equal_values_pass():
    assert differences(BASE, dict(BASE), {}) == []


def test_what_differs_is_new_or_is_gone_is_listed():
    head = {"draws/A": np.array([1, 3]), "rows/x": BASE["rows/x"], "rows/y": np.array([1.0])}
    reported = differences(BASE, head, {})
    assert [line.split(": ")[0] for line in reported] == ["draws/A", "rows/y", "signatures/m.Old.call"]


def test_a_renaming_covers_members_but_no_longer_names():
    head = {name.replace("m.Old", "m.New"): value for name, value in BASE.items()}
    assert differences(BASE, head, {"renamed": {"signatures/m.Old": "signatures/m.New"}}) == []
    assert differences(BASE, head, {"renamed": {"signatures/m.Ol": "signatures/m.New"}}) != []


def test_declared_changes_pass_and_others_do_not():
    head = BASE | {"draws/A": np.array([0]), "rows/x": np.array([0.0, 1.0])}
    changes = {"change": [{"name": "draws/*", "reason": "drawn in another order"}]}
    assert [line.split(": ")[0] for line in differences(BASE, head, changes)] == ["rows/x"]


def test_every_declared_change_has_a_reason():
    assert all(change["name"] and change["reason"] for change in declared_changes().get("change", []))


def test_recording_uses_nothing_of_the_tests():
    files = sorted(Path(golden.__file__).parent.glob("*.py"))
    assert files
    assert not [file.name for file in files if re.search(r"^\s*(from|import) tests\b", file.read_text(), re.MULTILINE)]


def test_every_public_sampler_is_recorded():
    exported = {getattr(package, name) for package in (replay, research) for name in package.__all__}
    public = {kind for kind in exported if isinstance(kind, type) and issubclass(kind, replay.Sampler)}
    recorded = {type(sampler) for sampler in samplers().values()}
    bases = {replay.Sampler, replay.CustomSampler, replay.TopScores}
    # `tapes` records the first; the other needs buffers of one environment.
    others = {research.Tape, research.ByStepsToEnd}
    assert public - recorded - bases == others


def test_a_world_repeats_and_another_differs():
    first, again, other = (drawn(World(np.random.default_rng(seed)), 10) for seed in (1, 1, 2))
    assert first == again != other
