"""What is to be seen of a population's first seed when it has been trained; handed back with the rows."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from replaylab.envs import Screen
from replaylab.errors import ConfigError, MissingExtraError
from replaylab.learners import Hook
from replaylab.learners.api.hooks import Bools, TrainingRun
from replaylab.replay import InspectableReplay
from replaylab.study.plan.populations import Population
from replaylab.study.results.store import SHEET, VIDEO
from replaylab.watch import greedy, play, write_video
from replaylab.watch.replay_sheet import sheet_of


class LastLook(Hook):
    """Makes what a study file's table ``watch`` asks for, of the first seed, when that seed's training ends.

    It changes nothing that is trained or measured. What cannot be, since observations are no pictures or the
    environment draws none, is left out.

    Args:
        population: What is trained.

    Attributes:
        looks: The contents of files, by name: `SHEET` and `VIDEO` of `replaylab.study.results.store`.
    """

    def __init__(self, population: Population) -> None:
        self._population = population
        self.looks: dict[str, bytes] = {}

    def on_end(self, run: TrainingRun, over: Bools) -> None:
        """Look at the first seed, if it is among those that have ended."""
        first, asked = self._population.seeds[0], self._population.watch
        if first not in run.seeds or not over[run.seeds.index(first)]:
            return
        replica = run.seeds.index(first)
        pictures = Screen.of(run.env).draws(run.env.single_observation_space)
        if asked.steps and pictures and isinstance(run.replay, InspectableReplay):
            batch_size = self._population.configuration().learner.batch_size
            self.looks[SHEET] = sheet_of(run, replica, batch_size, asked.steps).to_bytes()
        if asked.video:
            video = self._video(run, replica)
            self.looks |= {} if video is None else {VIDEO: video}

    def _video(self, run: TrainingRun, replica: int) -> bytes | None:
        population = self._population
        agent = greedy(run.agents, len(run.seeds), replica)
        steps, options = population.watch.video, population.env_options
        try:
            episode = play(population.environment, agent, max_steps=steps, env_options=options)
        except (ConfigError, MissingExtraError):
            return None
        with TemporaryDirectory() as folder:
            return write_video(Path(folder, VIDEO), episode.frames, episode.fps).read_bytes()
