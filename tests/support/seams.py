"""Videos in which time steps back: joined recordings, and MP4s whose edit lists show parts twice or leave some out."""

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

from videos import Synthetic


def made(path: Path, frames: int, gop: int, *, clock: float = 0) -> Path:
    options = {"x264-params": f"keyint={gop}:min-keyint={gop}:scenecut=0:bframes=3"}
    return Synthetic(codec="libx264", options=options, pts=range(frames), size=(128, 96), clock=clock).write(path)


def joined(folder: Path, *parts: Path) -> Path:
    """Transport streams one after the other."""
    path = folder / "joined.ts"
    path.write_bytes(b"".join(part.read_bytes() for part in parts))
    return path


def edited(source: Path, edits: Sequence[tuple[float, float]]) -> Path:
    """An MP4 of one stream that shows (for so many seconds, from this second on) one after the other."""
    data = bytearray(source.read_bytes())
    boxes = {name: data.rindex(name) - 4 for name in (b"moov", b"trak", b"edts", b"elst", b"mvhd", b"mdhd")}
    movie, media = (struct.unpack_from(">I", data, boxes[name] + 20)[0] for name in (b"mvhd", b"mdhd"))
    at = boxes[b"elst"]
    (size,) = struct.unpack_from(">I", data, at)
    (first,) = struct.unpack_from(">i", data, at + 20)  # where the only entry begins, in the media's ticks
    entries = (struct.pack(">Iihh", round(long * movie), round(begin * media) + first, 1, 0) for long, begin in edits)
    box = struct.pack(">I4sII", 16 + 12 * len(edits), b"elst", 0, len(edits)) + b"".join(entries)
    data[at : at + size] = box
    for name in (b"moov", b"trak", b"edts"):  # they lie behind all pictures, so nothing else moves
        (long,) = struct.unpack_from(">I", data, boxes[name])
        struct.pack_into(">I", data, boxes[name], long + len(box) - size)
    path = source.with_name("edited.mp4")
    path.write_bytes(data)
    return path


def twice(folder: Path) -> Path:
    part = made(folder / "a.ts", 150, 30)
    return joined(folder, part, part)


def back_to_zero(folder: Path) -> Path:
    return joined(folder, made(folder / "a.ts", 200, 250, clock=60), made(folder / "b.ts", 200, 250))


def short_at_first(folder: Path) -> Path:
    return joined(folder, made(folder / "a.ts", 20, 250, clock=60), made(folder / "b.ts", 200, 50))


def left_out(folder: Path) -> Path:
    return edited(made(folder / "a.mp4", 150, 50), [(2.2, 0), (1.8, 3.9)])


def shown_twice(folder: Path) -> Path:
    return edited(made(folder / "a.mp4", 150, 30), [(4, 0), (4, 1.9)])


def swapped(folder: Path) -> Path:
    return edited(made(folder / "a.mp4", 225, 100), [(3, 6), (3, 1.9)])


SEAMS: dict[str, Callable[[Path], Path]] = {
    function.__name__: function for function in (twice, back_to_zero, short_at_first, left_out, shown_twice, swapped)
}
