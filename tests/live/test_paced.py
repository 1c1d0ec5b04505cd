"""Live sources that send faster than they are shown: files that are played, and HLS."""

import json
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import barcode
import numpy as np
import pytest
from hls_server import HlsServer, numbers
from numpy.typing import NDArray
from program import cli
from videos import Synthetic

from segmentation import InputError, Report, Segmenter, Streams
from segmentation.frames.source import file_address

HLS: dict[str, Any] = {"allow": ("playlists",), "max_delay": 10.0}


def keep(batch: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.ones((len(batch), 32, 32), np.float32)


@pytest.fixture(scope="module")
def segmenter() -> Iterator[Segmenter]:
    options: dict[str, Any] = {"device": "cpu", "input_size": (64, 64), "smooth": 0.0}
    with Segmenter(model=keep, **options) as made:
        made.masks(np.zeros((64, 64, 3), np.uint8))
        yield made


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 frames in 2 seconds, with sound and a keyframe each second."""
    frames = [barcode.drawn(number, (160, 120)) for number in range(40)]
    made = Synthetic(frames=frames, pts=range(40), codec="libx264", audio="aac", gop=20)
    made.time_base = made.time_base * 25 / 20
    made.options = {"sc_threshold": "0"}
    return made.write(tmp_path_factory.mktemp("clip") / "a clip.mp4")


def frames_of(path: Path) -> list[tuple[int, float]]:
    with av.open(str(path)) as file:
        return [(barcode.read(f.to_ndarray(format="gray"))[0], float(f.time or 0)) for f in file.decode(video=0)]


def accounted(report: Report) -> bool:
    return report.received == report.frames + sum(report.dropped.values())


def test_a_file_is_played_at_its_own_speed(segmenter: Segmenter, clip: Path, tmp_path: Path) -> None:
    begin = time.monotonic()
    report = segmenter.run(file_address(clip), tmp_path / "out.mkv", max_delay=10.0)
    end = time.monotonic()
    found = frames_of(tmp_path / "out.mkv")
    assert [number for number, _ in found] == list(range(40)) and report.complete
    assert report.plan["decode"] == "live" and report.frames == report.received == 40 and report.reconnects == 0
    assert [time for _, time in found] == pytest.approx([number / 20 for number in range(40)], abs=0.03)
    assert end - begin > 39 / 20  # a file alone takes less, where the machine is not busy
    with av.open(str(tmp_path / "out.mkv")) as file:
        assert file.streams.audio[0].codec_context.name == "aac"


def test_a_file_may_begin_later(segmenter: Segmenter, clip: Path, tmp_path: Path) -> None:
    report = segmenter.run(f"b={file_address(clip)}#t=1.2", tmp_path / "{name}.mkv", max_delay=10.0)
    assert [number for number, _ in frames_of(tmp_path / "b.mkv")] == list(range(20, 40)) and report.input == "b"


@pytest.mark.parametrize(
    ("address", "fault"),
    [
        ("file:///none.mp4", "file:///none.mp4: no such file"),
        ("file://none.mp4", "file://none.mp4: write file:/// and the whole path of the file"),
        ("{clip}#t=soon", ": begins at 'soon'; write seconds, such as #t=12.5"),
        ("file://{text}", "is not a video that FFmpeg can read, or its header is cut off or damaged"),
    ],
)
def test_what_cant_be_played_is_one_line(
    address: str, fault: str, segmenter: Segmenter, clip: Path, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("no video" * 100)
    with pytest.raises(InputError) as caught:
        segmenter.run(address.format(clip=file_address(clip), text=tmp_path / "text"), tmp_path / "out.mkv")
    assert str(caught.value).endswith(fault)


def test_several_files_at_once_and_from_several_places(clip: Path, tmp_path: Path) -> None:
    with Streams(model=keep, device="cpu", input_size=(64, 64), smooth=0.0, max_delay=10.0) as streams:
        for number in range(3):
            address = file_address(clip) + f"#t={number / 2}"
            streams.add(f"s{number}", address, tmp_path / "{name}.mkv")
        kinds = [event.kind for event in streams.events()]
    assert sorted(kinds) == ["ended"] * 3 + ["started"] * 3
    assert [frames_of(tmp_path / f"s{number}.mkv")[0][0] for number in range(3)] == [0, 0, 20]
    assert all(accounted(report) and report.complete for report in streams.report.values())


@pytest.mark.slow
def test_the_command_plays_files(clip: Path, tmp_path: Path) -> None:
    done = cli(clip, "--pace", "--max-delay", "60", "--json", "-o", "{name}.mkv", "--smooth", "0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["input"], report["output"]) == ("a-clip", "a-clip.mkv")
    assert report["plan"]["decode"] in ("live", "live-nvdec")
    assert report["received"] == 40 == report["frames"] + sum(report["dropped"].values())
    refused = cli("http://127.0.0.1:1/a.mp4", "--pace", cwd=tmp_path)
    assert refused.returncode == 2 and "http://127.0.0.1:1/a.mp4 is none; leave out --pace" in refused.stderr


@pytest.mark.slow
def test_hls_is_followed_to_its_end(segmenter: Segmenter, tmp_path: Path) -> None:
    with HlsServer() as server:

        def watch(done: int, expected: int) -> None:
            if len(server.segments) >= 6:
                server.ended.set()

        report = segmenter.run(f"hall={server.url}", tmp_path / "out.mkv", progress=watch, **HLS)
        sent = numbers(server.segments)
    found = frames_of(tmp_path / "out.mkv")
    assert report.complete and report.reconnects == 0 and accounted(report) and not report.dropped
    assert [number for number, _ in found] == sent  # segments leave the playlist in the meantime
    assert all(b - a == pytest.approx(0.1, abs=0.03) for (_, a), (_, b) in pairwise(found))


@pytest.mark.parametrize("loss", ["broken", pytest.param("silent", marks=pytest.mark.slow)])
def test_hls_comes_back_after_a_loss(loss: str, segmenter: Segmenter, tmp_path: Path) -> None:
    with HlsServer() as server:
        event: threading.Event = getattr(server, loss)

        def watch(done: int, expected: int) -> None:
            status = segmenter.streams.monitors[-1].status()
            if done == 5:
                event.set()
            if status.repeated >= 3:
                event.clear()

        limits: dict[str, Any] = {"stall": 1.5, "reconnect": "0.1..0.2", "on_loss": "freeze"}
        report = segmenter.run(
            f"hall={server.url}", tmp_path / "out.mkv", progress=watch, max_frames=60, **HLS, **limits
        )
    with av.open(str(tmp_path / "out.mkv")) as file:
        count = sum(1 for _ in file.decode(video=0))
    assert report.reconnects >= 1 and report.frames == 60 and count == 60 + report.repeated and accounted(report)
    assert not report.dropped or set(report.dropped) == {"end"}


def test_hls_must_be_allowed(segmenter: Segmenter, tmp_path: Path) -> None:
    with HlsServer() as server, pytest.raises(InputError) as caught:
        segmenter.run(f"hall={server.url}", tmp_path / "out.mkv")
    assert str(caught.value).startswith("hall: is a playlist") and "--allow playlists" in str(caught.value)


def test_without_a_name_hls_is_read_as_a_file(segmenter: Segmenter, tmp_path: Path) -> None:
    with HlsServer() as server:
        server.ended.set()
        report = segmenter.run(server.url, tmp_path / "out.mkv", allow=("playlists",))
    assert report.plan["decode"] == "pyav" and report.frames == 30
