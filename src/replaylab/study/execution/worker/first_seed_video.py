"""A video of a chunk's first seed after its training, returned with the rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from replaylab.learners import Hook
from replaylab.learners.api.hooks import Bools, TrainingRun
from replaylab.study.plan import Chunk


class FirstSeedVideo(Hook):
    """Makes the video that a study file's table ``watch`` asks for, when the training of the first seed ends.

    It changes nothing that is trained or measured, and its errors lose no rows: the reason takes the place of the
    video, and the report prints it.

    Args:
        chunk: The chunk that is trained.

    Attributes:
        video: An animated WebP, or the reason why it could not be made; None before that.
    """

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self.video: bytes | str | None = None

    def on_end(self, run: TrainingRun, over: Bools) -> None:
        """Make the video of the first seed, if it is among those that have ended."""
        first = self._chunk.seeds[0]
        if not self._chunk.watch.video or first not in run.seeds or not over[run.seeds.index(first)]:
            return
        try:
            self.video = self._video(run, run.seeds.index(first))
        except Exception as error:  # of rendering, or of the user's own agents: hours of training are done
            self.video = f"{type(error).__name__}: {error}"

    def keep(self, run: TrainingRun, rows: Bools) -> None:
        """Continue with some of the replicas: what was made stays."""

    def state(self) -> dict[str, Any]:
        """Return the video of a seed that ended before the others."""
        if self.video is None:
            return {}
        if isinstance(self.video, str):
            return {"video_error": np.frombuffer(self.video.encode(), np.uint8)}
        return {"video": np.frombuffer(self.video, np.uint8)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        if "video" in state:
            self.video = state["video"].tobytes()
        elif "video_error" in state:
            self.video = state["video_error"].tobytes().decode()

    def _video(self, run: TrainingRun, replica: int) -> bytes:
        from replaylab.watch import greedy, play, write_video  # heavy, and seldom needed

        chunk = self._chunk
        agent = greedy(run.agents, len(run.seeds), replica)
        env_id, options = chunk.made_of
        episode = play(env_id, agent, max_steps=chunk.watch.video, env_options=options)
        with TemporaryDirectory() as folder:
            return write_video(Path(folder, "greedy.webp"), episode.frames, episode.fps).read_bytes()
