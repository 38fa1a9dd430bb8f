"""Minari's data sets come in and go out as they are."""

import importlib
import re
import sys

import numpy as np
import pytest

minari = pytest.importorskip("minari")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:minari")  # that authors and code are not named

from gymnasium import spaces  # noqa: E402
from minari.data_collector import EpisodeBuffer  # noqa: E402

from replaylab.errors import FieldError, MissingExtraError  # noqa: E402
from replaylab.integrations.minari import create_dataset, episodes  # noqa: E402
from replaylab.replay import Field, ReplayBuffer  # noqa: E402
from tests.same import same  # noqa: E402

OBS = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (8, 8, 3), np.uint8),
        "joints": spaces.Tuple((spaces.Box(-9, 9, (2,), np.float64), spaces.Discrete(5))),
    }
)
ACTION = spaces.Dict({"move": spaces.Box(-1, 1, (2,), np.float32), "grip": spaces.Discrete(2)})


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))


def stacked(space, count):
    drawn = [space.sample() for _ in range(count)]

    def leaves(parts):
        if isinstance(parts[0], dict):
            return {key: leaves([part[key] for part in parts]) for key in parts[0]}
        return (
            tuple(map(leaves, map(list, zip(*parts, strict=True)))) if isinstance(parts[0], tuple) else np.stack(parts)
        )

    return leaves(drawn)


def two_episodes():
    OBS.seed(0), ACTION.seed(1)
    rng = np.random.default_rng(0)
    for number, steps in enumerate((4, 1, 7)):
        ends = np.arange(steps) == steps - 1
        yield {
            "obs": stacked(OBS, steps + 1),
            "action": stacked(ACTION, steps),
            "reward": rng.normal(size=steps),
            "terminated": ends & (number != 1),
            "truncated": ends & (number == 1),
        }


@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
def test_what_goes_out_comes_in_bit_for_bit(data_format):
    buffer = ReplayBuffer.from_episodes(two_episodes(), seed=0)
    spaces_of = {"observation_space": OBS, "action_space": ACTION, "data_format": data_format}
    create_dataset(buffer, "room/lossless-v0", **spaces_of)
    dataset = minari.load_dataset("room/lossless-v0")
    assert (dataset.total_episodes, dataset.total_steps) == (3, 12)
    read = list(episodes(dataset))
    assert all(map(same, read, two_episodes()))
    again = ReplayBuffer.from_episodes(read)
    ids = range(12)
    assert same(again.get(ids), buffer.get(ids))
    first = list(episodes(dataset.iterate_episodes([2])))
    assert same(first[0], read[2])


def test_infos_are_left_out():
    (episode, *_) = two_episodes()
    data_of_minari = {
        "observations": episode["obs"],
        "actions": episode["action"],
        "rewards": episode["reward"],
        "infos": {"n": np.ones(5)},
    }
    held = EpisodeBuffer(**data_of_minari, terminations=episode["terminated"], truncations=episode["truncated"])
    spaces_of = {"observation_space": OBS, "action_space": ACTION, "jpeg_encoding": False}
    dataset = minari.create_dataset_from_buffers("room/infos-v0", [held], **spaces_of)
    (read,) = episodes(dataset)
    assert same(read, episode)


def test_a_field_that_is_missing_is_named():
    with pytest.raises(FieldError, match="needs the fields action, reward, terminated, truncated, next_obs"):
        create_dataset(ReplayBuffer(9, {"obs": Field()}), "none-v0")
    with pytest.raises(FieldError, match="must be a MinariDataset, or hold its episodes"):
        list(episodes([3]))


def test_a_missing_library_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    monkeypatch.delitem(sys.modules, "replaylab.integrations.minari")
    line = 'replaylab.integrations.minari needs minari, which is not installed. Run: pip install "replaylab[minari]"'
    with pytest.raises(MissingExtraError, match=f"^{re.escape(line)}$"):
        importlib.import_module("replaylab.integrations.minari")
