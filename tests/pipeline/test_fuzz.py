"""Files that are changed by chance: each is read, or refused in a line; nothing is lost silently, none harms another.

The files of a seed are inputs of one command, so that one which ends the process would be seen by all.
"""

import json
import random
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import av
import numpy as np
import photos
import pytest
from marks import first
from networks import RED, make_model
from program import cli
from videos import Synthetic

from segmentation.media.opening.open_input import open_input
from segmentation.system.access import Access

COUNT = 40  # files of a seed
EXTREMES = (0, 1, 0x7F, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def animated(path: Path) -> Path:
    return photos.write_animation(path, [np.roll(photos.photo(48, 32), n, axis=1) for n in range(4)], [50, 70, 90, 400])


def still(path: Path) -> Path:
    return photos.write(path, photos.photo(48, 32))


def video(codec: str, **options: object) -> Callable[[Path], Path]:
    return lambda path: Synthetic(codec=codec, pts=range(12), gop=6, **options).write(path)  # type: ignore[arg-type]


def playlist(text: str) -> Callable[[Path], Path]:
    def write(path: Path) -> Path:
        path.write_text(text)
        return path

    return write


SEGMENT = "parts/part.ts"  # beside the files that name it
KINDS: dict[str, Callable[[Path], Path]] = {
    "a.mp4": video("libx264", audio="aac", container_options={"movflags": "+faststart"}),
    "b.mp4": video("libx264", audio="aac"),
    "c.mov": video("libx265", options={"x265-params": "log-level=none"}),
    "d.mkv": video("libx264", audio="aac", subtitles=((0.1, 0.3, "one"),), chapters=((0, 0.2, "two"),)),
    "e.ts": video("libx264", audio="aac"),
    "f.avi": video("mpeg4"),
    "g.webm": video("libvpx-vp9"),
    "h.flv": video("libx264", audio="aac"),
    "i.y4m": video("rawvideo", format="yuv4mpegpipe"),
    "j.gif": video("gif", pix_fmt="rgb8"),
    "k.mpg": video("mpeg2video"),
    "l.webp": animated,
    "m.png": still,
    "n.jpg": still,
    "o.webp": still,
    "p.tif": still,
    "q.m3u8": playlist("#EXTM3U\n#EXT-X-TARGETDURATION:1\n" + 2 * f"#EXTINF:0.4,\n{SEGMENT}\n" + "#EXT-X-ENDLIST\n"),
    "r.ffconcat": playlist("ffconcat version 1.0\n" + 2 * f"file {SEGMENT}\n"),
}


def changed(whole: bytes, dice: random.Random) -> bytes:
    """A copy with one kind of damage, more often at the beginning, where the headers are."""
    data = bytearray(whole)
    end = len(data) if dice.random() < 0.5 else min(len(data), 800)
    at = dice.randrange(end)
    match dice.randrange(5):
        case 0:
            for _ in range(1 + dice.randrange(20)):
                data[dice.randrange(end)] = dice.randrange(256)
        case 1:
            del data[at:]
        case 2:
            size = dice.randrange(1, 200)
            data[at : at + size] = bytes(size)
        case 3:
            data[at:at] = data[at : at + dice.randrange(1, 500)]
        case _:
            data[at : at + 4] = dice.choice(EXTREMES).to_bytes(4)
    return bytes(data)


def readable(path: Path) -> tuple[int, int]:
    """Frames, and packets of sound, up to where the file can be read.

    A last packet that states no length is not counted: MP4 shows it for no time, and FFmpeg leaves it out then.
    """
    frames = sounds = length = 0
    with suppress(av.error.FFmpegError), open_input(str(path), Access(playlists=True)) as container:
        video = container.streams.best("video")
        for packet in container.demux():
            if packet.stream.type == "audio":
                sounds += bool(packet.size)
                length = packet.duration if packet.size else length
            elif packet.stream == video:
                with suppress(av.error.FFmpegError):
                    frames += len(packet.decode())
    return frames, sounds - (sounds > 0 and not length)


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    return {name: make(folder / name).read_bytes() for name, make in KINDS.items()}


@pytest.mark.parametrize("seed", first(1, range(120)))
def test_changed_files(seed: int, wholes: dict[str, bytes], tmp_path: Path) -> None:
    dice = random.Random(seed)
    (tmp_path / "in" / SEGMENT).parent.mkdir(parents=True)
    (tmp_path / "in" / SEGMENT).write_bytes(wholes["e.ts"])
    for number in range(COUNT):
        name = sorted(wholes)[(number + seed * COUNT) % len(wholes)]
        (tmp_path / "in" / f"{number:02}{name}").write_bytes(changed(wholes[name], dice))
    model = make_model(tmp_path / "net.onnx", RED)
    options = ("--model", model, "--max-pixels", 100_000, "--max-duration", 3600, "--allow", "playlists")
    sources = sorted(path for path in (tmp_path / "in").iterdir() if path.is_file())
    done = cli(*sources, "-o", tmp_path / "out", "--json", "--device", "cpu", *options, timeout=600)
    assert done.returncode in (0, 1, 2, 4) and "internal error" not in done.stderr, done.stderr
    found = {Path(one["input"]).name: one for one in map(json.loads, done.stdout.splitlines())}
    assert found.keys() == {path.name for path in sources}
    for path in sources:
        one, lines = found[path.name], [line for line in done.stderr.splitlines() if f"/{path.name}:" in line]
        if "error" in one:
            assert one["exit_code"] in (1, 2) and path.stem in one["error"] and "\n" not in one["error"], one
        elif one["plan"]["decode"] != "opencv":  # no still picture
            check(path, Path(one["output"]), one, said=bool(lines))


def check(source: Path, target: Path, report: dict[str, Any], *, said: bool) -> None:
    """Nothing that can be read is lost, unless it was counted or `said`."""
    frames, sounds = readable(source)
    written = readable(target)
    assert report["frames"] + report["damaged"] >= frames, source
    assert report["frames"] == written[0] or target.suffix == ".gif", source
    assert said or written[1] == sounds, source


# Loads and runs each network of a folder, in one process: one that ends it would be seen.
NETWORKS = """
import sys
from pathlib import Path
import numpy as np
from segmentation import SegmentationError, Segmenter
for path in sorted(Path(sys.argv[1]).iterdir()):
    try:
        with Segmenter(model=path, device="cpu") as segmenter:
            segmenter.masks(np.zeros((1, 32, 48, 3), np.uint8))
        print(path.name, "ran")
    except SegmentationError as exc:
        assert "\\n" not in str(exc), str(exc)
        print(path.name, "refused:", exc)
"""


@pytest.mark.parametrize("seed", first(1, range(60)))
def test_changed_networks(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    (tmp_path / "in").mkdir()
    whole = make_model(tmp_path / "net.onnx", RED).read_bytes()
    for number in range(COUNT):
        (tmp_path / "in" / f"{number:02}.onnx").write_bytes(changed(whole, dice))
    done = subprocess.run(
        [sys.executable, "-c", NETWORKS, tmp_path / "in"], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == COUNT and {line.split()[1] for line in lines} <= {"ran", "refused:"}
