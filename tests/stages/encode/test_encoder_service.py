"""Processes of encoders that outlive a file: reused, replaced, ended, and flat in memory."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from child_processes import children
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
from segmentation.stages.encode import worker_process
from segmentation.stages.encode.segments import Layout
from segmentation.stages.encode.worker_process import EncoderService

Codec = Literal["h264", "hevc"]
INFO = video_info()


@pytest.fixture(autouse=True)
def layout(monkeypatch: pytest.MonkeyPatch) -> Layout:
    return short(monkeypatch)


@pytest.fixture
def service() -> Iterator[EncoderService]:
    """A service that leaves no process, mapping or open file behind."""
    before = descriptors()
    with EncoderService() as service:
        yield service
    assert not children() and not frames_mapped() and descriptors() <= before


def lossless(codec: Codec = "h264") -> Config:
    return Config(codec=codec, quality=0, overwrite=True)


@pytest.mark.slow
def test_one_process_encodes_file_after_file(
    service: EncoderService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes, formats and codecs differ. The packets are those of a process for each file."""
    started: list[object] = []
    popen = subprocess.Popen

    def counted(*arguments: object, **options: object) -> object:
        started.append(arguments)
        return popen(*arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", counted)
    files: list[tuple[Codec, tuple[int, int], str]] = [
        ("h264", (96, 64), "yuv420p"),
        ("hevc", (160, 96), "yuv420p10le"),
        ("h264", (97, 65), "yuv444p"),
        ("h264", (96, 64), "yuv420p"),
    ]
    packets = []
    for number, (codec, size, pix_fmt) in enumerate(files):
        info, path = video_info(size), tmp_path / f"{number}.mkv"
        frames = moving(3 * LENGTH + number, info, pix_fmt)
        packets.append(write(path, info, frames, lossless(codec), pix_fmt=pix_fmt, service=service))
        assert equal(path, frames, info)
    assert len(started) == service.started == 1 and len(children()) == 1
    for number, (codec, size, pix_fmt) in enumerate(files):
        info = video_info(size)
        frames = moving(3 * LENGTH + number, info, pix_fmt)
        assert write(tmp_path / "new.mkv", info, frames, lossless(codec), pix_fmt=pix_fmt) == packets[number]


@pytest.mark.slow
def test_memory_stays_flat(service: EncoderService, tmp_path: Path) -> None:
    """Blocks of another size are freed, and of one size reused. Threads and open files of a file end with it."""
    sizes = [(320, 240), (640, 360), (322, 240)]
    frames = {size: moving(LENGTH + 1, video_info(size)) for size in sizes}
    states = []
    for number in range(18):
        size = sizes[number % 3]
        with open_encoder(tmp_path / "a.mkv", video_info(size), lossless(), service=service) as (muxer, encoder):
            pid, pool = process(encoder), encoder.blocks
            assert pool is not None
            encoder.prefault()
            for batch in batches(frames[size]):
                muxer.write(encoder.encode(batch))
            muxer.write(encoder.flush())
            muxer.finish(None)
        memory = os.fstat(pool.fd).st_blocks * 512
        open_files = len(os.listdir(f"/proc/{pid}/fd"))
        states.append((size, pool.used, open_files, descriptors()))
        assert memory <= 3 * LENGTH * 640 * 360 * 3 // 2 + (1 << 20)  # of one file, faulted in
    assert service.started == 1 and len(set(states)) == 3  # those of the three sizes
    status = Path(f"/proc/{pid}/status").read_text()
    assert int(status.partition("RssAnon:")[2].split()[0]) < 200_000  # kB: Python, NumPy and FFmpeg take 40,000


def test_a_short_file_gets_little_memory(service: EncoderService, tmp_path: Path) -> None:
    """Faulting in more than its frames take would cost many short files more than encoding them."""
    info = replace(video_info((640, 360)), frames=5)
    with open_encoder(tmp_path / "a.mkv", info, lossless(), service=service) as (_, encoder):
        assert encoder.blocks is not None
        encoder.prefault()
        states = [-1, 0]
        while states[-1] != states[-2] or not states[-1]:
            time.sleep(0.1)
            states.append(os.fstat(encoder.blocks.fd).st_blocks * 512)
        assert 5 <= states[-1] / (640 * 360 * 3 // 2) < 6
        for batch in batches(moving(5, info)):
            encoder.encode(batch)
        encoder.flush()


def test_an_idle_worker_keeps_little(service: EncoderService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "_IDLE_BYTES", 1 << 20)
    info = video_info((640, 360))
    with open_encoder(tmp_path / "a.mkv", info, lossless(), service=service) as (_, encoder):
        pool = encoder.blocks
        assert pool is not None
        encoder.prefault()
        for batch in batches(moving(LENGTH, info)):
            encoder.encode(batch)
        encoder.flush()
    assert service.started == 1 and os.fstat(pool.fd).st_blocks * 512 <= 1 << 20


def test_blocks_stay_locked_for_the_next_file(service: EncoderService, tmp_path: Path) -> None:
    """Page-locking takes time: a block of the same size is locked once, and unlocked when another size comes."""
    locked: list[int] = []
    calls: list[int] = []

    def lock(address: int, size: int) -> object:
        locked.append(address)
        calls.append(address)
        return lambda: locked.remove(address)

    for size, count, left in (((96, 64), 1, 1), ((96, 64), 1, 1), ((160, 96), 2, 1)):
        info = video_info(size)
        frames = moving(4, info)
        with open_encoder(tmp_path / "a.mkv", info, lossless(), service=service) as (_, encoder):
            assert encoder.blocks is not None
            shared = encoder.blocks.planes([(4, *plane.shape) for plane in frames[0].planes], np.uint8)
            encoder.blocks.lock_once(shared.block, lock)  # type: ignore[arg-type]
            del shared
            encoder.flush()
        assert len(calls) == count and len(locked) == left
    service.close()
    assert not locked


def test_a_process_that_was_killed_while_idle_is_replaced(service: EncoderService, tmp_path: Path) -> None:
    frames = moving(LENGTH, INFO)
    write(tmp_path / "a.mkv", INFO, frames, lossless(), service=service)
    (killed,) = children()
    os.kill(killed, signal.SIGKILL)
    os.waitid(os.P_PID, killed, os.WEXITED | os.WNOWAIT)
    write(tmp_path / "b.mkv", INFO, frames, lossless(), service=service)
    assert equal(tmp_path / "b.mkv", frames, INFO)
    assert service.started == 2 and killed not in children() and len(children()) == 1


def test_an_error_leaves_the_next_file_unharmed(service: EncoderService, tmp_path: Path) -> None:
    frames = moving(LENGTH, INFO)
    write(tmp_path / "a.mkv", INFO, frames, lossless(), service=service)
    with pytest.raises(ValueError, match="does not match"):
        write(tmp_path / "b.mkv", INFO, frames, lossless(), then=moving(1, video_info((80, 48))), service=service)
    assert not children()
    write(tmp_path / "c.mkv", INFO, frames, lossless(), service=service)
    assert equal(tmp_path / "c.mkv", frames, INFO) and service.started == 2


def test_an_encoder_that_is_not_flushed_ends_its_process(service: EncoderService, tmp_path: Path) -> None:
    with open_encoder(tmp_path / "a.mkv", INFO, lossless(), service=service) as (_, encoder):
        encoder.encode(next(batches(moving(4, INFO))))
    assert not children() and service.started == 1


def test_a_flushed_encoder_leaves_the_process_alone(service: EncoderService, tmp_path: Path) -> None:
    """Another encoder may have it by then."""
    frames = moving(LENGTH, INFO)
    with open_encoder(tmp_path / "a.mkv", INFO, lossless(), service=service) as (_, first):
        assert first.flush() == []  # also without a frame
        with open_encoder(tmp_path / "b.mkv", INFO, lossless(), service=service) as (muxer, second):
            assert process(first) == process(second) and first.blocks is None
            with pytest.raises(OutputError, match="closed"):
                first.encode(next(batches(frames)))
            first.close()
            for batch in batches(frames):
                muxer.write(second.encode(batch))
            muxer.write(second.flush())
            muxer.finish(None)
    assert equal(tmp_path / "b.mkv", frames, INFO) and service.started == 1


def test_files_at_once_have_a_process_each(service: EncoderService, tmp_path: Path) -> None:
    frames, errors = moving(2 * LENGTH + 1, INFO), []
    together = threading.Barrier(3)

    def work(number: int) -> None:
        try:
            for turn in range(3):
                with open_encoder(tmp_path / f"{number}{turn}.mkv", INFO, lossless(), service=service) as (muxer, enc):
                    together.wait(240)
                    for batch in batches(frames):
                        muxer.write(enc.encode(batch))
                    muxer.write(enc.flush())
                    muxer.finish(None)
                together.wait(240)
        except BaseException as exc:
            errors.append(exc)
            together.abort()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert not errors and service.started == 3 and len(children()) == 3
    assert all(equal(path, frames, INFO) for path in tmp_path.iterdir()) and len(list(tmp_path.iterdir())) == 9


def test_closing_the_service_ends_idle_processes(service: EncoderService, tmp_path: Path) -> None:
    """A process that is lent ends when it comes back."""
    frames = moving(LENGTH, INFO)
    with open_encoder(tmp_path / "a.mkv", INFO, lossless(), service=service) as (muxer, encoder):
        write(tmp_path / "b.mkv", INFO, frames, lossless(), service=service)
        assert len(children()) == 2
        service.close()
        service.close()
        assert children() == [process(encoder)]
        for batch in batches(frames):
            muxer.write(encoder.encode(batch))
        muxer.write(encoder.flush())
        assert not children()
        muxer.finish(None)
    assert equal(tmp_path / "a.mkv", frames, INFO)
