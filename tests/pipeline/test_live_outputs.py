"""Outputs of live sources: files that are cut, and their names."""

import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import barcode
import numpy as np
import pytest
from numpy.typing import NDArray
from program import start
from rtsp_server import PASSWORD, USER, RtspServer

from segmentation import ConfigError, OutputError, Segmenter


def keep(batch: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.ones((len(batch), 32, 32), np.float32)


@pytest.fixture(scope="module")
def segmenter() -> Iterator[Segmenter]:
    options: dict[str, Any] = {"device": "cpu", "input_size": (64, 64), "smooth": 0.0}
    with Segmenter(model=keep, **options) as made:
        yield made


def frames_of(path: Path) -> list[tuple[int, float]]:
    """Of each frame of a file its number, and when it is shown, in seconds."""
    with av.open(str(path)) as file:
        return [(barcode.read(f.to_ndarray(format="gray"))[0], float(f.time or 0)) for f in file.decode(video=0)]


def test_files_are_cut_at_keyframes_and_lack_nothing(segmenter: Segmenter, tmp_path: Path) -> None:
    with RtspServer(fps=30) as camera:
        pattern = tmp_path / "%Y" / "{name}-%Y%m%d.mkv"
        options: dict[str, Any] = {"cut_every": 2.0, "max_frames": 75, "max_delay": 10.0}
        also = [("mask", tmp_path / "{name}-mask.mkv")]
        report = segmenter.run("hall=" + camera.url(), pattern, also=also, **options)
    year = time.strftime("%Y")
    assert report.input == "hall" and report.output == str(tmp_path / "%Y" / "hall-%Y%m%d.mkv")
    parts = sorted((tmp_path / year).iterdir(), key=lambda path: (len(path.name), path.name))
    assert [re.sub(r"\d{8}", "DATE", path.name) for path in parts] == ["hall-DATE.mkv", "hall-DATE-2.mkv"]
    found = [frames_of(part) for part in parts]
    assert [part[0][1] for part in found] == [0, 0]
    assert [len(part) for part in found] in ([60, 15], [61, 14])  # cuts are at the first keyframe after 2 s
    numbers = [number for part in found for number, _ in part]
    assert len(numbers) == report.frames == 75 and numbers == sorted(set(numbers))
    assert len(list(tmp_path.glob("hall-mask*.mkv"))) == 2


def test_no_part_replaces_a_file(segmenter: Segmenter, tmp_path: Path) -> None:
    (tmp_path / "hall.mkv").write_text("an earlier recording")
    with RtspServer() as camera:
        segmenter.run(f"hall={camera.url()}", tmp_path / "{name}.mkv", cut_every=60, max_frames=5, overwrite=True)
    assert (tmp_path / "hall.mkv").read_text() == "an earlier recording"
    assert len(frames_of(tmp_path / "hall-2.mkv")) == 5


def test_a_killed_process_leaves_all_but_the_last_second(tmp_path: Path) -> None:
    with RtspServer(auth="Basic", fps=30) as camera:
        source = f"hall={camera.url(f'{USER}:{PASSWORD}')}"
        options = ["-o", tmp_path / "{name}-%H.mkv", "--cut-every", "1:00", "--smooth", "0"]
        with start(source, *options) as process:
            process.until(lambda: any(path.stat().st_size > 30_000 for path in tmp_path.iterdir()))
            time.sleep(1.5)
            last = camera.sent[-1]
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=60)
    (file,) = tmp_path.iterdir()
    numbers = [number for number, _ in frames_of(file)]
    assert re.fullmatch(r"hall-\d\d\.mkv", file.name) and numbers == sorted(set(numbers))
    assert last - numbers[-1] < 2 * camera.fps  # a cluster of a second, and what is on its way


def test_the_command_names_files_and_reports_by_the_sources_names(tmp_path: Path) -> None:
    with RtspServer(auth="Digest") as hall, RtspServer() as gate:
        sources = [f"hall={hall.url(f'{USER}:{PASSWORD}')}", f"gate={gate.url()}"]
        arguments = ["--max-frames", "5", "--json", "-v", "--cut-every", "60", "--results", "{name}.jsonl"]
        with start(*sources, "-o", "rec/{name}-%Y.mkv", *arguments, cwd=tmp_path) as process:
            out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert sorted(json.loads(line)["input"] for line in out.splitlines()) == ["gate", "hall"]
    year = time.strftime("%Y")
    names = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*"))
    assert names == ["gate.jsonl", "hall.jsonl", f"rec/gate-{year}.mkv", f"rec/hall-{year}.mkv"]
    assert PASSWORD not in out + err


@pytest.mark.parametrize("name", ["out.mp4", "out.png"])
def test_only_matroska_is_cut(name: str, segmenter: Segmenter, tmp_path: Path) -> None:
    with RtspServer() as camera, pytest.raises(OutputError, match=r"end in \.mkv; name such a file with -o"):
        segmenter.run(camera.url(), tmp_path / name, cut_every=60)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cant_be_made_is_one_line(segmenter: Segmenter, tmp_path: Path) -> None:
    (tmp_path / "rec").write_text("a file")
    with RtspServer() as camera, pytest.raises(OutputError, match=r"out\.mkv: cannot be written \(File exists\)"):
        segmenter.run(camera.url(), tmp_path / "rec" / "out.mkv", cut_every=60)


def test_an_output_that_fails_is_one_line_and_the_parts_before_stay(segmenter: Segmenter, tmp_path: Path) -> None:
    folder, moved = tmp_path / "rec", tmp_path / "moved"

    def replace(done: int, expected: int) -> None:
        if done == 40:
            folder.rename(moved)
            folder.write_text("a file")

    with RtspServer() as camera, pytest.raises(OutputError, match=r"cannot be written \(File exists\)"):
        segmenter.run(camera.url(), folder / "out.mkv", cut_every=2, max_frames=200, max_delay=10, progress=replace)
    assert len(frames_of(moved / "out.mkv")) in (60, 61)


def test_files_as_inputs_are_not_cut(segmenter: Segmenter, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is for live sources; leave out --cut-every"):
        segmenter.run("samples/astronaut.mp4", tmp_path / "out.mkv", cut_every=60)
