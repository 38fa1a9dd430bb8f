"""Writing of frames as a video or as single images."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from replaylab.arguments import instance, place, takes, tuple_of, whole
from replaylab.errors import ConfigError

FRAMES = tuple_of(instance(np.ndarray, "an array"), "arrays uint8 (H, W, 3)")
Frames = Sequence[npt.NDArray[np.uint8]]


@takes(path=place("a file"), frames=FRAMES, fps=whole(most=1_000))
def write_video(path: str | Path, frames: Frames, fps: int = 30) -> Path:
    """Write frames as a video and return the file's path.

    The video is an mp4 (H.264) if PyAV, a Python package for FFmpeg, is installed (the video extra), otherwise a GIF.
    A path that ends in ``.gif`` always gives a GIF, one that ends in ``.webp`` an animated WebP, which is smaller.

    Args:
        path: The file; its suffix becomes .mp4, .gif or .webp, according to the format.
        frames: uint8 (H, W, 3), at least one, all of one shape.
        fps: Frames a second.

    Raises:
        ConfigError: There are no frames, or they have different shapes.
    """
    path = Path(path)
    _check(frames)
    path.parent.mkdir(parents=True, exist_ok=True)
    suffix = path.suffix.lower()
    bare = path.with_suffix("") if suffix in (".webp", ".gif", ".mp4") else path  # another dot is part of the name
    if suffix == ".webp":
        return _webp(bare.with_name(f"{bare.name}.webp"), frames, fps)
    if suffix == ".gif" or find_spec("av") is None:
        return _gif(bare.with_name(f"{bare.name}.gif"), frames, fps)
    return _mp4(bare.with_name(f"{bare.name}.mp4"), frames, fps)


@takes(folder=place("a folder"), frames=FRAMES)
def write_frames(folder: str | Path, frames: Frames) -> list[Path]:
    """Write each frame as ``frame-00000.png`` and so on, and return the paths; older frames there are removed."""
    _check(frames)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("frame-*.png"):
        if old.stem.removeprefix("frame-").isdecimal():  # only files that this function wrote
            old.unlink()
    paths = [folder / f"frame-{number:05d}.png" for number in range(len(frames))]
    for frame, path in zip(frames, paths, strict=True):
        Image.fromarray(frame).save(path)
    return paths


def _check(frames: Frames) -> None:
    shapes = {(frame.shape, str(frame.dtype)) for frame in frames}
    if len(shapes) != 1 or any(len(shape) != 3 or shape[2] != 3 or dtype != "uint8" for shape, dtype in shapes):
        raise ConfigError(f"`frames` must be uint8 (H, W, 3), at least one, all of one shape, but got {sorted(shapes)}")


def _mp4(path: Path, frames: Frames, fps: int) -> Path:
    import av

    height, width = frames[0].shape[:2]
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", rate=fps, options={"crf": "18"})
        stream.width, stream.height = width + width % 2, height + height % 2  # yuv420p needs even sides
        stream.pix_fmt = "yuv420p"  # the format that browsers play
        for frame in frames:
            even = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
            file.mux(stream.encode(av.VideoFrame.from_ndarray(even, format="rgb24")))
        file.mux(stream.encode())
    return path


def _webp(path: Path, frames: Frames, fps: int) -> Path:
    images = [Image.fromarray(frame) for frame in frames]
    moving: dict[str, Any] = {"save_all": True, "append_images": images[1:], "duration": round(1000 / fps), "loop": 0}
    images[0].save(path, lossless=True, method=4, **moving)
    return path


def _gif(path: Path, frames: Frames, fps: int) -> Path:
    """Write a GIF, whose frames last at least 2 full hundredths of a second; at higher rates some are left out."""
    ends = [round((k + 1) * 100 / fps) for k in range(len(frames))]
    shown: list[Image.Image] = []
    lasts, before = [], 0
    for frame, end in zip(frames, ends, strict=True):
        if end - before >= 2 or (end == ends[-1] and not shown):
            shown.append(Image.fromarray(frame))
            lasts.append(10 * max(end - before, 2))
            before = end
    shown[0].save(path, save_all=True, append_images=shown[1:], duration=lasts, loop=0)
    return path
