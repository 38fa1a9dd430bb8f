"""``replaylab watch``: a video of a saved run's agent, and a sheet of its replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from replaylab.commands.places import check_place
from replaylab.errors import ConfigError, MissingExtraError, ReplayError, SnapshotError, SpecError

if TYPE_CHECKING:
    from replaylab.learners.training.state import Run
    from replaylab.watch import Episode

with suppress(ModuleNotFoundError):  # `main` reports that the lab extra is missing
    from tyro.conf import Positional, arg


class SavedRun:
    """The folder of ``replaylab train --save``.

    Args:
        folder: The folder.
        seed: Seed of the agent and the replay; None: the first.

    Raises:
        SnapshotError: It holds no run, or a damaged one.
        SpecError: The run has no such seed.
    """

    def __init__(self, folder: Path, seed: int | None) -> None:
        from replaylab.commands.saved_runs import saved_chunk

        if (folder / "study.json").is_file():
            raise SpecError(
                f"watch: {folder} holds a study's results, whose report has the sheets and videos of its runs "
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

    def write_sheet(self, path: Path, places: int) -> str:
        """Write the sheet of the checkpoint's replay, and return its description and its path.

        Raises:
            ConfigError: The observations are no pictures, or the replay shows no single steps.
            SnapshotError: There is no checkpoint, or the seed had ended before it.
        """
        from replaylab.watch import draw_sheets, save
        from replaylab.watch.replay_sheet import sheet_of

        if path.suffix not in (".png", ".svg"):
            raise SpecError(f"watch: --sheet must end in .png or .svg, but got {path}")
        with self._checkpoint() as (run, replica):
            sheet = sheet_of(run, replica, run.learner.batch_size, places)
            when = f"seed {self.seed} after {int(run.clock.now[replica]):,} {self.chunk.unit}"
        about = f"{self.chunk.environment}, {self.chunk.strategy}, {when}"
        save(draw_sheets({about: sheet}, note=f"{about}: {sheet}"), path)
        return f"replay of {when}, {sheet}: {path}"

    def _with_agent(self, use: Callable[[Callable[[Any], Any]], Episode]) -> Episode:
        """Call a function with the policy of the newest saved agent: of the end of training, or of the checkpoint."""
        from replaylab.envs import make_vector_env
        from replaylab.learners.training.saved_agents import load_agents
        from replaylab.watch import greedy

        if not (self.folder / f"agents-{self.seed}.npz").is_file():
            with self._checkpoint() as (run, replica):
                return use(greedy(run.agents, len(run.seeds), replica))
        configuration = self.chunk.configuration()
        env_id, options = self.chunk.made_of
        with closing(make_vector_env(env_id, 1, **options)) as env:
            spaces = env.single_observation_space, env.single_action_space
        agents = configuration.driven_learner.agents(*spaces, [self.seed])
        load_agents(self.folder, agents, self.seed)
        return use(greedy(agents, 1))

    @contextmanager
    def _checkpoint(self) -> Iterator[tuple[Run, int]]:
        """Yield the run as it was when it was saved, and the index of the replica of the seed."""
        from replaylab.learners.api.hooks import HookSource
        from replaylab.learners.training import checkpoint
        from replaylab.learners.training.hooks import HookList

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
            if isinstance(configuration.sampler, HookSource):  # some, such as the oracle, hear of the agents by a hook
                for hook in configuration.sampler.hooks():
                    hook.on_begin(run)
            yield run, run.seeds.index(self.seed)


@dataclass(frozen=True)
class WatchCommand:
    """Look at a run that was saved: what its agent does, and what its replay holds and replays most.

    Writes a video of a greedy episode and, where observations are pictures (Atari, MinAtar), a sheet of the replay's
    frames: the steps of highest and lowest priority and those replayed most, with age, replay count and TD error. Train
    with --save first; while that continues, what is shown is the last checkpoint.

    Example: replaylab watch runs/mine

    Example: replaylab watch runs/mine --seed 3 --video greedy.mp4

    Example: replaylab watch runs/mine --sheet replay.png --places 12
    """

    folder: Annotated[Positional[Path], arg(metavar="FOLDER")]
    """The folder that `replaylab train --save FOLDER` wrote, or still writes."""

    seed: int | None = None
    """Whose agent and replay; None: the run's first seed."""

    sheet: Path | None = None
    """Write the sheet to this PNG or SVG file, and the video only if --video is given, too; None: without --video to
    FOLDER/replay-SEED.png."""

    video: Path | None = None
    """Write the video to this file (mp4, or GIF without PyAV; .gif and .webp as they say), and the sheet only if
    --sheet is given, too; None: without --sheet to FOLDER/greedy-SEED.mp4."""

    places: int = 6
    """Steps in each row of the sheet."""

    max_steps: int = 3_000
    """Where the episode is cut."""

    def __call__(self) -> int:
        """Write what can be shown and return the exit code."""
        for name in ("places", "max_steps"):
            if getattr(self, name) < 1:
                option = name.replace("_", "-")
                raise SpecError(f"watch: --{option} must be at least 1, but got {getattr(self, name)}")
        saved = SavedRun(self.folder, self.seed)
        for option in ("sheet", "video"):
            check_place("watch", option, getattr(self, option), is_file=True)
        print("\n".join(self._written(saved)))
        return 0

    def _written(self, saved: SavedRun) -> list[str]:
        """Write the video, the sheet or both, as requested, and return the lines to print.

        Where neither is asked for, both go into the run's folder; one that cannot be is reported, and is no error
        unless there is neither.
        """
        video = self.video or saved.folder / f"greedy-{saved.seed}.mp4"
        sheet = self.sheet or saved.folder / f"replay-{saved.seed}.png"
        written, refused = list[str](), list[ReplayError]()
        writers: list[tuple[Path | None, Path | None, Callable[[], str]]] = [
            (self.video, self.sheet, lambda: saved.write_video(video, self.max_steps)),
            (self.sheet, self.video, lambda: saved.write_sheet(sheet, self.places)),
        ]
        for asked, other, write in writers:
            if asked or not other:
                try:
                    written.append(write())
                except (ConfigError, MissingExtraError, SnapshotError) as error:
                    if asked:
                        raise
                    refused.append(error)
        if not written:
            raise refused[0]
        return [*written, *(f"not written: {error}" for error in refused)]
