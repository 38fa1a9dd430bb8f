"""Reading and writing of Minari's data sets, without loss."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from replaylab.arguments import checked, instance, text
from replaylab.errors import FieldError
from replaylab.extras import needs
from replaylab.replay import ReplayBuffer

with needs("replaylab.integrations.minari", "minari"):
    from minari import EpisodeData, MinariDataset, create_dataset_from_buffers
    from minari.data_collector import EpisodeBuffer

ATTRIBUTES = {
    "observations": "obs",
    "actions": "action",
    "rewards": "reward",
    "terminations": "terminated",
    "truncations": "truncated",
}
"""Attributes of Minari's episodes, and the names of the fields here."""


def episodes(dataset: MinariDataset | Iterable[EpisodeData]) -> Iterator[dict[str, Any]]:
    """Yield the episodes of a data set, in the form that `ReplayBuffer.extend_episode` takes.

    Arrays keep their dtypes, and Dict and Tuple spaces their nesting. ``infos`` are left out.

    Args:
        dataset: A data set, or some of its episodes, such as ``dataset.filter_episodes(...)`` or
            ``dataset.sample_episodes(n)``.

    Example:
        >>> steps = {"rewards": np.ones(2), "terminations": [False, True], "truncations": [False, False], "infos": {}}
        >>> episode = EpisodeData(id=0, observations=np.arange(3.0), actions=np.zeros(2, int), **steps)
        >>> buffer = ReplayBuffer.from_episodes(episodes([episode]))
        >>> buffer.get([0, 1])["next_obs"].tolist()
        [1.0, 2.0]
    """
    coming = dataset.iterate_episodes() if isinstance(dataset, MinariDataset) else dataset
    for episode in coming:
        if not isinstance(episode, EpisodeData):
            raise FieldError(f"`dataset` must be a MinariDataset, or hold its episodes, but got {episode!r:.80}")
        yield {name: getattr(episode, attribute) for attribute, name in ATTRIBUTES.items()}


def create_dataset(buffer: ReplayBuffer, dataset_id: str, **options: Any) -> MinariDataset:
    """Write the contents of a buffer as a new Minari data set, without loss, and return it.

    Args:
        buffer: A buffer with the fields obs, action, reward, next_obs, terminated and truncated. Other fields are left
            out, since Minari's episodes cannot hold them. See `ReplayBuffer.episodes` for where episodes end.
        dataset_id: Name of the data set, such as "cartpole/mine-v0".
        **options: Options of ``minari.create_dataset_from_buffers``: ``env``, or ``observation_space`` and
            ``action_space``; ``algorithm_name``, ``author``, ``data_format``, ... Pictures are stored without loss,
            unless ``jpeg_encoding=True``.

    Raises:
        FieldError: A field is missing.
        ConfigError: The buffer does not know which step follows which.
    """
    buffer = checked("buffer", buffer, instance(ReplayBuffer, "a ReplayBuffer"))
    missing = [name for name in (*ATTRIBUTES.values(), "next_obs") if name not in buffer.fields]
    if missing:
        raise FieldError(
            f"a data set of Minari's needs the fields {', '.join(missing)}, which the buffer does not have"
        )
    episode_buffers = [
        EpisodeBuffer(id=number, **{attribute: _plain(episode[name]) for attribute, name in ATTRIBUTES.items()})
        for number, episode in enumerate(buffer.episodes())
    ]
    return create_dataset_from_buffers(
        checked("dataset_id", dataset_id, text), episode_buffers, **({"jpeg_encoding": False} | options)
    )


def _plain(tree: Any) -> Any:
    """Return nested arrays with string keys, which Minari's files require."""
    if isinstance(tree, Mapping):
        return {str(key): _plain(child) for key, child in tree.items()}
    return tuple(map(_plain, tree)) if isinstance(tree, tuple) else np.ascontiguousarray(tree)
