"""Views of training results: maps of grid worlds, curves, videos of the greedy policy.

    from replaylab.watch import Grid, save, visit_map

    save(visit_map({"with replay": visits}, Grid.of("CliffWalking-v1")), "visits.svg")

Figures need the lab extra; rendered episodes and mp4 the video extra, TensorBoard the tensorboard extra.
"""

from replaylab.plotting.svg import save
from replaylab.watch.grid import Grid
from replaylab.watch.grid_maps import value_map, visit_map
from replaylab.watch.learning_curves import by_episode, ewma, learning_curves, running_mean
from replaylab.watch.playing import Episode, greedy, play
from replaylab.watch.tensorboard import TensorBoard
from replaylab.watch.video import write_frames, write_video

__all__ = [
    "Episode",
    "Grid",
    "TensorBoard",
    "by_episode",
    "ewma",
    "greedy",
    "learning_curves",
    "play",
    "running_mean",
    "save",
    "value_map",
    "visit_map",
    "write_frames",
    "write_video",
]
