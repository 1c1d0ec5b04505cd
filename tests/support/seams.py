"""Videos in which time steps back: joined recordings, and MP4s whose edit lists show parts twice or leave some out."""

from collections.abc import Callable
from pathlib import Path

from edit_list import edited
from videos import Synthetic


def made(path: Path, frames: int, gop: int, *, clock: float = 0) -> Path:
    options = {"x264-params": f"keyint={gop}:min-keyint={gop}:scenecut=0:bframes=3"}
    return Synthetic(codec="libx264", options=options, pts=range(frames), size=(128, 96), clock=clock).write(path)


def joined(folder: Path, *parts: Path) -> Path:
    """Transport streams one after the other."""
    path = folder / "joined.ts"
    path.write_bytes(b"".join(part.read_bytes() for part in parts))
    return path


def twice(folder: Path) -> Path:
    part = made(folder / "a.ts", 150, 30)
    return joined(folder, part, part)


def back_to_zero(folder: Path) -> Path:
    return joined(folder, made(folder / "a.ts", 200, 250, clock=60), made(folder / "b.ts", 200, 250))


def short_at_first(folder: Path) -> Path:
    return joined(folder, made(folder / "a.ts", 20, 250, clock=60), made(folder / "b.ts", 200, 50))


def left_out(folder: Path) -> Path:
    return edited(made(folder / "a.mp4", 150, 50), [(2.2, 0), (1.8, 3.9)], folder / "edited.mp4")


def shown_twice(folder: Path) -> Path:
    return edited(made(folder / "a.mp4", 150, 30), [(4, 0), (4, 1.9)], folder / "edited.mp4")


def swapped(folder: Path) -> Path:
    return edited(made(folder / "a.mp4", 225, 100), [(3, 6), (3, 1.9)], folder / "edited.mp4")


JOINED: dict[str, Callable[[Path], Path]] = {f.__name__: f for f in (twice, back_to_zero, short_at_first)}
EDITED: dict[str, Callable[[Path], Path]] = {f.__name__: f for f in (left_out, shown_twice, swapped)}
SEAMS = JOINED | EDITED
