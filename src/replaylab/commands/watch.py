"""``replaylab watch``: a video of a saved run's agent."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from replaylab.commands.places import check_place
from replaylab.errors import SnapshotError, SpecError

if TYPE_CHECKING:
    from replaylab.watch import Episode

with suppress(ModuleNotFoundError):  # `main` reports that the lab extra is missing
    from tyro.conf import Positional, arg


class SavedRun:
    """The folder of ``replaylab train --save``.

    Args:
        folder: The folder.
        seed: Seed of the agent; None: the first.

    Raises:
        SnapshotError: It holds no run, or a damaged one.
        SpecError: The run has no such seed.
    """

    def __init__(self, folder: Path, seed: int | None) -> None:
        from replaylab.commands.saved_runs import saved_chunk

        if (folder / "study.json").is_file():
            raise SpecError(
                f"watch: {folder} holds a study's results, whose report has the videos of its runs "
                f"(replaylab study report {folder}); give the folder of `replaylab train --save`"
            )
        self.folder, self.chunk = folder, saved_chunk(folder)
        self.seed = self.chunk.seeds[0] if seed is None else seed
        if self.seed not in self.chunk.seeds:
            seeds = ", ".join(map(str, self.chunk.seeds))
            raise SpecError(f"watch: --seed must be one of the run's, {seeds}, but got {self.seed}")

    def write_video(self, path: Path, max_steps: int) -> str:
        """Write a greedy episode as a video, and return its description and its path.

        Raises:
            ConfigError: The environment draws no pictures.
            SnapshotError: No agent is saved yet.
        """
        from replaylab.commands.train import greedy_episode
        from replaylab.watch import write_video

        episode = self._with_agent(lambda agent: greedy_episode(self.chunk, agent, max_steps))
        return f"greedy episode of seed {self.seed}, {episode}: {write_video(path, episode.frames, episode.fps)}"

    def _with_agent(self, use: Callable[[Callable[[Any], Any]], Episode]) -> Episode:
        """Call a function with the policy of the newest saved agent: of the end of training, or of the checkpoint."""
        from replaylab.envs import make_vector_env
        from replaylab.learners.training.saved_agents import load_agents
        from replaylab.watch import greedy

        if not (self.folder / f"agents-{self.seed}.npz").is_file():
            return self._with_checkpoint(use)
        configuration = self.chunk.configuration()
        env_id, options = self.chunk.made_of
        with closing(make_vector_env(env_id, 1, **options)) as env:
            spaces = env.single_observation_space, env.single_action_space
        agents = configuration.driven_learner.agents(*spaces, [self.seed])
        load_agents(self.folder, agents, self.seed)
        return use(greedy(agents, 1))

    def _with_checkpoint(self, use: Callable[[Callable[[Any], Any]], Episode]) -> Episode:
        """Call a function with the policy of the checkpoint's agent."""
        from replaylab.learners.training import checkpoint
        from replaylab.learners.training.hooks import HookList
        from replaylab.watch import greedy

        if not (self.folder / "run.json").is_file():
            raise SnapshotError(
                f"{self.folder} holds no checkpoint: there is no run.json in it; train with --save-every below the "
                "budget, in an environment that can continue from one"
            )
        configuration = self.chunk.configuration()
        run = checkpoint.load(self.folder, configuration, HookList(configuration, self.chunk.seeds))
        with closing(run.env):
            if self.seed not in run.seeds:
                raise SnapshotError(
                    f"seed {self.seed} had ended before the last checkpoint in {self.folder} was written"
                )
            return use(greedy(run.agents, len(run.seeds), run.seeds.index(self.seed)))


@dataclass(frozen=True)
class WatchCommand:
    """Write a video of a greedy episode of a saved run's agent.

    Train with --save first; while that continues, the agent is that of the last checkpoint.

    Example: replaylab watch runs/mine

    Example: replaylab watch runs/mine --seed 3 --video greedy.mp4
    """

    folder: Annotated[Positional[Path], arg(metavar="FOLDER")]
    """The folder that `replaylab train --save FOLDER` wrote, or still writes."""

    seed: int | None = None
    """Seed of the agent; None: the run's first seed."""

    video: Path | None = None
    """Write the video to this file: mp4 (GIF without PyAV), or by its suffix .gif or .webp; None: to
    FOLDER/greedy-SEED.mp4."""

    max_steps: int = 3_000
    """Largest number of steps of the episode."""

    def __call__(self) -> int:
        """Write the video and return the exit code."""
        if self.max_steps < 1:
            raise SpecError(f"watch: --max-steps must be at least 1, but got {self.max_steps}")
        saved = SavedRun(self.folder, self.seed)
        check_place("watch", "video", self.video, is_file=True)
        print(saved.write_video(self.video or saved.folder / f"greedy-{saved.seed}.mp4", self.max_steps))
        return 0
