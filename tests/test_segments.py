"""Segments that are encoded at once make one stream: every frame, in order, in time, whatever the seams."""

import gc
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from conftest import chunks, pictures, same_chunks, same_times, times, video_info
from numpy.typing import NDArray

from segmentation import Config, OutputError, segment
from segmentation.encode import coding, segments
from segmentation.encode.segments import Layout, SegmentEncoder
from segmentation.encode.x264 import X264Encoder
from segmentation.frames import FORMATS, Frame, FrameBatch, VideoInfo
from segmentation.mux import Muxer
from segmentation.plan import IMPLEMENTATIONS
from segmentation.shared_memory import BlockPool

LENGTH = 10  # frames of a segment in most tests
Packets = list[Any]


@pytest.fixture(autouse=True)
def layout(monkeypatch: pytest.MonkeyPatch) -> Layout:
    """Short segments, the same on any machine."""
    fixed = Layout(encoders=3, threads=1, frames=LENGTH, waiting=3 * LENGTH)
    monkeypatch.setattr(Layout, "of", lambda *_: fixed)
    return fixed


def moving(count: int, info: VideoInfo, pix_fmt: str = "yuv420p", pts: Sequence[int] | None = None) -> list[Frame]:
    """Frames of a texture that wanders, with noise."""
    layout, noise = FORMATS[pix_fmt], np.random.default_rng(5)
    pts = range(count) if pts is None else pts
    ends = [*pts[1:], pts[-1] + 3]
    shapes = [(info.height, info.width)] + 2 * [(-(-info.height >> layout.shift_y), -(-info.width >> layout.shift_x))]

    def plane(shape: tuple[int, int], i: int) -> NDArray[Any]:
        y, x = np.mgrid[: shape[0], : shape[1]]
        wave = 120 + 60 * np.sin((x + 2 * i) / 5) + 30 * np.cos((y - i) / 3) + noise.integers(0, 6, shape)
        return (wave * (1 << (layout.bits - 8))).astype(layout.dtype)

    return [
        Frame(planes=tuple(plane(s, i) for s in shapes), pts=pts[i], duration=ends[i] - pts[i])  # type: ignore[arg-type]
        for i in range(count)
    ]


@contextmanager
def encoder(
    path: Path, info: VideoInfo, config: Config, pix_fmt: str = "yuv420p", kind: type[X264Encoder] = SegmentEncoder
) -> Iterator[tuple[Muxer, X264Encoder]]:
    with Muxer(path, info, config) as muxer:
        made = kind(muxer, info, pix_fmt, config)
        try:
            yield muxer, made
        finally:
            made.close()


def batches(frames: Sequence[Frame], size: int = 4) -> Iterator[FrameBatch]:
    for i in range(0, len(frames), size):
        yield FrameBatch(frames=tuple(frames[i : i + size]), index=i)


def write(
    path: Path, info: VideoInfo, frames: Sequence[Frame], config: Config, *, then: Sequence[Frame] = (), **options: Any
) -> Packets:
    """Encodes and muxes, `then` in batches of their own; returns (pts, dts, duration, keyframe, bytes) of the packets,
    as the encoder gave them."""
    seen: Packets = []
    with encoder(path, info, config, **options) as (muxer, made):
        for packets in (*map(made.encode, itertools.chain(batches(frames), batches(then))), made.flush()):
            seen += [(p.pts, p.dts, p.duration, p.is_keyframe, bytes(p)) for p in packets]
            muxer.write(packets)
        muxer.finish(None)
    return seen


def equal(path: Path, frames: Sequence[Frame], info: VideoInfo) -> bool:
    """Whether the file has these frames, bit for bit, at their times."""
    decoded = list(pictures(path))
    tick = Fraction(1, 1000) if path.suffix == ".mkv" else Fraction(0)
    start = decoded[0].time - frames[0].pts * info.time_base
    assert abs(start) <= tick
    return same_times([p.time for p in decoded], [f.pts * info.time_base for f in frames], tick) and all(
        np.array_equal(a[: b.shape[0], : b.shape[1]], b)
        for picture, frame in zip(decoded, frames, strict=True)
        for a, b in zip(picture.planes, frame.planes, strict=True)
    )


VARIABLE = [0, 3, 4, 5, 20, 21, 40, 41, 42, 43, 50, 51, 52, 90, 91, 93, 94, 95, 99, 100, 101, 140, 141, 142, 150]


@pytest.mark.parametrize("codec", ["h264", "hevc"])
@pytest.mark.parametrize("count", [1, 2, 4, LENGTH - 1, LENGTH, LENGTH + 1, 3 * LENGTH, 47])
def test_every_frame_comes_out(codec: Any, count: int, tmp_path: Path) -> None:
    info = video_info()
    frames = moving(count, info)
    packets = write(tmp_path / "out.mp4", info, frames, Config(codec=codec, quality=0))
    assert equal(tmp_path / "out.mp4", frames, info)
    dts = [p[1] for p in packets]
    assert dts == sorted(set(dts)) and all(p[1] <= p[0] for p in packets)
    assert [p[3] for p in packets] == [i % LENGTH == 0 for i in range(count)]
    assert sorted((p[0], p[2]) for p in packets) == [(f.pts, f.duration) for f in frames]


@pytest.mark.parametrize("codec", ["h264", "hevc"])
@pytest.mark.parametrize("name", ["out.mp4", "out.mkv", "out.mov", "out.ts"])
@pytest.mark.parametrize("preset", [None, "medium"])
def test_variable_frame_rate(codec: Any, name: str, preset: str | None, tmp_path: Path) -> None:
    """Also with pyramids of B-frames, which reorder more. (There are none in lossless H.264.)"""
    info = video_info(time_base=Fraction(1, 90_000))
    frames = moving(len(VARIABLE), info, pts=[3000 * n for n in VARIABLE])
    config = Config(codec=codec, quality=0 if codec == "hevc" else None, preset=preset)
    packets = write(tmp_path / name, info, frames, config)
    dts = [p[1] for p in packets]
    assert dts == sorted(set(dts)) and all(p[1] <= p[0] for p in packets)
    assert [p[0] for p in packets] != sorted(p[0] for p in packets)  # there are B-frames
    start = times(tmp_path / name)[0] if name == "out.ts" else 0  # a transport stream's clock begins later
    shown = [time - start for time in times(tmp_path / name)]
    assert same_times(
        shown, [f.pts * info.time_base for f in frames], Fraction(1, 1000 if name == "out.mkv" else 90_000)
    )
    assert codec == "h264" or name == "out.ts" or equal(tmp_path / name, frames, info)


@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv422p", "yuv444p", "yuv420p10le", "yuv444p10le"])
@pytest.mark.parametrize("size", [(96, 64), (97, 65)])
def test_formats_and_odd_sizes(pix_fmt: str, size: tuple[int, int], tmp_path: Path) -> None:
    info = video_info(size)
    frames = moving(23, info, pix_fmt)
    write(tmp_path / "out.mkv", info, frames, Config(codec="h264", quality=0), pix_fmt=pix_fmt)
    assert equal(tmp_path / "out.mkv", frames, info)


def test_views_and_read_only_planes(tmp_path: Path) -> None:
    """Rows may be longer than the picture, as a decoder's are; what can't be lent is copied."""
    info = video_info()
    frames = moving(23, info)
    for i, frame in enumerate(frames):
        wide = tuple(np.pad(p, ((0, 0), (0, 7)))[:, : p.shape[1]] for p in frame.planes)
        frames[i] = replace(frame, planes=wide)
        if i % 3 == 0:
            wide[1].setflags(write=False)
    write(tmp_path / "out.mkv", info, frames, Config(quality=0))
    assert equal(tmp_path / "out.mkv", frames, info)


@pytest.mark.parametrize("library", ["libx264", "libx265"])
def test_the_libraries_copy_what_they_take(library: str) -> None:
    """So the memory that is lent may be written to again as soon as the call has returned."""
    info = video_info()
    frames = moving(12, info)
    context = av.CodecContext.create(library, "w")
    context.width, context.height, context.pix_fmt, context.time_base = 96, 64, "yuv420p", info.time_base
    context.options = {"qp": "0"} if library == "libx264" else {"x265-params": "lossless=1:log-level=none"}
    packets, decoder = [], av.CodecContext.create(library.replace("libx", "h").replace("h265", "hevc"), "r")
    for frame in frames:
        lent = tuple(p.copy() for p in frame.planes)
        picture = av.VideoFrame.from_dlpack(lent, "yuv420p")
        picture.pts, picture.time_base = frame.pts, info.time_base
        packets += context.encode(picture)
        for plane in lent:
            plane[:] = 0
    decoded = [f for p in (*packets, *context.encode(None), None) for f in decoder.decode(p)]
    for picture, frame in zip(decoded, frames, strict=True):
        assert np.array_equal(picture.to_ndarray()[:64], frame.planes[0])


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_segments_decode_alone_with_the_streams_parameters(codec: Any, tmp_path: Path) -> None:
    info = video_info()
    write(tmp_path / "out.mkv", info, moving(35, info), Config(codec=codec))
    with av.open(str(tmp_path / "out.mkv")) as container:
        packets = [p for p in container.demux(video=0) if p.size]
        starts = [i for i, p in enumerate(packets) if p.is_keyframe]
        assert starts == [0, 10, 20, 30]
        for begin, end in zip(starts, [*starts[1:], len(packets)], strict=True):
            decoder = av.CodecContext.create(codec, "r")
            decoder.extradata = container.streams.video[0].codec_context.extradata
            alone = [f for p in (*packets[begin:end], None) for f in decoder.decode(p)]
            assert len(alone) == end - begin and not any(f.is_corrupt for f in alone)


def test_encoders_that_disagree_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream's own, in this process, is told another shape of the pixels than those in the other process."""
    original = coding.describe_context

    def other(context: Any, *arguments: Any) -> None:
        original(context, *arguments)
        context.sample_aspect_ratio = Fraction(4, 3)

    monkeypatch.setattr(coding, "describe_context", other)
    with pytest.raises(OutputError, match="encoders disagree") as caught:
        write(tmp_path / "out.mp4", video_info(), moving(25, video_info()), Config())
    assert "\n" not in str(caught.value) and not hasattr(caught.value, "__notes__")
    assert not children() and not list(tmp_path.iterdir())


def test_quality_at_the_seams(tmp_path: Path, corpus: Path) -> None:
    """Frames beside a seam are as good as those far from one, and all are about as good as without seams."""
    source = [p for p in pictures(corpus / "04_coffee.mp4", limit=60)]
    info = video_info((source[0].frame.width, source[0].frame.height))
    frames = [Frame(planes=p.planes, pts=i, duration=1) for i, p in enumerate(source)]  # type: ignore[arg-type]

    def psnr(kind: type[X264Encoder]) -> NDArray[Any]:
        path = tmp_path / f"{kind.__name__}.mkv"
        write(path, info, frames, Config(), kind=kind)
        errors = [
            np.mean((p.planes[0].astype(float) - f.planes[0]) ** 2) for p, f in zip(pictures(path), frames, strict=True)
        ]
        return 10 * np.log10(255**2 / np.array(errors))

    whole, cut = psnr(X264Encoder), psnr(SegmentEncoder)
    beside = np.isin(np.arange(60) % LENGTH, (0, 1, LENGTH - 2, LENGTH - 1))
    assert cut[beside].mean() > cut[~beside].mean() - 0.5
    assert cut.min() > whole.min() - 0.5 and cut.mean() > whole.mean() - 0.3


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Blocks for a frame each, of `video_info`'s size; how many bytes that is."""
    monkeypatch.setattr(segments, "_TOGETHER", 1)
    return 3 * mmap.PAGESIZE  # 96 * 64 * 3 / 2 bytes, in whole pages


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Blocks that go back lose what is in them; where they are."""
    original, seen = BlockPool.take_back, []

    def poison(self: BlockPool, place: int, size: int) -> None:
        if self._map is not None:
            self._map[place : place + size] = b"\xaa" * size
        seen.append(place)
        original(self, place, size)

    monkeypatch.setattr(BlockPool, "take_back", poison)
    return seen


def children() -> list[int]:
    """Processes that this one has started and not forgotten, dead ones included."""
    return [int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]


def frames_mapped() -> bool:
    gc.collect()  # what a failed test before has left
    return "segmentation frames" in Path("/proc/self/maps").read_text()


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def process(made: X264Encoder) -> int:
    assert isinstance(made, SegmentEncoder) and made._process is not None
    return made._process.pid


def come_up(made: X264Encoder) -> None:
    """Gives the process a segment, and waits for what it makes of it."""
    assert isinstance(made, SegmentEncoder)
    made.encode(next(batches(moving(LENGTH, made._coding.info), LENGTH)))
    while not made._arrived:
        made._listen(wait=True)


def within(seconds: float, happens: Callable[[], object]) -> bool:
    deadline = time.monotonic() + seconds
    while not happens() and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(happens())


def test_memory_is_bounded(tmp_path: Path, layout: Layout, small_blocks: int) -> None:
    """While nothing is encoded, no more frames are taken than may wait; their own memory is let go at once."""
    info, packets = video_info(), []
    frames = moving(150, info)
    given = itertools.count()
    fed: list[int] = []
    with encoder(tmp_path / "out.mp4", info, Config(quality=0)) as (muxer, made):
        os.kill(process(made), signal.SIGSTOP)

        def feed() -> None:
            for batch in batches(frames, 1):
                packets.append(made.encode(batch))
                fed.append(next(given))

        thread = threading.Thread(target=feed, daemon=True)
        thread.start()
        assert within(2, lambda: len(fed) == layout.waiting)
        time.sleep(0.2)
        assert len(fed) == layout.waiting
        assert made.blocks is not None and made.blocks.used == layout.waiting * small_blocks
        os.kill(process(made), signal.SIGCONT)
        thread.join(20)
        assert len(fed) == 150
        for some in (*packets, made.flush()):
            muxer.write(some)
        assert made.blocks.used <= (layout.waiting + 1) * small_blocks  # given out again and again
        muxer.finish(None)
    assert equal(tmp_path / "out.mp4", frames, info)


@pytest.mark.parametrize("size", [(96, 64), (97, 65)])
def test_frames_are_copied_into_few_blocks(tmp_path: Path, size: tuple[int, int]) -> None:
    info = video_info(size)
    frames = moving(40, info)
    with encoder(tmp_path / "out.mkv", info, Config(quality=0)) as (muxer, made):
        for batch in batches(frames):
            kept = weakref.ref(batch.frames[0].planes[0])
            muxer.write(made.encode(batch))
        muxer.write(made.flush())
        muxer.finish(None)
        assert made.blocks is not None and made.blocks.used == segments._TOGETHER
    del batch, frames
    assert kept() is None


def test_memory_goes_back_when_it_is_taken_and_not_before(
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
    """They are not copied; of the last batch not all rows are frames. Nobody but the encoder keeps them."""
    info, dtype = video_info(size), FORMATS[pix_fmt].dtype
    frames = moving(150, info, pix_fmt)
    with encoder(tmp_path / "out.mkv", info, Config(quality=0, codec="h264"), pix_fmt) as (muxer, made):
        pool = made.blocks
        assert isinstance(made, SegmentEncoder) and pool is not None
        for batch in batches(frames):
            shared = pool.planes([(4, *plane.shape) for plane in frames[0].planes], dtype)
            for n, frame in enumerate(batch.frames):
                for rows, plane in zip(shared.arrays, frame.planes, strict=True):
                    rows[n] = plane
            lent = [
                replace(frame, planes=tuple(rows[n] for rows in shared.arrays)) for n, frame in enumerate(batch.frames)
            ]
            muxer.write(made.encode(replace(batch, frames=tuple(lent), shared=shared)))
            assert made._filling is None
            size_of_one = shared.block.size
            del shared, lent, rows, batch
        muxer.write(made.flush())
        muxer.finish(None)
        # Half a batch for each encoder counts as taken; one is being filled.
        assert pool.used <= size_of_one * (-(-(layout.waiting + 4) // 4) + 1)
    assert len(poisoned) == 38
    assert equal(tmp_path / "out.mkv", frames, info)


def test_memory_of_another_encoder_is_copied(tmp_path: Path) -> None:
    info = video_info()
    frames = moving(4, info)
    with encoder(tmp_path / "a.mkv", info, Config(quality=0)) as (muxer, made):
        pool = BlockPool()
        shared = pool.planes([(4, *plane.shape) for plane in frames[0].planes], np.uint8)
        muxer.write(made.encode(FrameBatch(frames=tuple(frames), index=0, shared=shared)))
        muxer.write(made.flush())
        muxer.finish(None)
        pool.close()
    assert equal(tmp_path / "a.mkv", frames, info)


@pytest.mark.parametrize("at", [5, 25, 58])
def test_an_encoders_error_surfaces(at: int, tmp_path: Path) -> None:
    """An unexpected one, for a frame of another size; it is told where that happened."""
    info = video_info()
    wrong = moving(1, video_info((80, 48)))[0]
    with pytest.raises(ValueError, match="does not match") as caught:
        write(tmp_path / "out.mp4", info, moving(at, info), Config(), then=[replace(wrong, pts=at)])
    assert "segment_worker.py" in caught.value.__notes__[0]
    assert not children() and not list(tmp_path.iterdir())


def test_an_encoders_error_surfaces_again_and_again(tmp_path: Path) -> None:
    """The other process can't open anything any more, so its packets can't be handed back."""
    info = video_info()
    with encoder(tmp_path / "out.mp4", info, Config()) as (_, made):
        made.encode(next(batches(moving(4, info))))
        resource.prlimit(process(made), resource.RLIMIT_NOFILE, (3, 3))
        with pytest.raises((OSError, OutputError)) as caught:
            made.flush()
        with pytest.raises(type(caught.value)):
            made.flush()
    assert not children()


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("doing", ["encode", "wait", "flush"])
def test_a_killed_process_is_an_error_at_once(doing: str, started: bool, tmp_path: Path) -> None:
    info, before = video_info(), descriptors()
    with encoder(tmp_path / "out.mp4", info, Config()) as (_, made):
        if started:
            come_up(made)
        os.kill(process(made), signal.SIGSTOP)
        timer = threading.Timer(0 if doing == "encode" else 0.3, os.kill, (process(made), signal.SIGKILL))
        begin = time.monotonic()
        timer.start()
        with pytest.raises(OutputError, match=r"signal 9.*memory is full") as caught:
            if doing == "flush":
                made.encode(next(batches(moving(4, info))))
                made.flush()
            for batch in batches(4 * moving(40, info)):
                made.encode(batch)
                time.sleep(0.01 if doing == "encode" else 0)
        assert time.monotonic() - begin < 1.5 and "\n" not in str(caught.value)
        timer.join()
        del caught  # what was being done is kept with it
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


@pytest.mark.parametrize("count", [0, 1, 35])
@pytest.mark.parametrize("flush", [False, True])
def test_nothing_is_left_after_close(count: int, flush: bool, tmp_path: Path) -> None:
    info, before = video_info(), descriptors()
    with encoder(tmp_path / "out.mp4", info, Config(codec="hevc", preset="slow")) as (_, made):
        assert children() == [process(made)]
        for batch in batches(moving(count, info)) if count else ():
            made.encode(batch)
        if flush:
            assert not count or made.flush()
        begin = time.monotonic()
        made.close()
        assert time.monotonic() - begin < 1 and not children() and not frames_mapped()
        made.close()
        with pytest.raises(OutputError, match="closed"):
            made.encode(next(batches(moving(1, info))))
    assert descriptors() == before


def test_a_process_that_does_not_end_is_killed(tmp_path: Path) -> None:
    info = video_info()
    with encoder(tmp_path / "out.mp4", info, Config()) as (_, made):
        made.encode(next(batches(moving(4, info))))
        os.kill(process(made), signal.SIGSTOP)
        begin = time.monotonic()
        made.close()
        assert time.monotonic() - begin < 2 and not children()


def test_close_while_another_thread_waits(tmp_path: Path) -> None:
    info, errors = video_info(), []
    with encoder(tmp_path / "out.mp4", info, Config()) as (_, made):
        os.kill(process(made), signal.SIGSTOP)

        def feed() -> None:
            try:
                for batch in batches(moving(60, info)):
                    made.encode(batch)
            except OutputError as exc:
                errors.append(exc)

        thread = threading.Thread(target=feed, daemon=True)
        thread.start()
        time.sleep(0.3)
        made.close()
        thread.join(1)
        assert not thread.is_alive() and len(errors) == 1 and not children()


def test_signals_to_end_are_not_for_the_process(tmp_path: Path) -> None:
    """What a terminal or a service's manager sends to all is for the program, which ends things in order."""
    info = video_info()
    frames = moving(2 * LENGTH, info)
    with encoder(tmp_path / "out.mkv", info, Config(quality=0)) as (muxer, made):
        assert os.getpgid(process(made)) != os.getpgid(0)
        come_up(made)
        os.kill(process(made), signal.SIGINT)
        os.kill(process(made), signal.SIGTERM)
        time.sleep(0.1)
        for batch in batches(frames[LENGTH:]):
            muxer.write(made.encode(batch))
        muxer.write(made.flush())
        muxer.finish(None)
    assert equal(tmp_path / "out.mkv", frames, info)


ORPHAN = """
import sys, time
from pathlib import Path
sys.path[:0] = {path!r}
from conftest import video_info
from segmentation import Config
from segmentation.encode.segments import SegmentEncoder
from segmentation.mux import Muxer
with Muxer(Path({target!r}), video_info(), Config()) as muxer:
    encoder = SegmentEncoder(muxer, video_info(), "yuv420p", Config())
    print(encoder._process.pid, flush=True)
    time.sleep({wait})
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("wait", [0, 1])
def test_the_process_ends_with_the_one_that_started_it(wait: int, tmp_path: Path) -> None:
    code = ORPHAN.format(path=[str(Path(__file__).parent), *sys.path], target=str(tmp_path / "a.mp4"), wait=wait)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert Path(f"/proc/{pid}").exists() and parent.stdout.readline() == "ready\n"
        parent.kill()
    assert within(2, lambda: not Path(f"/proc/{pid}").exists() or "Z (" in Path(f"/proc/{pid}/status").read_text())


def test_the_process_starts_light() -> None:
    """It imports what it needs and no more."""
    code = "import segmentation.encode.segment_worker, sys; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "cv2", "onnx", "onnxruntime", "rich", "segmentation.pipeline"} & set(result.stdout.split())


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
        thread.join(30)
    assert not errors and not children() and not frames_mapped()
    assert all(equal(tmp_path / f"{number}.mkv", frames[number], info) for number in (0, 1))


@pytest.mark.parametrize("codec", ["av1", "ffv1"])
def test_codecs_that_fill_the_cores_themselves_are_not_cut(codec: Any, tmp_path: Path) -> None:
    info = video_info()
    frames = moving(25, info)
    with encoder(tmp_path / "out.mkv", info, Config(codec=codec)) as (muxer, made):
        assert not children()
        for packets in (*map(made.encode, batches(frames)), made.flush()):
            muxer.write(packets)
        muxer.finish(None)
    assert len(times(tmp_path / "out.mkv")) == 25
    assert codec == "av1" or equal(tmp_path / "out.mkv", frames, info)


def test_in_the_pipeline_with_sound(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(IMPLEMENTATIONS["encode"], "cut", "segmentation.encode.segments:SegmentEncoder")
    source, target = corpus / "04_coffee.mp4", tmp_path / "out.mp4"
    report = segment(source, target, max_frames=50, encode="cut")
    assert report.frames == 50 and report.plan["encode"] == "cut"
    assert same_times(times(target), times(source, limit=50), Fraction(1, 90_000))
    sound = chunks(target, "audio")
    assert sound and same_chunks(sound, chunks(source, "audio")[: len(sound)])


@pytest.mark.parametrize("kind", [X264Encoder, SegmentEncoder])
@pytest.mark.parametrize(
    ("preset", "setting"),
    [
        (None, b"bframes=2 b_pyramid=0 b_adapt=0"),
        (None, b"aq=0"),
        ("ultrafast", b"cabac=0 ref=1"),
        ("superfast", b"aq=1:1.00"),
    ],
)
def test_presets(kind: type[X264Encoder], preset: str | None, setting: bytes, tmp_path: Path) -> None:
    """What x264 writes about itself; a preset by hand is taken as it is, without what the default adds to it."""
    packets = write(tmp_path / "out.mp4", video_info(), moving(12, video_info()), Config(preset=preset), kind=kind)
    assert setting in packets[0][4]


def test_a_preset_of_another_codec(tmp_path: Path) -> None:
    """In .webm the codec is chosen after the options were checked."""
    config = Config(preset="fast")
    with pytest.raises(ValueError, match="unknown for av1"), encoder(tmp_path / "out.webm", video_info(), config):
        pass


RULE: Callable[..., Layout] = Layout.of  # before the fixture replaces it
FULL_HD = 1920 * 1080 * 3 // 2


@pytest.mark.parametrize(
    ("frame_bytes", "rate", "cores", "expected", "rule"),
    [
        (FULL_HD, 30, 4, 0, Layout(4, 1, 60, 240)),  # 2 s each
        (FULL_HD, 30, 16, 0, Layout(16, 1, 43, 688)),  # 2 GiB are 690 frames
        (FULL_HD, 30, 16, 300, Layout(16, 1, 19, 304)),  # all at work, to the end
        (FULL_HD, 30, 16, 100, Layout(16, 1, 15, 240)),  # not below half a second
        (FULL_HD, 30, 16, 3000, Layout(16, 1, 38, 608)),  # five turns of the same length
        (4 * FULL_HD, 30, 16, 0, Layout(11, 2, 15, 165)),  # 4K: shorter, then fewer with more threads
        (32 * FULL_HD, 60, 16, 0, Layout(1, 16, 30, 21)),  # one at a time, and what waits still fits
        (10_000, 1, 2, 0, Layout(2, 1, 8, 16)),  # a seam costs bits: not at every other frame
    ],
)
def test_the_rule(frame_bytes: int, rate: float, cores: int, expected: int, rule: Layout) -> None:
    assert RULE(frame_bytes, rate, cores, expected) == rule
