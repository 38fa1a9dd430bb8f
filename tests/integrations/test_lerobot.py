"""Frames in LeRobot's form become episodes."""

import numpy as np
import pytest

from replaylab.errors import ConfigError, DtypeError, FieldError, ShapeError
from replaylab.integrations.lerobot import episodes
from replaylab.replay import Field, NStep, ReplayBuffer

LENGTHS, DONE = (5, 1, 4, 3), (True, False, False, True)
ROWS = sum(LENGTHS)


def table(**changes):
    rng = np.random.default_rng(0)
    number = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    last = np.append(np.diff(number) != 0, True)
    columns = {
        "observation.state": np.arange(ROWS * 2, dtype=np.float32).reshape(ROWS, 2),
        "observation.images.top": rng.integers(256, size=(ROWS, 3, 4, 4), dtype=np.uint8),
        "observation.images.wrist": rng.integers(256, size=(ROWS, 3, 2, 2), dtype=np.uint8),
        "action": np.arange(ROWS, dtype=np.float32)[:, None],
        "next.reward": np.arange(ROWS, dtype=np.float32)[:, None],
        "next.done": last & np.repeat(DONE, LENGTHS),
        "episode_index": number,
        "frame_index": np.concatenate([np.arange(n) for n in LENGTHS]),
        "complementary_info.helped": np.arange(ROWS) % 2 == 0,
    }
    return {name: value for name, value in (columns | changes).items() if value is not None}


class FloatFrames:
    """Items of a LeRobotDataset, by index: tensors, pictures as shares of 255, and the task's description."""

    def __init__(self, columns):
        self.columns = columns

    def __len__(self):
        return ROWS

    def __getitem__(self, i):
        torch = pytest.importorskip("torch")
        frame = {name: torch.as_tensor(column[i]) for name, column in self.columns.items()}
        pictures = [name for name in frame if name.startswith("observation.images")]
        return frame | {name: frame[name] / 255 for name in pictures} | {"task": "pick up the cube"}


def frames(columns):
    return [{name: column[i] for name, column in columns.items()} for i in range(ROWS)]


def loaded(source, **options):
    buffer = ReplayBuffer.from_episodes(episodes(source, **options), seed=0)
    return buffer, buffer.get(range(len(buffer)))


@pytest.mark.parametrize("form", [lambda it: it, frames, lambda it: iter(frames(it)), FloatFrames])
def test_every_form_gives_the_same(form):
    buffer, steps = loaded(form(table()), pictures="uint8")
    frames_kept = [0, 1, 2, 3, 4, 6, 7, 8, 10, 11, 12]
    columns = table()
    assert steps["reward"].tolist() == frames_kept
    np.testing.assert_array_equal(steps["action"][:, 0], frames_kept)
    np.testing.assert_array_equal(steps["obs"]["state"], columns["observation.state"][frames_kept])
    for name in ("top", "wrist"):
        pictures = steps["obs"]["images"][name]
        assert pictures.dtype == np.uint8
        np.testing.assert_array_equal(pictures, columns[f"observation.images.{name}"][frames_kept])
    assert np.flatnonzero(steps["terminated"]).tolist() == [4, 10]
    assert np.flatnonzero(steps["truncated"]).tolist() == [7]
    after = np.where(steps["terminated"], frames_kept, np.add(frames_kept, 1))  # no row crosses an episode
    np.testing.assert_array_equal(steps["next_obs"]["images"]["top"], columns["observation.images.top"][after])
    assert buffer.next_obs == "derived"


def nested(array):
    """Return an array as pandas and pyarrow give columns of arrays: objects, one for each frame."""
    rows = np.empty(len(array), object)
    for i, value in enumerate(array):
        rows[i] = nested(value) if value.ndim > 1 else value
    return rows if array.ndim > 1 else array


def dataframe(columns):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({name: nested(column) for name, column in columns.items()})
    return frame.assign(task="pick up the cube", timestamp=0.0).set_index(frame.index + 7)


def arrow(columns):
    pa = pytest.importorskip("pyarrow")
    texts = {"task": ["pick up the cube"] * ROWS, "observation.language": ["pick"] * ROWS}
    return pa.table({name: column.tolist() for name, column in columns.items()} | texts)


def relation(columns):
    recorded = arrow(columns)  # noqa: F841 - DuckDB finds it by its name
    return pytest.importorskip("duckdb").sql("select * from recorded order by episode_index, frame_index")


FORMS = {
    "objects": lambda columns: {name: nested(column) for name, column in columns.items()},
    "DataFrame": dataframe,
    "Table": arrow,
    "RecordBatchReader": lambda columns: arrow(columns).to_reader(max_chunksize=4),
    "relation": relation,
    "DataFrame of Arrow": lambda columns: arrow(columns).to_pandas(),
    "DataFrame of DuckDB": lambda columns: relation(columns).df(),
    "columns of DuckDB": lambda columns: relation(columns).fetchnumpy(),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_table_of_another_library_gives_the_same(form):
    _, expected = loaded(table())
    _, steps = loaded(FORMS[form](table()))
    assert steps["obs"]["images"]["top"].shape == (11, 3, 4, 4)
    for name in ("reward", "action", "terminated", "truncated"):
        np.testing.assert_array_equal(steps[name], expected[name])
    for name in ("obs", "next_obs"):
        np.testing.assert_array_equal(steps[name]["state"], expected[name]["state"])
        np.testing.assert_array_equal(steps[name]["images"]["wrist"], expected[name]["images"]["wrist"])


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ([np.zeros(2), np.zeros(3)] * (ROWS // 2) + [np.zeros(2)], ShapeError),
        ([{"bytes": b"", "path": None}] * ROWS, DtypeError),
        ([np.zeros(2), None] * (ROWS // 2) + [np.zeros(2)], DtypeError),
        (np.ma.masked_array(np.zeros(ROWS), [False] * (ROWS - 1) + [True]), DtypeError),
    ],
    ids=["ragged", "encoded", "missing", "masked"],
)
def test_columns_without_equal_arrays_of_numbers_are_refused(values, error):
    column = values
    if isinstance(values, list):
        column = np.empty(ROWS, object)
        column[:] = values
    with pytest.raises(error, match=r"column `observation\.state` must"):
        list(episodes(table(**{"observation.state": column})))


def test_pictures_stay_as_they_are_given():
    pictures = table()["observation.images.top"].astype(np.float32) / np.float32(255)
    pictures[:5] = 1.0  # an episode of whole 255ths before others
    pictures[5:] += 1e-4
    columns = {"observation.images.top": pictures}
    _, steps = loaded(table(**columns))
    np.testing.assert_array_equal(steps["obs"]["images"]["top"][:5], pictures[:5])
    assert steps["obs"]["images"]["top"].max() <= 1.001
    with pytest.raises(DtypeError, match=r"`observation\.images\.top` must hold whole 255ths"):
        loaded(table(**columns), pictures="uint8")


def test_a_declared_float_field_holds_shares():
    pictures = table()["observation.images.top"].astype(np.float32) / np.float32(255)
    columns = {"observation.image": pictures, "episode_index": np.zeros(ROWS, int)}
    fields = {"obs": {"image": Field((3, 4, 4))}, "next_obs": {"image": Field((3, 4, 4))}}
    flags = dict.fromkeys(("terminated", "truncated"), Field((), np.bool_))
    buffer = ReplayBuffer.from_episodes(episodes(columns), fields=fields | flags, seed=0)
    np.testing.assert_array_equal(buffer.get(range(ROWS - 1))["obs"]["image"], pictures[:-1])


def test_numbers_beside_cameras_are_no_pictures():
    valid, pose = np.ones(ROWS, np.float32), np.ones((ROWS, 2, 2), np.float32)
    columns = {"observation.image_valid": valid, "observation.image_pose": pose, "observation.images.gain": valid}
    _, steps = loaded(table(**columns), pictures="uint8")
    kinds = {steps["obs"][name].dtype for name in ("image_valid", "image_pose")}
    assert kinds | {steps["obs"]["images"]["gain"].dtype} == {np.dtype(np.float32)}


def test_an_episode_ends_where_it_was_truncated():
    flags = [0, 0, 1, 0, 0, 1]
    columns = {"observation.state": np.arange(6.0), "next.reward": np.ones(6, np.float32), "episode_index": [0] * 6}
    source = episodes(columns | {"next.truncated": flags, "next.done": flags})
    buffer = ReplayBuffer.from_episodes(source, transforms=[NStep(5, gamma=1.0)], seed=0)
    steps = buffer.get(range(len(buffer)))
    assert steps["obs"]["state"].tolist() == [0.0, 1.0, 3.0, 4.0]
    assert steps["next_obs"]["state"].tolist() == [1.0, 2.0, 4.0, 5.0]
    assert steps["truncated"].tolist() == [False, True, False, True]
    assert buffer.as_batch([0, 2]).reward.tolist() == [2.0, 2.0]


def test_done_that_cuts_ends_an_episode_as_truncated_does():
    columns = {"observation.state": np.arange(6.0), "episode_index": [0] * 6, "next.done": [0, 0, 1, 0, 0, 1]}
    read = [
        (episode["obs"]["state"].tolist(), episode["truncated"].tolist())
        for episode in episodes(columns, done="truncated")
    ]
    assert read == [([0.0, 1.0, 2.0], [False, True]), ([3.0, 4.0, 5.0], [False, True])]


def test_what_done_says_may_be_reported():
    _, steps = loaded(table(), done="truncated")
    assert not steps["terminated"].any()
    assert len(steps["reward"]) == ROWS - len(LENGTHS)
    cut_off = np.zeros(ROWS, bool)
    cut_off[-1] = True
    _, steps = loaded(table(**{"next.truncated": cut_off}))
    assert np.flatnonzero(steps["terminated"]).tolist() == [4]
    _, steps = loaded(table(**{"next.done": None}))
    assert not steps["terminated"].any()


def test_demonstrations_need_neither_rewards_nor_names():
    columns = {"observation": np.arange(6.0), "action": np.zeros(6), "episode_index": [0, 0, 0, 1, 1, 1]}
    _, steps = loaded(columns)
    assert steps.keys() == {"obs", "action", "next_obs", "terminated", "truncated"}
    assert steps["next_obs"].tolist() == [1.0, 2.0, 4.0, 5.0]


def test_more_fields():
    _, steps = loaded(table(), extra={"helped": "complementary_info.helped"})
    assert steps["helped"][:5].tolist() == [True, False, True, False, True]


def test_what_does_not_fit_is_refused():
    wrong = {
        "`episode_index`, but has observation": (FieldError, {"observation": np.zeros(3)}),
        "must have `observation` or": (FieldError, {"action": np.zeros(3), "episode_index": np.zeros(3)}),
        "must have one length": (ShapeError, table(action=np.zeros(3))),
        "must follow each other": (ShapeError, table(frame_index=np.arange(ROWS)[::-1])),
        "cannot both hold a value": (FieldError, table(**{"observation.images": np.zeros(ROWS)})),
        "a mapping with `episode_index`": (FieldError, [{"action": 1.0}]),
        "the same names": (FieldError, [frames(table())[0], frames(table(action=None))[1]]),
        "`frames` must be frames": (ConfigError, 3.5),
    }
    for message, (error, source) in wrong.items():
        with pytest.raises(error, match=message):
            list(episodes(source))


@pytest.mark.parametrize("form", [dict, list])
def test_episodes_whose_frames_lie_apart_are_refused(form):
    mixed = {
        "observation.state": np.arange(6.0),
        "episode_index": np.array([0, 0, 0, 1, 0, 0]),
        "frame_index": np.array([0, 1, 2, 0, 3, 4]),
    }
    frames = mixed if form is dict else [{name: column[i] for name, column in mixed.items()} for i in range(6)]
    with pytest.raises(ShapeError, match=r"the frames of episode 0 must follow each other, .* sort them by"):
        list(episodes(frames))
