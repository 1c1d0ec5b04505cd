"""The threads, chunks and sessions around NVDEC, with FFmpeg in its place: the frames are right, also of many files."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from videos import Synthetic

from segmentation.media.opening.probe import probe
from segmentation.options.config import Config
from segmentation.stages.decode.nvdec_session_pool import NvdecSessionPool
from segmentation.stages.decode.pyav import PyAVDecoder
from segmentation.system.access import Access

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("cuda.core", reason="cuda-core is not installed")

from host_nvdec import ENGINES, Session, host_nvdec
from messages import CAPTIONS, with_captions

Shown = tuple[int, int, list[bytes]]


def shown(path: Path, sessions: Any = None, **options: Any) -> list[Shown]:
    """Returns (pts, duration, planes) of each frame that the decoder puts out."""
    stage = host_nvdec(probe(str(path)), sessions, **options)
    frames = [
        (frame.pts, frame.duration, [plane[row].numpy().tobytes() for plane in batch.planes])
        for batch in stage
        for row, frame in enumerate(batch.frames)
    ]
    stage.close()
    return frames


def expected(path: Path, **options: Any) -> list[Shown]:
    decoder = PyAVDecoder(probe(str(path)), "yuv420p", Config(batch_size=8, **options))
    return [
        (frame.pts, frame.duration, [np.ascontiguousarray(plane).tobytes() for plane in frame.planes])
        for batch in decoder
        for frame in batch.frames
    ]


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of two formats, with several chunks, one of them with open groups of pictures."""
    folder = tmp_path_factory.mktemp("clips")
    made = []
    for number in range(6):
        options = f"keyint=12:min-keyint=12:scenecut=0:bframes=2:open-gop={number % 3 // 2}"
        size = (64, 48) if number % 2 else (96, 64)
        clip = Synthetic(codec="libx264", options={"x264-params": options}, pts=range(90 + 7 * number), size=size)
        made.append(clip.write(folder / f"{number}.mp4"))
    return made


@pytest.mark.parametrize("options", [{}, {"start": 1.0}, {"duration": 1.5}, {"max_frames": 33}])
def test_a_file_is_decoded_by_several_sessions(clips: list[Path], options: dict[str, Any]) -> None:
    for path in clips[:3]:
        assert shown(path, **options) == expected(path, **options)


@pytest.mark.parametrize("at_once", [1, 2, 3, 12])
def test_many_files_share_sessions(clips: list[Path], at_once: int) -> None:
    pool = NvdecSessionPool()
    made = Session.made
    every = [expected(path) for path in clips]
    with ThreadPoolExecutor(at_once) as threads:
        for _ in range(3):
            found = list(threads.map(lambda path: shown(path, pool), [*clips, *clips]))
            assert found == every + every
    assert pool.files == 0
    most = max(2 * ENGINES, 2 * at_once)  # in two formats
    assert Session.made - made <= (most if at_once < 3 else 3 * most)
    pool.close()
    assert Session.alive == 0


def test_a_file_that_ends_early_leaves_nothing_to_the_next(clips: list[Path]) -> None:
    pool = NvdecSessionPool()
    for _ in range(20):
        stage = host_nvdec(probe(str(clips[4])), pool)
        next(iter(stage))
        stage.close()
        assert shown(clips[0], pool, max_frames=20) == expected(clips[0], max_frames=20)
        assert shown(clips[2], pool) == expected(clips[2])
    pool.close()
    assert Session.alive == 0


def test_a_run_that_is_stopped_while_damage_is_counted_ends(clips: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """NVDEC's library has named some. Other files have the engines meanwhile."""
    pool, stop = NvdecSessionPool(), threading.Event()
    stage = host_nvdec(probe(str(clips[5]), Access(stop=stop)), pool)
    named, left, counted = iter([1 << 20] * 2), [], []  # more than other tests have damaged
    log_ = SimpleNamespace(count=lambda: next(named))
    monkeypatch.setitem(type(stage)._found_damage.__globals__, "damage_log", lambda: log_)

    class Counting(PyAVDecoder):
        def __iter__(self) -> Any:
            left.append(pool.files)
            for batch in super().__iter__():
                counted.append(batch)
                stop.set()
                yield batch

    monkeypatch.setitem(type(stage)._counted.__globals__, "PyAVDecoder", Counting)
    assert sum(len(batch) for batch in stage) == 125
    stage.close()
    assert left == [0] and len(counted) == 1


CODECS = {
    "libvpx-vp9": ("webm", {"lag-in-frames": "8"}),
    "libvpx": ("webm", {"lag-in-frames": "8"}),
    "libx265": ("ts", {"x265-params": "log-level=none:open-gop=1:keyint=10"}),
    "mpeg4": ("avi", {"bf": "2"}),
}


@pytest.mark.parametrize("codec", CODECS)
def test_codecs(codec: str, tmp_path: Path) -> None:
    suffix, options = CODECS[codec]
    path = Synthetic(codec=codec, options=options, gop=10, pts=range(80)).write(tmp_path / f"a.{suffix}")
    assert shown(path) == expected(path)


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_captions_come_from_the_packets(codec: str, tmp_path: Path) -> None:
    """The library hands on no side data."""
    info = probe(str(with_captions(tmp_path / "a.mp4", codec)))
    found, true = (
        [(frame.pts, frame.messages) for batch in decoder for frame in batch.frames]
        for decoder in (host_nvdec(info), PyAVDecoder(info, "yuv420p", Config()))
    )
    assert found == true and len(found) == len(CAPTIONS)
    assert [message[1][10:13] for _, messages in found for message in messages] == CAPTIONS
