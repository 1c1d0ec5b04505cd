"""Live sources on NVDEC: each frame once, in order, at once, as the CPU decodes it; through losses, damage and changes.

On the side "host" FFmpeg decodes in NVDEC's place, behind the native library and the same threads and pools.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import av
import barcode
import numpy as np
import pytest
from h264_order import unstated
from native_nvdec import require_native
from numbered import all_frames, damage, numbered
from numpy.typing import NDArray
from rtsp_server import RtspServer
from stages import GPU_SIDES, gpu
from videos import planes as planes_of

from segmentation.errors import InputError
from segmentation.frames import FORMATS, FrameBatch, packet_decoder
from segmentation.frames.live_frames import LiveFrame, LiveFrames
from segmentation.frames.packet_decoder import DevicePicture
from segmentation.frames.source import Source
from segmentation.live import decoding as live_decoding
from segmentation.live.reader import probe_any
from segmentation.options.config import Config
from segmentation.stages.decode.nvdec_session_pool import NvdecSessionPool
from segmentation.stages.decode.stream_format import StreamFormat
from segmentation.system.access import Access

BATCH = 4  # frames
ACCESS: dict[str, Any] = {"reconnect": (0.1, 0.2), "max_delay": 60.0}

pytestmark = pytest.mark.parametrize("side", GPU_SIDES)


@dataclass
class Seen:
    """Frames that a decoder has handed out."""

    live: LiveFrames
    decoder: Any
    frames: list[list[NDArray[Any]]] = field(default_factory=list)  # Y, U and V of each
    pts: list[int] = field(default_factory=list)
    on_device: list[bool] = field(default_factory=list)  # whether each was decoded there
    sizes: list[int] = field(default_factory=list)  # of the batches

    @property
    def numbers(self) -> list[int]:
        return [barcode.read(frame[0])[0] for frame in self.frames]

    def until(self, reached: Callable[[], bool]) -> None:
        """Takes frames until that is so, or the source has ended."""
        deadline = time.monotonic() + 240
        for batch in self.decoder:
            assert time.monotonic() < deadline, self.numbers
            self._add(batch)
            self.live.written(0 if batch.repeated else len(batch))
            if reached():
                return

    def until_back(self, losses: int) -> None:
        """Takes twenty frames or more after so many losses, until ten in a row were decoded on the device."""
        self.until(lambda: self.live.reconnects == losses)
        before = len(self.frames)
        self.until(lambda: len(self.frames) >= before + 20 and all(self.on_device[-10:]))

    def _add(self, batch: FrameBatch) -> None:
        import torch

        if not batch.frames:
            return
        assert all(len(plane) >= len(batch) for plane in batch.planes)
        self.sizes.append(len(batch))
        for row, times in enumerate(batch.frames):
            if batch.planes[0].is_cuda:
                with torch.cuda.stream(gpu().stream):
                    frame = [plane[row].cpu().numpy() for plane in batch.planes]
            else:
                frame = [plane[row].numpy().copy() for plane in batch.planes]
            self.frames.append(frame)
            self.pts.append(times.pts)


@pytest.fixture(autouse=True)
def engine(side: str) -> Iterator[Any]:
    """What decodes on the host; `None` on a GPU. In the end it has no sessions."""
    _compile(side)
    if side == "cuda":
        require_native()
        yield None
        return
    from host_nvdec import DrivenByFFmpeg

    with DrivenByFFmpeg() as made:
        yield made
        assert made.alive == 0


@cache
def _compile(side: str) -> None:
    """Compiles the kernels: a source would be over, or late, by then."""
    if side == "cuda":
        from segmentation.stages.frame_kernels import FRAMES

        gpu().kernels(FRAMES, FORMATS["yuv420p"])
        return
    pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("cuda.core", reason="cuda-core is not installed")
    from host_nvdec import NvdecGpu

    from segmentation.stages.frame_kernels import FRAMES

    NvdecGpu().kernels(FRAMES, FORMATS["yuv420p"])


class CountingPool(NvdecSessionPool):
    made = 0  # sessions that had to be made

    def take(self, stream_format: StreamFormat) -> Any:
        session = super().take(stream_format)
        self.made += session is None
        return session


@pytest.fixture
def pool(engine: Any) -> Iterator[CountingPool]:
    pool = CountingPool()
    yield pool
    pool.close()


@contextmanager
def decoding(
    side: str, address: str, pool: NvdecSessionPool | None = None, *, stall: float = 0.6, **options: Any
) -> Iterator[Seen]:
    info = probe_any(Source.parse(address), Access(**ACCESS, stall=stall))
    live = info.live
    assert live is not None
    decoder = _decoder(side, info, pool, options)
    seen = Seen(live, decoder)
    put = live.put

    def note(frame: LiveFrame) -> None:
        seen.on_device.append(isinstance(frame.picture, DevicePicture))
        put(frame)

    live.put = note  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        decoder.close()
        live.close()
        counts = live.counts()
        assert counts.received == counts.shown + counts.waiting + sum(counts.dropped.values())


def _decoder(side: str, info: Any, pool: NvdecSessionPool | None, options: dict[str, Any]) -> Any:
    if side == "cuda":
        from segmentation.live.nvdec_decoder import LiveNvdecDecoder

        return LiveNvdecDecoder(info, "yuv420p", Config(batch_size=BATCH, **options), gpu(), sessions=pool)
    from host_nvdec import host_live_nvdec

    return host_live_nvdec(info, pool, batch_size=BATCH, **options)


H264 = {"x264-params": "keyint=20:scenecut=0:bframes=0"}
H264_B = {"x264-params": "keyint=20:scenecut=0:bframes=3"}
HEVC = {"x265-params": "keyint=20:scenecut=0:bframes=0:open-gop=0:log-level=none"}
HEVC_B = {"x265-params": "keyint=20:scenecut=0:bframes=3:open-gop=0:log-level=none"}


@pytest.mark.parametrize(
    ("codec", "options", "suffix"),
    [
        ("libx264", H264, "mp4"),
        ("libx264", H264_B, "mp4"),
        ("libx264", H264_B, "ts"),
        ("libx265", HEVC, "mp4"),
        ("libx265", HEVC_B, "ts"),
    ],
)
def test_frames_are_those_of_the_cpu(
    side: str, codec: str, options: dict[str, str], suffix: str, tmp_path: Path
) -> None:
    path = numbered(tmp_path / f"clip.{suffix}", 70, codec, options, size=(320, 192))
    expected = [list(planes_of(frame)) for frame in all_frames(path)]
    with decoding(side, f"file://{path}") as seen:
        seen.until(lambda: False)
        assert seen.numbers == list(range(70)) and not seen.live.dropped
        assert sum(seen.on_device) >= 40
        for found, wanted in zip(seen.frames, expected, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))
        assert np.diff(seen.pts) == pytest.approx(3000, abs=95)  # ticks of a 90,000th


def test_frames_that_have_waited_are_gathered(side: str, tmp_path: Path) -> None:
    path = numbered(tmp_path / "clip.mp4", 70, "libx264", H264, size=(320, 192))
    expected = [list(planes_of(frame)) for frame in all_frames(path)]
    with decoding(side, f"file://{path}") as seen:
        seen.until(lambda: time.sleep(0.1) is not None)
        assert seen.numbers == list(range(70)) and not seen.live.dropped
        assert max(seen.sizes) == BATCH
        for found, wanted in zip(seen.frames, expected, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_no_frame_is_held_back(side: str, camera: RtspServer) -> None:
    with decoding(side, camera.url(), stall=1000.0) as seen:
        seen.until(lambda: sum(seen.on_device) > 60)
        camera.silent.set()
        found = seen.numbers
        while found[-1] < camera.sent[-1] - 1:  # FFmpeg hands a packet out when the next one begins
            seen.until(lambda: True)
        assert found == [number for number in camera.sent if found[0] <= number <= found[-1]]
        assert seen.live.dropped.keys() <= {"end"} and not seen.live.damaged


@pytest.mark.parametrize("known", [True, False], ids=["seen on the CPU", "not yet seen"])
def test_frames_are_not_held_back_where_a_camera_does_not_state_their_order(
    side: str, engine: Any, known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not known:
        monkeypatch.setattr(packet_decoder, "_ENOUGH", 1000)
    if engine is not None:
        engine.hold(2)
    path = unstated(tmp_path / "unstated.ts", 120, (320, 192))
    with decoding(side, f"file://{path}") as seen:
        held = []
        decode = seen.decoder._decoder.decode

        def note(packet: Any) -> Any:
            decoded = decode(packet)
            held.append(len(seen.decoder._decoder._times))
            return decoded

        seen.decoder._decoder.decode = note
        seen.until(lambda: False)
        assert seen.numbers == list(range(120)) and not seen.live.dropped
        assert sum(seen.on_device) >= 60 and set(held[0 if known else -40 :]) == {0}
        if side == "host":
            assert (max(held) > 0) is not known
        print("frames held back at first:", max(held))


def test_it_goes_on_after_losses_also_in_another_size(side: str, camera: RtspServer) -> None:
    with decoding(side, camera.url()) as seen:
        seen.until(lambda: sum(seen.on_device) > 20)
        camera.hang_up()
        seen.until(lambda: seen.live.reconnects == 1 and all(seen.on_device[-10:]))
        assert seen.on_device == sorted(seen.on_device)  # the new connection begins on the GPU
        camera.size = (640, 480)
        camera.hang_up()
        seen.until(lambda: not any(seen.on_device[-20:]))
        camera.size = (320, 240)
        camera.hang_up()
        seen.until(lambda: all(seen.on_device[-10:]))
        assert seen.numbers == sorted(set(seen.numbers)) and {frame[0].shape for frame in seen.frames} == {(240, 320)}


def test_a_session_is_used_again_after_losses(side: str, camera: RtspServer, pool: CountingPool) -> None:
    with decoding(side, camera.url(), pool) as seen:
        seen.until(lambda: sum(seen.on_device) > 20)
        for losses, lose in enumerate([camera.hang_up, camera.reset, camera.silent.set], 1):
            lose()
            seen.until(lambda: seen.live.lost)
            camera.silent.clear()
            seen.until_back(losses)
            found = seen.numbers[-10:]
            assert found == [number for number in camera.sent if found[0] <= number <= found[-1]]
        assert seen.numbers == sorted(set(seen.numbers)) and seen.on_device == sorted(seen.on_device)
    assert pool.made == 1


def test_other_parameter_sets_have_another_session(side: str, camera: RtspServer, pool: CountingPool) -> None:
    """So have frames whose order was not seen in the connection before."""
    with decoding(side, camera.url(), pool) as seen:
        seen.until(lambda: sum(seen.on_device) > 20)
        for losses, (references, made) in enumerate([(2, 2), (1, 3), (2, 3)], 1):
            camera.references = references
            camera.hang_up()
            seen.until_back(losses)
            assert pool.made == made
        assert seen.numbers == sorted(set(seen.numbers))


def test_another_size_has_another_session(side: str, camera: RtspServer, pool: CountingPool) -> None:
    for size in [(320, 240), (640, 480), (320, 240)]:
        camera.size = size
        with decoding(side, camera.url(), pool) as seen:
            seen.until(lambda: sum(seen.on_device) > 5)
            assert {frame[0].shape for frame in seen.frames} == {size[::-1]}
    assert pool.made == 2


@pytest.mark.parametrize(("codec", "options"), [("libx264", H264), ("libx264", H264_B), ("libx265", HEVC_B)])
def test_a_stream_that_comes_again_has_the_session_of_before(
    side: str, codec: str, options: dict[str, str], tmp_path: Path, pool: CountingPool
) -> None:
    path = numbered(tmp_path / "clip.ts", 70, codec, options, size=(320, 192))
    expected = [list(planes_of(frame)) for frame in all_frames(path)]
    with decoding(side, f"file://{path}", pool) as seen:
        seen.until(lambda: sum(seen.on_device) > 5)  # with pictures left in the session
    with decoding(side, f"file://{path}", pool) as seen:
        seen.until(lambda: False)
        assert seen.numbers == list(range(70)) and any(seen.on_device)
        for found, wanted in zip(seen.frames, expected, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert pool.made == 1


@pytest.mark.parametrize("emptied", [False, True])
def test_a_session_that_has_failed_is_not_used_again(
    side: str, emptied: bool, camera: RtspServer, pool: CountingPool
) -> None:
    with decoding(side, camera.url(), pool) as seen:
        seen.until(lambda: sum(seen.on_device) > 5)
        session = seen.decoder._decoder._session
        decode = session.decode

        def fail(*arguments: Any, flush: bool) -> Any:
            if flush is emptied:
                raise InputError("made to fail")
            return decode(*arguments, flush=flush)

        session.decode = fail
        if not emptied:
            seen.until(lambda: not seen.on_device[-1])
        camera.hang_up()
        seen.until_back(1)
        assert pool.made == 2 and seen.decoder._decoder._session is not session
        assert seen.numbers == sorted(set(seen.numbers))


def test_another_session_goes_on_after_damage(
    side: str, camera: RtspServer, pool: CountingPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_decoding, "_PAUSE", 0.0)
    with decoding(side, camera.url(), pool) as seen:
        seen.until(lambda: sum(seen.on_device) > 2 * camera.fps)
        session, cpu = seen.decoder._decoder._session, seen.on_device.count(False)

        def fail(*_: Any, flush: bool) -> Any:
            raise InputError("made to fail")

        session.decode = fail
        seen.until(lambda: sum(seen.on_device) > 4 * camera.fps)
        assert pool.made == 2 and seen.decoder._decoder._session is not session
        assert seen.on_device.count(False) == cpu and seen.live.reconnects == 0
        assert seen.numbers == sorted(set(seen.numbers))
        found = seen.numbers
        lost = sum(found[0] <= number <= found[-1] for number in camera.sent) - len(found)
        assert 0 < lost == seen.live.damaged < camera.fps


def test_damage_ends_nothing(side: str, tmp_path: Path) -> None:
    path = numbered(tmp_path / "damaged.mp4", 90, options=H264, size=(320, 192))
    damage(path, 50)
    with decoding(side, f"file://{path}") as seen:
        seen.until(lambda: False)
        assert seen.live.received == 90 and seen.numbers[-20:] == list(range(70, 90))
        assert len(seen.frames) + seen.live.dropped["undecodable"] == 90


@pytest.mark.parametrize("options", [H264, H264_B])
def test_pictures_that_the_engine_finds_damaged_are_shown_and_counted(
    side: str, engine: Any, options: dict[str, str], tmp_path: Path
) -> None:
    if engine is None:
        pytest.skip("no engine can be made to find damage")
    path = numbered(tmp_path / "clip.ts", 90, options=options, size=(320, 192))
    with decoding(side, f"file://{path}") as seen:
        engine.damage(every=3)
        seen.until(lambda: False)
        assert seen.numbers == list(range(90))
        assert seen.live.damaged == -(-sum(seen.on_device) // 3) >= 10


def test_pictures_whose_packets_lack_a_part_count_as_damaged(side: str, tmp_path: Path) -> None:
    """An engine conceals some without a word, and MPEG-TS tells of each."""
    whole = numbered(tmp_path / "whole.ts", 90, options=H264, size=(320, 192)).read_bytes()
    packets = [whole[at : at + 188] for at in range(0, len(whole), 188)]
    path, dice = tmp_path / "in.ts", Random(1)
    path.write_bytes(b"".join(one for at, one in enumerate(packets) if at < len(packets) / 2 or dice.random() > 0.2))
    with av.open(str(path)) as container:
        incomplete = sum(packet.is_corrupt for packet in container.demux(video=0))
    with decoding(side, f"file://{path}") as seen:
        seen.until(lambda: False)
        assert seen.live.damaged >= incomplete > 3 and all(seen.on_device[-10:])


def test_a_loss_shows_the_last_picture(side: str, camera: RtspServer) -> None:
    with decoding(side, camera.url(), on_loss="freeze") as seen:
        seen.until(lambda: sum(seen.on_device) > 20)
        camera.refuse()
        camera.hang_up()
        repeated = [batch for batch, _ in zip((b for b in seen.decoder if b.repeated), range(3), strict=False)]
        assert all(np.array_equal(b.planes[0].cpu(), repeated[0].planes[0].cpu()) for b in repeated)
        assert len({batch.frames[0].pts for batch in repeated}) == 3


def test_closing_ends_the_session_though_the_source_is_silent(side: str, engine: Any, camera: RtspServer) -> None:
    with decoding(side, camera.url()) as seen:
        seen.until(lambda: sum(seen.on_device) > 5)
        camera.silent.set()
        seen.decoder.close()
        assert seen.decoder._decoder._session is None
        assert seen.live.packet_decoder is None
        assert engine is None or engine.alive == 0


def test_many_sources_at_once(side: str, camera: RtspServer) -> None:
    """Sessions of several threads share a stream of the GPU."""
    found: list[Seen] = []

    def run() -> None:
        with decoding(side, camera.url()) as seen:
            seen.until(lambda: sum(seen.on_device) > 60)
            found.append(seen)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for seen in found:
        assert seen.numbers == sorted(set(seen.numbers)) and not seen.live.damaged
        assert seen.live.dropped.keys() <= {"end"}
