"""Tests encoders in a process of their own: shared memory, faults, and that nothing is left behind."""

import itertools
import mmap
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from child_processes import children
from marks import first
from segmented import (
    LENGTH,
    batches,
    descriptors,
    equal,
    frames_mapped,
    moving,
    open_encoder,
    process,
    short,
    write,
)
from videos import video_info

from segmentation import Config, OutputError
from segmentation.frames import FORMATS, FrameBatch
from segmentation.stages.encode import segments
from segmentation.stages.encode.pyav import PyAVEncoder
from segmentation.stages.encode.segments import Layout, SegmentEncoder
from segmentation.system.shared_memory import Block, BlockPool


@pytest.fixture(autouse=True)
def layout(monkeypatch: pytest.MonkeyPatch) -> Layout:
    return short(monkeypatch)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Makes each block as large as one frame of `video_info`. Returns its bytes."""
    monkeypatch.setattr(segments, "_STAGING", 1)
    return 3 * mmap.PAGESIZE  # 96 * 64 * 3 / 2 bytes, in whole pages


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Overwrites blocks when they are reclaimed. Returns their offsets."""
    original, seen = BlockPool.reclaim, []

    def poison(self: BlockPool, block: Block) -> None:
        if self._map is not None:
            self._map[block.offset : block.offset + block.size] = b"\xaa" * block.size
        seen.append(block.offset)
        original(self, block)

    monkeypatch.setattr(BlockPool, "reclaim", poison)
    return seen


def come_up(encoder: PyAVEncoder) -> None:
    """Waits until the process has encoded a segment."""
    assert isinstance(encoder, SegmentEncoder) and encoder._lease is not None
    encoder.encode(next(batches(moving(LENGTH, encoder._settings.info), LENGTH)))
    while not encoder._segments:
        encoder._receive(encoder._lease, wait=True)


def within(seconds: float, happens: Callable[[], object]) -> bool:
    deadline = time.monotonic() + seconds
    while not happens() and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(happens())


def test_memory_is_bounded(tmp_path: Path, layout: Layout, small_blocks: int) -> None:
    """While nothing is encoded, no more frames are accepted than may wait."""
    info, packets = video_info(), []
    frames = moving(150, info)
    given = itertools.count()
    fed: list[int] = []
    with open_encoder(tmp_path / "out.mp4", info, Config(quality=0)) as (muxer, encoder):
        os.kill(process(encoder), signal.SIGSTOP)

        def feed() -> None:
            for batch in batches(frames, 1):
                packets.append(encoder.encode(batch))
                fed.append(next(given))

        thread = threading.Thread(target=feed, daemon=True)
        thread.start()
        assert within(240, lambda: len(fed) == layout.waiting)
        time.sleep(0.2)
        assert len(fed) == layout.waiting
        pool = encoder.blocks
        assert pool is not None and pool.used == layout.waiting * small_blocks
        os.kill(process(encoder), signal.SIGCONT)
        thread.join(240)
        assert len(fed) == 150
        for some in (*packets, encoder.flush()):
            muxer.write(some)
        assert pool.used <= (layout.waiting + 1) * small_blocks  # blocks are reused
        muxer.finish(None)
    assert equal(tmp_path / "out.mp4", frames, info)


def test_memory_is_made_ready_without_touching_what_is_there(tmp_path: Path, layout: Layout) -> None:
    """Memory that frames will soon fill is faulted in, and no more than that."""
    info = video_info((640, 360))
    frames = moving(LENGTH, info)
    expected = layout.waiting * 640 * 360 * 3 // 2
    with open_encoder(tmp_path / "out.mp4", info, Config(quality=0)) as (muxer, encoder):
        assert isinstance(encoder, SegmentEncoder) and encoder.blocks is not None
        held = encoder._in_shared_memory(encoder.blocks, next(batches(frames, LENGTH)))  # faulted in already
        file = encoder.blocks.fd
        assert os.fstat(file).st_blocks * 512 < expected
        encoder.prefault()
        assert within(5, lambda: os.fstat(file).st_blocks * 512 >= expected)
        time.sleep(0.05)
        assert os.fstat(file).st_blocks * 512 <= max(expected, held.block.size) + mmap.PAGESIZE
        for i, frame in enumerate(frames):
            assert all(np.array_equal(rows[i], p) for rows, p in zip(held.arrays, frame.planes, strict=True))
        for packets in (*map(encoder.encode, batches(frames)), encoder.flush()):
            muxer.write(packets)
        muxer.finish(None)
    assert equal(tmp_path / "out.mp4", frames, info)


@pytest.mark.parametrize("size", [(96, 64), (97, 65)])
def test_frames_are_copied_into_few_blocks(tmp_path: Path, size: tuple[int, int]) -> None:
    info = video_info(size)
    frames = moving(40, info)
    with open_encoder(tmp_path / "out.mkv", info, Config(quality=0)) as (muxer, encoder):
        pool = encoder.blocks
        for batch in batches(frames):
            kept = weakref.ref(batch.frames[0].planes[0])
            muxer.write(encoder.encode(batch))
        muxer.write(encoder.flush())
        muxer.finish(None)
        assert pool is not None and pool.used == segments._STAGING
    del batch, frames
    assert kept() is None


def test_memory_is_reclaimed_when_it_is_encoded_and_not_before(
    tmp_path: Path, poisoned: list[int], small_blocks: int, layout: Layout
) -> None:
    info = video_info()
    frames = moving(150, info)
    write(tmp_path / "out.mkv", info, frames, Config(quality=0))
    assert equal(tmp_path / "out.mkv", frames, info)
    assert len(poisoned) >= 38 and len(set(poisoned)) < len(poisoned)  # batches of 4


@pytest.mark.parametrize(("size", "pix_fmt"), [((96, 64), "yuv420p"), ((97, 65), "yuv420p10le")])
def test_frames_in_the_encoders_own_memory(
    size: tuple[int, int], pix_fmt: str, tmp_path: Path, poisoned: list[int], layout: Layout
) -> None:
    """They are not copied. The last batch has fewer frames than rows, and only the encoder refers to the memory."""
    info, dtype = video_info(size), FORMATS[pix_fmt].dtype
    frames = moving(150, info, pix_fmt)
    with open_encoder(tmp_path / "out.mkv", info, Config(quality=0, codec="h264"), pix_fmt) as (muxer, encoder):
        pool = encoder.blocks
        assert isinstance(encoder, SegmentEncoder) and pool is not None
        for batch in batches(frames):
            shared = pool.planes([(4, *plane.shape) for plane in frames[0].planes], dtype)
            for n, frame in enumerate(batch.frames):
                for rows, plane in zip(shared.arrays, frame.planes, strict=True):
                    rows[n] = plane
            lent = [
                replace(frame, planes=tuple(rows[n] for rows in shared.arrays)) for n, frame in enumerate(batch.frames)
            ]
            muxer.write(encoder.encode(replace(batch, frames=tuple(lent), shared=shared)))
            assert encoder._staging is None
            size_of_one = shared.block.size
            del shared, lent, rows, batch
        muxer.write(encoder.flush())
        muxer.finish(None)
        # Half a batch for each encoder counts as encoded, and one batch is being filled.
        assert pool.used <= size_of_one * (-(-(layout.waiting + 4) // 4) + 1)
    assert len(poisoned) == 38
    assert equal(tmp_path / "out.mkv", frames, info)


def test_memory_of_another_encoder_is_copied(tmp_path: Path) -> None:
    info = video_info()
    frames = moving(4, info)
    with open_encoder(tmp_path / "a.mkv", info, Config(quality=0)) as (muxer, encoder):
        pool = BlockPool()
        shared = pool.planes([(4, *plane.shape) for plane in frames[0].planes], np.uint8)
        muxer.write(encoder.encode(FrameBatch(frames=tuple(frames), index=0, shared=shared)))
        muxer.write(encoder.flush())
        muxer.finish(None)
        pool.close()
    assert equal(tmp_path / "a.mkv", frames, info)


@pytest.mark.parametrize("at", [5, 25, 58])
def test_an_encoders_error_surfaces(at: int, tmp_path: Path) -> None:
    """A frame of another size causes an unexpected error, with a note of the place in the other process."""
    info = video_info()
    wrong = moving(1, video_info((80, 48)))[0]
    with pytest.raises(ValueError, match="does not match") as caught:
        write(tmp_path / "out.mp4", info, moving(at, info), Config(), then=[replace(wrong, pts=at)])
    assert "segment_worker.py" in caught.value.__notes__[0]
    assert not children() and not list(tmp_path.iterdir())


def test_an_encoders_error_surfaces_again_and_again(tmp_path: Path) -> None:
    """The other process can open no file any more, so packets can't be sent."""
    info = video_info()
    with open_encoder(tmp_path / "out.mp4", info, Config()) as (_, encoder):
        encoder.encode(next(batches(moving(4, info))))
        resource.prlimit(process(encoder), resource.RLIMIT_NOFILE, (3, 3))
        with pytest.raises((OSError, OutputError)) as caught:
            encoder.flush()
        with pytest.raises(type(caught.value)):
            encoder.flush()
    assert not children()


@pytest.mark.parametrize("started", first(1, [True, False]))
@pytest.mark.parametrize("doing", ["encode", "wait", "flush"])
def test_a_killed_process_is_an_error_at_once(doing: str, started: bool, tmp_path: Path) -> None:
    info, before = video_info(), descriptors()
    with open_encoder(tmp_path / "out.mp4", info, Config()) as (_, encoder):
        if started:
            come_up(encoder)
        os.kill(process(encoder), signal.SIGSTOP)
        timer = threading.Timer(0 if doing == "encode" else 0.3, os.kill, (process(encoder), signal.SIGKILL))
        timer.start()
        with pytest.raises(OutputError, match=r"signal 9.*memory is full") as caught:
            if doing == "flush":
                encoder.encode(next(batches(moving(4, info))))
                encoder.flush()
            for batch in batches(4 * moving(40, info)):
                encoder.encode(batch)
                time.sleep(0.01 if doing == "encode" else 0)
        assert "\n" not in str(caught.value)
        timer.join()
        del caught  # its traceback refers to the frames
    del _, encoder  # the muxer's file keeps its descriptor as long as there is the muxer
    assert not children() and not frames_mapped() and descriptors() == before


def test_a_process_that_cannot_start_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    info, before = video_info(), descriptors()
    monkeypatch.setattr("sys.executable", str(tmp_path / "nothing"))
    with pytest.raises(OutputError, match="no process can be started"):
        write(tmp_path / "out.mp4", info, moving(4, info), Config())
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(OutputError, match="has ended with code 1"):
        write(tmp_path / "out.mp4", info, moving(4, info), Config())
    assert not children() and not frames_mapped() and descriptors() == before


@pytest.mark.slow
@pytest.mark.parametrize("count", [0, 1, 35])
@pytest.mark.parametrize("flush", [False, True])
def test_nothing_is_left_after_close(count: int, flush: bool, tmp_path: Path) -> None:
    info, before = video_info(), descriptors()
    with open_encoder(tmp_path / "out.mp4", info, Config(codec="hevc", preset="slow")) as (_, encoder):
        assert children() == [process(encoder)]
        for batch in batches(moving(count, info)) if count else ():
            encoder.encode(batch)
        if flush:
            assert not count or encoder.flush()
        encoder.close()
        assert not children() and not frames_mapped()
        encoder.close()
        with pytest.raises(OutputError, match="closed"):
            encoder.encode(next(batches(moving(1, info))))
    del _, encoder
    assert descriptors() == before


def test_a_process_that_does_not_end_is_killed(tmp_path: Path) -> None:
    info = video_info()
    with open_encoder(tmp_path / "out.mp4", info, Config()) as (_, encoder):
        encoder.encode(next(batches(moving(4, info))))
        os.kill(process(encoder), signal.SIGSTOP)
        encoder.close()
        assert not children()


def test_close_while_another_thread_waits(tmp_path: Path) -> None:
    info, errors = video_info(), []
    with open_encoder(tmp_path / "out.mp4", info, Config()) as (_, encoder):
        os.kill(process(encoder), signal.SIGSTOP)

        def feed() -> None:
            try:
                for batch in batches(moving(60, info)):
                    encoder.encode(batch)
            except OutputError as exc:
                errors.append(exc)

        thread = threading.Thread(target=feed, daemon=True)
        thread.start()
        time.sleep(0.3)
        encoder.close()
        thread.join(240)
        assert not thread.is_alive() and len(errors) == 1 and not children()


def test_signals_to_end_are_not_for_the_process(tmp_path: Path) -> None:
    """A terminal or a service manager signals all processes. The program alone handles that, and ends the others."""
    info = video_info()
    frames = moving(2 * LENGTH, info)
    with open_encoder(tmp_path / "out.mkv", info, Config(quality=0)) as (muxer, encoder):
        assert os.getpgid(process(encoder)) != os.getpgid(0)
        come_up(encoder)
        os.kill(process(encoder), signal.SIGINT)
        os.kill(process(encoder), signal.SIGTERM)
        time.sleep(0.1)
        for batch in batches(frames[LENGTH:]):
            muxer.write(encoder.encode(batch))
        muxer.write(encoder.flush())
        muxer.finish(None)
    assert equal(tmp_path / "out.mkv", frames, info)


ORPHAN = """
import sys, time
from pathlib import Path
sys.path[:0] = {path!r}
from videos import video_info
from segmentation import Config
from segmentation.stages.encode.segments import SegmentEncoder
from segmentation.media.muxer import Muxer
with Muxer(Path({target!r}), video_info(), Config()) as muxer:
    encoder = SegmentEncoder(muxer, video_info(), "yuv420p", Config())
    print(encoder._lease.pid, flush=True)
    time.sleep({wait})
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("wait", [0, 1])
def test_the_process_ends_with_the_one_that_started_it(wait: int, tmp_path: Path) -> None:
    code = ORPHAN.format(path=sys.path, target=str(tmp_path / "a.mp4"), wait=wait)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert Path(f"/proc/{pid}").exists() and parent.stdout.readline() == "ready\n"
        parent.kill()
    assert within(240, lambda: not Path(f"/proc/{pid}").exists() or "Z (" in Path(f"/proc/{pid}/status").read_text())


def test_the_process_starts_light() -> None:
    """It imports no library that it does not need."""
    code = "import segmentation.stages.encode.segment_worker, sys; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "cv2", "onnx", "onnxruntime", "rich", "segmentation.pipeline.run"} & set(result.stdout.split())


def test_two_at_once(tmp_path: Path) -> None:
    info, errors = video_info(), []
    frames = [moving(45, info), moving(37, info)[::-1]]
    frames[1] = [replace(frame, pts=i) for i, frame in enumerate(frames[1])]

    def work(number: int) -> None:
        try:
            write(tmp_path / f"{number}.mkv", info, frames[number], Config(quality=0))
        except BaseException as exc:
            errors.append(exc)

    threads = [threading.Thread(target=work, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert not errors and not children() and not frames_mapped()
    assert all(equal(tmp_path / f"{number}.mkv", frames[number], info) for number in (0, 1))
