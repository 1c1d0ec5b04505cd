"""Videos that are cut into pieces, what was made of them, and the processes that make it."""

import hashlib
import time
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
from child_processes import children
from paths import ROOT
from videos import Synthetic

NETWORK = ROOT / "tests" / "data" / "bright-dynamic.onnx"  # small, so that a run is over soon
OPTIONS: dict[str, Any] = {"device": "cpu", "model": NETWORK}
FRAMES, PIECES = 264, 5
_ENCODERS = "segmentation.stages.encode.segment_worker"  # libraries start processes too, as they are imported
_GROUPS = "keyint=6:min-keyint=6:scenecut=0:bframes=3"


def long_video(path: Path, frames: int = FRAMES, **others: Any) -> Path:
    """Makes a video of 22 seconds with sound, chapters and perhaps subtitles: five pieces, as pieces are by time."""
    given: dict[str, Any] = dict(
        codec="libx264",
        pts=range(frames),
        time_base=Fraction(1, 12),
        size=(128, 96),
        gop=6,
        options={"x264-params": _GROUPS},
        audio="aac",
        subtitles=[(1, 3, "one"), (15, 20, "two")] if path.suffix == ".mkv" else [],
        chapters=[(0, 10, "first"), (10, 20, "second")],
    )
    return Synthetic(**given | others).write(path)


@dataclass(frozen=True)
class Made:
    """What a run has written, by its content."""

    packets: str
    results: str
    masks: str


def made(folder: Path) -> Made:
    """Returns what is in a folder that `files` has named."""
    return Made(packets(folder / "out.mp4"), _sha256(folder / "out.jsonl"), _sha256(folder / "out.masks.mkv"))


def files(folder: Path) -> dict[str, Path]:
    """Returns the options that write results and masks to a folder."""
    folder.mkdir(exist_ok=True)
    return {"results": folder / "out.jsonl", "save_masks": folder / "out.masks.mkv"}


def packets(path: Path) -> str:
    """Returns the SHA-256 of all packets of the video, with their times."""
    digest = hashlib.sha256()
    with av.open(str(path)) as container:
        for packet in container.demux(container.streams.video[0]):
            digest.update(bytes(packet))
            digest.update(repr((packet.pts, packet.dts, packet.duration, packet.is_keyframe)).encode())
    return digest.hexdigest()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def workers_of(process: int) -> list[int]:
    """Returns the ids of the workers that a process or its children have started: processes, or actors of Ray."""
    found = []
    for child in children(process):
        try:
            command = Path(f"/proc/{child}/cmdline").read_text()
        except OSError:  # it has just ended
            continue
        if "segmentation.system.fork_server" in command:
            found += children(child)
        elif command.startswith("ray::_Actor"):
            found.append(child)
        else:
            found += workers_of(child)
    return sorted(found)


def at_work(process: int) -> list[int]:
    """Waits for workers that make pieces: they have started their encoders. Returns the ids of those workers."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        busy = [worker for worker in workers_of(process) if children(worker, _ENCODERS)]
        if busy:
            return busy
        time.sleep(0.01)
    raise AssertionError("no worker is at work")
