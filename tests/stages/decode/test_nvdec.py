"""Compares NVDEC with FFmpeg: the same frames, bit for bit, with the same times."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from native_nvdec import require_native
from seams import SEAMS
from stages import gpu
from videos import Synthetic

from segmentation.errors import LacksEngine
from segmentation.frames import FORMATS, VideoInfo
from segmentation.media.opening.probe import probe
from segmentation.media.opening.stream_properties import working_format
from segmentation.options.config import Config
from segmentation.pipeline.planning.implementations import IMPLEMENTATIONS
from segmentation.stages.decode.nvdec_session_pool import NvdecSessionPool
from segmentation.stages.decode.pyav import PyAVDecoder

pytestmark = pytest.mark.gpu

# What an H200's NVDEC has no decoder for: AV1, 10-bit and 4:4:4 H.264, sizes below its least, odd sizes; what it would
# change: interlaced frames, two views in one stream, packed B-frames.
REFUSED = {
    "fixture-raw.mts", "water_180_mvhevc_5frames.mov", "packed_bframes_test.avi",
    "av1_video.mkv", "hdr10-av1.mp4", "long_180p_av1.mp4", "h264_10bits.mp4", "var_fps_video.mp4",
    "-video-with-dash-.mp4", "bear-vp9-odd-dimensions.webm",
}  # fmt: skip
TAKEN = [
    "04_coffee.mp4", "05_default_juggle.mp4", "bbb_1920x1080_60fps_vp8.webm", "bottle-detection.mp4",
    "bt709_full_range.mp4", "dog_eating_854132.mp4", "edit_list_positive_shift.mp4",
    "h265_10bits.mp4", "hlg10-color-test.mp4", "nasa_13013.mp4", "portrait_4k60.mp4", "sample-with-large-length.avi",
    "roadtrip-vp92-10bit.webm", "sample_fragmented.mp4", "sample_h264.ts", "sample_with_srt.mkv",
    "selfie_segmentation_web.mp4", "video_90.mov",
]  # fmt: skip


chosen = ["nvdec"]  # the implementation


@pytest.fixture(autouse=True, params=["nvdec", "nvdec-native"])
def implementation(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "nvdec-native":
        require_native()
    chosen[:] = [request.param]
    yield
    chosen[:] = ["nvdec"]


def decoder(info: VideoInfo, sessions: NvdecSessionPool | None = None, **options: Any) -> Any:
    pix_fmt = working_format(info.pix_fmt, tuple(FORMATS))
    module, _, name = IMPLEMENTATIONS["decode"][chosen[0]].place.partition(":")
    kind = getattr(import_module(module), name)
    return kind(info, pix_fmt, Config(batch_size=8, **options), gpu(), sessions=sessions)


def on_nvdec(path: Path, **options: Any) -> Iterator[tuple[int, int, list[bytes]]]:
    """Yields (pts, duration, planes) of each frame."""
    yield from frames_of(decoder(probe(str(path)), **options))


def frames_of(stage: Any) -> Iterator[tuple[int, int, list[bytes]]]:
    """Yields (pts, duration, planes) of each frame that a decoder puts out."""
    import torch

    for batch in stage:
        with torch.cuda.stream(gpu().stream):  # on others the planes may not be there yet
            planes = [plane.cpu().numpy() for plane in batch.planes]
        for i, frame in enumerate(batch.frames):
            yield frame.pts, frame.duration, [plane[i].tobytes() for plane in planes]


def on_ffmpeg(path: Path, **options: Any) -> Iterator[tuple[int, int, list[bytes]]]:
    info = probe(str(path))
    for batch in PyAVDecoder(info, working_format(info.pix_fmt, tuple(FORMATS)), Config(batch_size=8, **options)):
        for frame in batch.frames:
            yield frame.pts, frame.duration, [np.ascontiguousarray(plane).tobytes() for plane in frame.planes]


def same(path: Path, **options: Any) -> int:
    """Compares both decoders; returns the number of frames."""
    count = 0
    for ours, theirs in zip(on_nvdec(path, **options), on_ffmpeg(path, **options), strict=True):
        assert ours[0] == theirs[0], f"frame {count}"
        assert ours[2] == theirs[2], f"frame {count} at pts {ours[0]}"
        count += 1
    return count


@pytest.mark.parametrize("name", TAKEN)
def test_real_videos(corpus: Path, name: str) -> None:
    assert same(corpus / name) >= 3


def test_mpeg2_is_a_level_off_at_most(corpus: Path) -> None:
    """Its standard leaves the rounding of the inverse transform open."""
    path = corpus / "sample_h262_mpeg_audio.ts"
    count = 0
    for ours, theirs in zip(on_nvdec(path), on_ffmpeg(path), strict=True):
        assert ours[0] == theirs[0]
        for a, b in zip(ours[2], theirs[2], strict=True):
            difference = np.abs(np.frombuffer(a, np.uint8).astype(int) - np.frombuffer(b, np.uint8))
            assert difference.max() <= 3 and difference.mean() < 0.2
        count += 1
    assert count == 3


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_nvdec_lacks_is_said(corpus: Path, name: str) -> None:
    from segmentation.stages.decode.nvdec_support import nvdec_engines

    with pytest.raises(LacksEngine, match="NVDEC") as caught:
        nvdec_engines(Config(), probe(str(corpus / name)))
    assert "\n" not in str(caught.value)


def test_capabilities_are_those_that_its_library_tells() -> None:
    import PyNvVideoCodec as nvc

    from segmentation.stages.decode.nvdec_support import NVDEC_CODECS, nvdec_caps

    for codec, chroma, bits in itertools.product(set(NVDEC_CODECS.values()), ("420", "444"), (8, 10)):
        theirs = nvc.GetDecoderCaps(
            gpuid=0,
            codec=getattr(nvc.cudaVideoCodec, codec),
            chromaformat=getattr(nvc.cudaVideoChromaFormat, chroma),
            bitdepth=bits,
        )
        ours = nvdec_caps(0, codec, chroma, bits)
        assert bool(ours.supported) == bool(theirs["supported"])
        assert ours.engines == theirs["num_decoder_engines"]
        for name in ("width_min", "width_max", "height_min", "height_max"):
            assert getattr(ours, name) == theirs[name], (codec, chroma, bits, name)
    assert nvdec_caps(0, "H264", "420", 8).supported


@pytest.mark.parametrize(
    ("codec", "options", "pix_fmt"),
    [
        ("libx264", {"x264-params": "keyint=30:min-keyint=30:scenecut=0:bframes=3"}, "yuv420p"),
        ("libx264", {"x264-params": "keyint=30:open-gop=1:bframes=3"}, "yuv420p"),
        ("libx265", {"x265-params": "log-level=none:keyint=30:min-keyint=30:bframes=4:open-gop=1"}, "yuv420p"),
        ("libx265", {"x265-params": "log-level=none:keyint=30:min-keyint=30:bframes=4"}, "yuv420p10le"),
        ("libx265", {"x265-params": "log-level=none:keyint=30"}, "yuv444p"),
        ("libvpx-vp9", {"g": "30", "cpu-used": "8", "lag-in-frames": "8"}, "yuv420p"),
    ],
)
def test_chunks_on_several_engines_are_exact_at_the_cuts(
    tmp_path: Path, codec: str, options: dict[str, str], pix_fmt: str
) -> None:
    path = Synthetic(codec=codec, options=options, gop=30, pts=range(200), size=(320, 240), pix_fmt=pix_fmt)
    assert same(path.write(tmp_path / "a.mkv")) == 200


@pytest.mark.parametrize(
    ("codec", "options"),
    [
        ("libx264", {"x264-params": "keyint=30:min-keyint=30:scenecut=0:bframes=3"}),
        ("libx264", {"x264-params": "keyint=30:min-keyint=30:scenecut=0:bframes=8:ref=8"}),
        ("libx265", {"x265-params": "log-level=none:keyint=30:min-keyint=30:bframes=4:open-gop=0"}),
    ],
)
@pytest.mark.parametrize("count", [451, 473])
def test_decoders_go_on_from_chunk_to_chunk(tmp_path: Path, codec: str, options: dict[str, str], count: int) -> None:
    """Many chunks for each; the last one is of one frame, or too short to be a chunk of its own."""
    path = Synthetic(codec=codec, options=options, gop=30, pts=range(count), size=(320, 240))
    assert same(path.write(tmp_path / "a.mkv")) == count


@pytest.mark.parametrize("name", SEAMS)
def test_time_may_step_back(tmp_path: Path, name: str) -> None:
    assert same(SEAMS[name](tmp_path)) >= 100


@pytest.mark.parametrize("start", [1.0, 3.0])
@pytest.mark.parametrize("name", SEAMS)
def test_a_beginning_where_time_steps_back(tmp_path: Path, name: str, start: float) -> None:
    """Before it or after it: what counts is when frames are shown, not what the file says."""
    assert same(SEAMS[name](tmp_path), start=start) >= 20


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts"])
def test_a_beginning_at_a_recovery_point(tmp_path: Path, suffix: str) -> None:
    options = {"x264-params": "keyint=30:min-keyint=30:scenecut=0:bframes=3:open-gop=1"}
    path = Synthetic(codec="libx264", options=options, pts=range(150), size=(128, 96))
    assert same(path.write(tmp_path / f"a.{suffix}"), start=2.0) == 100


def test_what_is_not_wanted_any_more_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from segmentation.stages.decode import chunk_decoder

    counted = []

    def slowly(info: VideoInfo, first: int | None, *calls: Callable[[], None]) -> Iterator[Any]:
        for packet in read(info, first, *calls):
            time.sleep(0.002)
            counted.append(packet.pts)
            yield packet

    read = chunk_decoder.read
    monkeypatch.setattr(chunk_decoder, "read", slowly)
    # MP4 has a sample table, by which `nvdec-native` reads without this function.
    path = Synthetic(codec="libx264", pts=range(2000), size=(128, 96)).write(tmp_path / "a.mkv")
    stage = decoder(probe(str(path)), max_frames=8)
    assert sum(len(batch) for batch in stage) == 8
    stage.close()
    assert 8 <= len(counted) < 1000


def test_a_beginning_is_not_looked_for_without_timestamps(tmp_path: Path) -> None:
    from segmentation.stages.decode.nvdec_support import nvdec_engines

    path = Synthetic(codec="libx264", pts=range(30), size=(128, 96), format="h264").write(tmp_path / "a.h264")
    assert same(path) == 30
    with pytest.raises(LacksEngine, match="--start by timestamps"):
        nvdec_engines(Config(start=0.5), probe(str(path)))


@pytest.mark.parametrize("options", [{"start": 3.0}, {"start": 3.1, "duration": 1.0}, {"max_frames": 37}])
def test_a_stretch(corpus: Path, options: dict[str, Any]) -> None:
    assert same(corpus / "nasa_13013.mp4", **options) > 20


def test_frames_handed_out_do_not_change(corpus: Path) -> None:
    """NVDEC uses its surfaces again; what the pipeline was given stays."""
    import torch

    stage = decoder(probe(str(corpus / "nasa_13013.mp4")))
    kept = []
    with torch.cuda.stream(gpu().stream):
        for batch in stage:
            kept.append((batch, [plane.clone() for plane in batch.planes]))
        for batch, copies in kept:
            count = len(batch)
            assert all(bool((p[:count] == c[:count]).all()) for p, c in zip(batch.planes, copies, strict=True))


def test_memory_bounds_what_runs_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even the least memory gives every frame, in order: the chunk whose turn it is always gets on."""
    from segmentation.stages.decode import chunk_decoder

    monkeypatch.setattr(chunk_decoder, "AHEAD", 1)
    options = {"x264-params": "keyint=30:min-keyint=30:scenecut=0:bframes=3"}
    path = Synthetic(codec="libx264", options=options, pts=range(200), size=(320, 240)).write(tmp_path / "a.mp4")
    stage = decoder(probe(str(path)))
    seen = []
    for batch in stage:
        time.sleep(0.01)
        seen += [frame.pts for frame in batch.frames]
    assert seen == [frame.pts for batch in PyAVDecoder(probe(str(path)), "yuv420p", Config()) for frame in batch.frames]


CLOSED = {"x264-params": "keyint=30:min-keyint=30:scenecut=0:bframes=3"}


def clips(folder: Path, *seeds: int, **options: Any) -> list[Path]:
    """Writes clips that differ in length and in nothing that a session is made for."""
    made = {"codec": "libx264", "options": CLOSED, "size": (320, 240)} | options
    return [Synthetic(**made, pts=range(150 + 31 * seed)).write(folder / f"{seed}.mp4") for seed in seeds]


def test_sessions_go_from_file_to_file_and_frames_stay_exact(tmp_path: Path) -> None:
    pool, used = NvdecSessionPool(), []
    for path in [*clips(tmp_path, 0, 1, 2), tmp_path / "0.mp4"]:
        stage = decoder(probe(str(path)), pool)
        assert [(f[0], f[2]) for f in frames_of(stage)] == [(f[0], f[2]) for f in on_ffmpeg(path)]
        stage.close()
        stage.close()
        used.append(set(pool._idle))
    assert used[0] and used[0] & used[1] and used[0] & used[2] & used[3]
    pool.close()
    assert not pool._idle


def test_files_at_a_time_have_sessions_of_their_own(tmp_path: Path) -> None:
    pool = NvdecSessionPool()
    paths = clips(tmp_path, 0, 1)
    for _ in range(2):
        stages = [decoder(probe(str(path)), pool) for path in paths]
        pairs = list(itertools.zip_longest(*[frames_of(stage) for stage in stages]))
        for stage, path, frames in zip(stages, paths, zip(*pairs, strict=True), strict=True):
            assert [(f[0], f[2]) for f in frames if f is not None] == [(f[0], f[2]) for f in on_ffmpeg(path)]
            stage.close()
        assert len(pool._idle) == len(set(pool._idle)) >= 2 and not pool.files
    pool.close()


def test_a_file_that_ends_early_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    """Its sessions are emptied or destroyed: no frame of it comes out as one of the next file."""
    pool = NvdecSessionPool()
    short, long = clips(tmp_path, 0, 9)
    for options in ({"max_frames": 20}, {"duration": 1.0}):
        stage = decoder(probe(str(long)), pool, **options)
        assert len(list(frames_of(stage))) in (20, 25)
        stage.close()
        stage = decoder(probe(str(long)), pool)
        next(iter(stage))
        stage.close()  # in the midst
        stage = decoder(probe(str(short)), pool)
        assert [(f[0], f[2]) for f in frames_of(stage)] == [(f[0], f[2]) for f in on_ffmpeg(short)]
        stage.close()
    pool.close()


def test_a_session_that_fails_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from segmentation.stages.decode.native.session import NativeSession
    from segmentation.stages.decode.nvdec_session import NvdecSession

    def fail(self: Any, *_: Any, **__: Any) -> Any:
        raise ValueError("broken")

    pool = NvdecSessionPool()
    (path,) = clips(tmp_path, 0)
    with monkeypatch.context() as patched:
        patched.setattr(NvdecSession, "decode", fail)
        patched.setattr(NativeSession, "decode", fail)
        stage = decoder(probe(str(path)), pool)
        with pytest.raises(ValueError, match="broken"):
            list(stage)
        stage.close()
        assert not pool._idle
    stage = decoder(probe(str(path)), pool)
    assert len(list(frames_of(stage))) == 150
    stage.close()
    pool.close()


def test_closing_ends_all_threads(corpus: Path) -> None:
    stage = decoder(probe(str(corpus / "nasa_13013.mp4")))  # the process's first one begins to read NVDEC's log
    before = threading.active_count()
    batches = iter(stage)
    next(batches)
    stage.close()
    assert threading.active_count() == before
    assert list(batches) == []
