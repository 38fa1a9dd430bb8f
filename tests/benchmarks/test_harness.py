"""Turns, ratios and the JSON file that the benchmarks' commands share."""

import json
from functools import partial

from benchmarks import harness


def test_each_round_begins_with_another_contestant(capsys):
    order = []

    def turn(name):
        order.append(name)
        return len(order)

    results = harness.take_turns({name: partial(turn, name) for name in "abc"}, 2, "{} s".format)
    assert order == [*"abc", *"bca"]
    assert results == {"a": [1, 6], "b": [2, 4], "c": [3, 5]}
    assert capsys.readouterr().out.splitlines()[1] == "round 2: a 6 s, b 4 s, c 5 s"


def test_options_are_parsed_and_figures_written(tmp_path):
    parser = harness.parser("Time it.", 7, writes_json=True)
    options = parser.parse_args(["--json", str(tmp_path / "figures.json")])
    harness.write_json(options.json, {"rounds": options.rounds, "ratios": harness.ratios([6.0, 2.0], [3.0, 4.0])})
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert (figures["rounds"], figures["ratios"]) == (7, [2.0, 0.5])
    assert figures["machine"]["processors"] > 0
    harness.write_json(parser.parse_args([]).json, {})
    assert len(list(tmp_path.iterdir())) == 1
