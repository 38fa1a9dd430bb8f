"""Pictures of a chunk's first seed after its training, returned with the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from replaylab.envs import Screen
from replaylab.learners import Hook
from replaylab.learners.api.hooks import Bools, TrainingRun
from replaylab.replay import InspectableReplay
from replaylab.study.plan.chunks import Chunk
from replaylab.study.results.store import NOT_MADE, SHEET, VIDEO


class FirstSeedPictures(Hook):
    """Makes what a study file's table ``watch`` asks for, of the first seed, when that seed's training ends.

    It changes nothing that is trained or measured, and whatever goes wrong with it loses no rows: the reason takes the
    place of the picture, and the report prints it. Where observations are no pictures, there is no sheet and no reason.

    Args:
        chunk: What is trained.

    Attributes:
        pictures: The contents of files, by name: `SHEET` and `VIDEO` of `replaylab.study.results.store`, or in place of
            either its name and `NOT_MADE`.
    """

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self.pictures: dict[str, bytes] = {}

    def on_end(self, run: TrainingRun, over: Bools) -> None:
        """Make the pictures of the first seed, if it is among those that have ended."""
        first, asked = self._chunk.seeds[0], self._chunk.watch
        if first not in run.seeds or not over[run.seeds.index(first)]:
            return
        replica = run.seeds.index(first)
        pictures = Screen.of(run.env).draws(run.env.single_observation_space)
        if asked.steps and pictures and isinstance(run.replay, InspectableReplay):
            self._keep(SHEET, lambda: self._sheet(run, replica))
        if asked.video:
            self._keep(VIDEO, lambda: self._video(run, replica))

    def keep(self, run: TrainingRun, rows: Bools) -> None:
        """Continue with some of the replicas: what was made stays."""

    def state(self) -> dict[str, Any]:
        """Return what was made of a seed that ended before the others."""
        return {f"picture {name}": np.frombuffer(content, np.uint8) for name, content in self.pictures.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        arrays = {name: array for name, array in state.items() if name.startswith("picture ")}
        self.pictures = {name.removeprefix("picture "): array.tobytes() for name, array in arrays.items()}

    def _keep(self, name: str, make: Callable[[], bytes]) -> None:
        try:
            self.pictures[name] = make()
        except Exception as error:  # of rendering, or of the user's own replay or agents: hours of training are done
            self.pictures[f"{name}{NOT_MADE}"] = f"{type(error).__name__}: {error}".encode()

    def _sheet(self, run: TrainingRun, replica: int) -> bytes:
        from replaylab.watch.replay_sheet import sheet_of  # heavy, and seldom needed

        batch_size = self._chunk.configuration().driven_learner.batch_size
        return sheet_of(run, replica, batch_size, self._chunk.watch.steps).to_bytes()

    def _video(self, run: TrainingRun, replica: int) -> bytes:
        from replaylab.watch import greedy, play, write_video

        chunk = self._chunk
        agent = greedy(run.agents, len(run.seeds), replica)
        env_id, options = chunk.made_of
        episode = play(env_id, agent, max_steps=chunk.watch.video, env_options=options)
        with TemporaryDirectory() as folder:
            return write_video(Path(folder, VIDEO), episode.frames, episode.fps).read_bytes()
