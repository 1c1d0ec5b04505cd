"""Tests that segments make one stream: every frame comes out, in order and at its time."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Literal

import av
import numpy as np
import pytest
from av.video.codeccontext import VideoCodecContext
from child_processes import children
from marks import first
from numpy.typing import NDArray
from segmented import LENGTH, batches, equal, moving, open_encoder, short, write
from videos import packets, pictures, same_packets, same_times, times, video_info

from segmentation import Config, OutputError, segment
from segmentation.frames import Frame, VideoInfo
from segmentation.pipeline.planning.implementations import IMPLEMENTATIONS, Implementation
from segmentation.stages.encode import codec_settings
from segmentation.stages.encode.pyav import PyAVEncoder
from segmentation.stages.encode.segments import Layout, SegmentEncoder


@pytest.fixture(autouse=True)
def layout(monkeypatch: pytest.MonkeyPatch) -> Layout:
    return short(monkeypatch)


Codec = Literal["h264", "hevc"]
VARIABLE = [0, 3, 4, 5, 20, 21, 40, 41, 42, 43, 50, 51, 52, 90, 91, 93, 94, 95, 99, 100, 101, 140, 141, 142, 150]


@pytest.mark.parametrize("codec", first(1, ["hevc", "h264"]))
@pytest.mark.parametrize("count", [1, 2, 4, LENGTH - 1, LENGTH, LENGTH + 1, 3 * LENGTH, 47])
def test_every_frame_comes_out(codec: Codec, count: int, tmp_path: Path) -> None:
    info = video_info()
    frames = moving(count, info)
    packets = write(tmp_path / "out.mp4", info, frames, Config(codec=codec, quality=0))
    assert equal(tmp_path / "out.mp4", frames, info)
    dts = [p[1] for p in packets]
    assert dts == sorted(set(dts)) and all(p[1] <= p[0] for p in packets)
    assert [p[3] for p in packets] == [i % LENGTH == 0 for i in range(count)]
    assert sorted((p[0], p[2]) for p in packets) == [(f.pts, f.duration) for f in frames]


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["h264", "hevc"])
@pytest.mark.parametrize("name", ["out.mp4", "out.mkv", "out.mov", "out.ts"])
@pytest.mark.parametrize("preset", [None, "medium"])
def test_variable_frame_rate(codec: Codec, name: str, preset: str | None, tmp_path: Path) -> None:
    """The medium preset has pyramids of B-frames, which reorder more. Lossless H.264 has none."""
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
    """Rows may be longer than the picture, as a decoder's are. Read-only planes are copied."""
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
def test_the_libraries_copy_their_input(library: str) -> None:
    """So the memory may be written to as soon as `encode` has returned."""
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
def test_segments_decode_alone_with_the_streams_parameters(codec: Codec, tmp_path: Path) -> None:
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
    """The stream's encoder, in this process, gets another pixel aspect ratio than those in the other process."""
    original = codec_settings.describe_context

    def other(context: VideoCodecContext, info: VideoInfo, tag: str | None) -> None:
        original(context, info, tag)
        context.sample_aspect_ratio = Fraction(4, 3)

    monkeypatch.setattr(codec_settings, "describe_context", other)
    with pytest.raises(OutputError, match="encoders disagree") as caught:
        write(tmp_path / "out.mp4", video_info(), moving(25, video_info()), Config())
    assert "\n" not in str(caught.value) and not hasattr(caught.value, "__notes__")
    assert not children() and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_quality_at_the_seams(tmp_path: Path, corpus: Path) -> None:
    """Frames beside a seam are as good as other frames, and all are about as good as without seams."""
    source = [p for p in pictures(corpus / "04_coffee.mp4", limit=60)]
    info = video_info((source[0].frame.width, source[0].frame.height))
    frames = [Frame(planes=p.planes, pts=i, duration=1) for i, p in enumerate(source)]  # type: ignore[arg-type]

    def psnr(kind: type[PyAVEncoder]) -> NDArray[np.float64]:
        path = tmp_path / f"{kind.__name__}.mkv"
        write(path, info, frames, Config(), kind=kind)
        errors = [
            np.mean((p.planes[0].astype(float) - f.planes[0]) ** 2) for p, f in zip(pictures(path), frames, strict=True)
        ]
        return 10 * np.log10(255**2 / np.array(errors))

    whole, cut = psnr(PyAVEncoder), psnr(SegmentEncoder)
    beside = np.isin(np.arange(60) % LENGTH, (0, 1, LENGTH - 2, LENGTH - 1))
    assert cut[beside].mean() > cut[~beside].mean() - 0.5
    assert cut.min() > whole.min() - 0.5 and cut.mean() > whole.mean() - 0.3


@pytest.mark.parametrize("codec", ["av1", "ffv1"])
def test_codecs_that_fill_the_cores_themselves_are_not_cut(codec: Literal["av1", "ffv1"], tmp_path: Path) -> None:
    info = video_info()
    frames = moving(25, info)
    before = set(children())
    with open_encoder(tmp_path / "out.mkv", info, Config(codec=codec)) as (muxer, encoder):
        assert set(children()) <= before
        for packets in (*map(encoder.encode, batches(frames)), encoder.flush()):
            muxer.write(packets)
        muxer.finish(None)
    assert len(times(tmp_path / "out.mkv")) == 25
    assert codec == "av1" or equal(tmp_path / "out.mkv", frames, info)


def test_in_the_pipeline_with_sound(people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        IMPLEMENTATIONS["encode"], "cut", Implementation("segmentation.stages.encode.segments:SegmentEncoder")
    )
    source, target = people, tmp_path / "out.mp4"
    report = segment(source, target, max_frames=50, encode="cut")
    assert report.frames == 50 and report.plan["encode"] == "cut"
    assert same_times(times(target), times(source, limit=50), Fraction(1, 90_000))
    sound = packets(target, "audio")
    assert sound and same_packets(sound, packets(source, "audio")[: len(sound)])


@pytest.mark.parametrize("kind", [PyAVEncoder, SegmentEncoder])
@pytest.mark.parametrize(
    ("preset", "setting"),
    [
        (None, b"bframes=2 b_pyramid=0 b_adapt=0"),
        (None, b"aq=0"),
        ("ultrafast", b"cabac=0 ref=1"),
        ("superfast", b"aq=1:1.00"),
    ],
)
def test_presets(kind: type[PyAVEncoder], preset: str | None, setting: bytes, tmp_path: Path) -> None:
    """x264 writes its settings into the stream. A preset that was named has none of the default's additions."""
    packets = write(tmp_path / "out.mp4", video_info(), moving(12, video_info()), Config(preset=preset), kind=kind)
    assert setting in packets[0][4]


def test_a_preset_of_another_codec(tmp_path: Path) -> None:
    """In .webm the codec follows from the file's name, after the options were checked."""
    config = Config(preset="fast")
    with pytest.raises(ValueError, match="unknown for av1"), open_encoder(tmp_path / "out.webm", video_info(), config):
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
        (32 * FULL_HD, 60, 16, 0, Layout(1, 16, 30, 21)),  # one at a time, and waiting frames still fit
        (10_000, 1, 2, 0, Layout(2, 1, 8, 16)),  # a seam costs bits: not at every other frame
    ],
)
def test_the_rule(frame_bytes: int, rate: float, cores: int, expected: int, rule: Layout) -> None:
    assert RULE(frame_bytes, rate, cores, expected) == rule
