"""Tests NVENC: on any machine its options, memory layout and refusals, and encoding on GPUs that have it."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from textures import assert_shows_texture, batches, texture, write
from videos import video_info

from segmentation import BackendError, Config
from segmentation.frames import VideoInfo
from segmentation.gpu.discovery import GpuInfo
from segmentation.media.muxer import Muxer
from segmentation.stages.encode import nvenc_options, nvenc_support

CODECS = ("h264", "hevc", "av1")
MODULES = ("segmentation.stages.encode.nvenc", "segmentation.stages.encode.nvenc_surfaces")


@pytest.fixture
def nvenc(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Imports the module, with a stub where PyTorch is missing."""
    try:
        import torch  # noqa: F401
    except ImportError:
        monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    import segmentation.stages.encode.nvenc as module

    yield module
    for name in MODULES:  # they may refer to the stub
        sys.modules.pop(name, None)


def host_gpu() -> Any:
    """Returns a `Gpu` whose memory is the host's, or skips the test."""
    pytest.importorskip("torch", minversion="2")  # the stub has no version
    import host_kernels

    gpu: Any = host_kernels.HostGpu()
    gpu.index = 0
    return gpu


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("quality", [None, 0, 1, 51])
@pytest.mark.parametrize("preset", [None, "p1", "p7"])
def test_options_are_those_of_the_real_encoder(codec: Any, quality: int | None, preset: str | None, nvenc: Any) -> None:
    """Names and values are those of PyAV's FFmpeg. On a GPU, unknown names would have no effect."""
    table = av.CodecContext.create(f"{codec}_nvenc", "w").supported_options
    known = {option.name: option for option in (*table.generic, *table.private)}
    low_delay = codec != "av1" and preset == "p1"
    config = Config(codec=codec, quality=quality, preset=preset, encode="nvenc", low_delay=low_delay)
    for extra in nvenc_options.EXTRAS:
        chosen = nvenc_options.options(codec, config, extra)
        for name, value in {**chosen, **nvenc_options.ALWAYS}.items():
            choices = [choice.name for choice in known[name].choices]
            if choices and not value.isdigit():
                assert value in choices, name
            else:
                assert known[name].min <= float(value) <= known[name].max, name
        assert chosen["preset"] == (preset or "p5")
        assert quality != 0 or codec == "av1" or chosen["tune"] == "lossless"


def test_it_is_in_the_wheels() -> None:
    assert {f"{codec}_nvenc" for codec in CODECS} <= av.codecs_available
    for codec in CODECS:
        formats = {f.name for f in av.Codec(f"{codec}_nvenc", "w").video_formats or ()}
        assert {"nv12", "p010le", "cuda"} <= formats


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("Cannot load libcuda.so.1", "no NVIDIA driver"),
        ("Driver does not support the required nvenc API version. Required: 13.0 Found: 12.1", "too old"),
        ("OpenEncodeSessionEx failed: unsupported device (2): (no details)", "A100, H100, H200 and B200"),
        ("OpenEncodeSessionEx failed: out of memory (10): (no details)", "consumer cards"),
        ("Codec not supported", "av1 needs Ada"),
        ("No capable devices found", "refuses"),
    ],
)
def test_refusals_say_why(said: str, hint: str, nvenc: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        options: dict[str, str]

        def open(self) -> None:
            av.logging.log(av.logging.ERROR, "h264_nvenc", f"{said}\n")
            av.logging.log(av.logging.FATAL, "h264_nvenc", "something general\n")
            raise av.error.ExternalError(542398533, "Generic error in an external library")

    nvenc_support._probed.cache_clear()
    monkeypatch.setenv("SEGMENTATION_ENGINES", str(tmp_path))
    monkeypatch.setattr(nvenc_support, "VideoCodecContext", Refusing)
    monkeypatch.setattr(nvenc_support, "CodecContext", SimpleNamespace(create=lambda *_, hwaccel: Refusing()))
    with pytest.raises(BackendError) as caught:
        nvenc_support.extras("h264_nvenc", 0)
    message = str(caught.value)
    assert hint in message and said in message and "\n" not in message
    assert av.logging.get_level() is None  # as it was


@pytest.mark.parametrize(
    ("said", "kept"), [("unsupported device (2): (no details)", True), ("out of memory (10): (no details)", False)]
)
def test_that_a_gpu_has_no_nvenc_is_asked_once(
    said: str, kept: bool, nvenc: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refusals that may change are probed again by the next process."""
    opened = []

    class Refusing:
        def open(self) -> None:
            opened.append(self)
            av.logging.log(av.logging.ERROR, "h264_nvenc", f"OpenEncodeSessionEx failed: {said} {len(opened)}\n")
            raise av.error.ExternalError(542398533, "Generic error in an external library")

    monkeypatch.setenv("SEGMENTATION_ENGINES", str(tmp_path / "new"))
    monkeypatch.setattr(nvenc_support, "find_gpu", lambda index: GpuInfo("NVIDIA A100-SXM4-80GB", (8, 0)))
    monkeypatch.setattr(nvenc_support, "VideoCodecContext", Refusing)
    monkeypatch.setattr(nvenc_support, "CodecContext", SimpleNamespace(create=lambda *_, hwaccel: Refusing()))
    messages = []
    for _ in range(2):
        nvenc_support._probed.cache_clear()
        with pytest.raises(BackendError) as caught:
            nvenc_support.extras("hevc_nvenc", 0)
        messages.append(str(caught.value))
    assert len(opened) == (1 if kept else 2) and all(said in message for message in messages)
    nvenc_support._probed.cache_clear()


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"codec": "ffv1"}, "not ffv1"),
        ({"preset": "fast"}, "no preset fast"),
        ({"device": "cpu"}, "not with --device cpu"),
    ],
)
def test_what_it_does_not_do(options: dict[str, Any], hint: str, nvenc: Any) -> None:
    with pytest.raises(BackendError) as caught:
        nvenc.NvencEncoder.describe(Config(**options))
    assert hint in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("codec", CODECS)
def test_a_machine_without_nvenc_refuses(codec: Any, nvenc: Any) -> None:
    """FFmpeg refuses. Where there is NVENC, another test encodes with it."""
    try:
        described = nvenc.NvencEncoder.describe(Config(codec=codec))
    except BackendError as exc:
        assert str(exc).startswith(f"{codec}_nvenc can't be used: ") and "\n" not in str(exc)
    else:
        assert f"{codec}_nvenc on cuda:0" in described


def test_older_gpus_get_fewer_options(nvenc: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        options: dict[str, str]

        def open(self) -> None:
            if "temporal-aq" in self.options:
                raise av.error.FFmpegError(38, "Function not implemented")

    nvenc_support._probed.cache_clear()
    monkeypatch.setenv("SEGMENTATION_ENGINES", str(tmp_path))
    monkeypatch.setattr(nvenc_support, "VideoCodecContext", Old)
    monkeypatch.setattr(nvenc_support, "CodecContext", SimpleNamespace(create=lambda *_, hwaccel: Old()))
    assert nvenc_support.extras("hevc_nvenc", 3) == {"bf": "3"}


def assert_holds(frame: av.VideoFrame, planes: Sequence[NDArray[Any]]) -> None:
    """Checks that an nv12 or p010le frame has these planes, with repeated edges as padding."""
    luma, chroma = (
        np.frombuffer(p, planes[0].dtype).reshape(p.height, -1)[:, :w]  # type: ignore[call-overload]
        for p, w in zip(frame.planes, 2 * (frame.width,), strict=True)
    )
    for got, plane in zip((luma, chroma[:, 0::2], chroma[:, 1::2]), planes, strict=True):
        padding = [(0, a - b) for a, b in zip(got.shape, plane.shape, strict=True)]
        assert np.array_equal(got >> (0 if plane.dtype == np.uint8 else 6), np.pad(plane, padding, "edge"))


@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv420p10le"])
@pytest.mark.parametrize("size", [(96, 64), (97, 65), (300, 130)])
def test_surfaces_are_what_nvenc_reads(pix_fmt: str, size: tuple[int, int], nvenc: Any) -> None:
    """Chroma lies where NVENC expects it after luma, and FFmpeg reads the same picture from the same memory."""
    gpu = host_gpu()
    info = video_info(size)
    (batch,) = batches(info, pix_fmt, [0, 1, 2], "cpu")
    layout = nvenc.SurfaceLayout(info, pix_fmt, gpu)
    made = layout.empty(4)
    layout.fill(made, batch)
    height = -(-size[1] // 2) * 2
    assert made.shape[:2] == (4, height * 3 // 2) and made.is_contiguous()
    assert made.stride(1) * made.element_size() % 4 == 0
    for i in range(3):
        frame = layout.wrap(made[i], None)
        pitch = frame.planes[0].line_size
        assert frame.planes[1].buffer_ptr - frame.planes[0].buffer_ptr == pitch * height
        assert frame.planes[1].line_size == pitch
        assert_holds(frame, texture(i, info, pix_fmt))


@pytest.mark.parametrize("size", [(96, 64), (97, 65)])
def test_the_whole_way_with_another_encoder(
    size: tuple[int, int], nvenc: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libx264 takes the place of h264_nvenc and gets the same surfaces, on the CPU."""
    gpu = host_gpu()
    add, taken = Muxer.add_video, []

    def stand_in(self: Muxer, library: str, info: VideoInfo, options: dict[str, str]) -> Any:
        taken.append((library, options))
        return add(self, "libx264", info, {"qp": "0"})

    monkeypatch.setattr(Muxer, "add_video", stand_in)
    monkeypatch.setattr(nvenc, "extras", lambda library, index: {"bf": "3"})
    monkeypatch.setattr(nvenc, "_MEMORY", "nv12")
    info, pts = video_info(size), [0, 1, 4, 5, 6, 30, 31, 33, 34, *range(35, 135)]
    empty, made = nvenc.SurfaceLayout.empty, []
    monkeypatch.setattr(nvenc.SurfaceLayout, "empty", lambda *arguments: made.append(empty(*arguments)) or made[-1])
    write(nvenc, tmp_path / "out.mp4", info, "yuv420p", pts, gpu, Config())
    assert_shows_texture(tmp_path / "out.mp4", info, "yuv420p", pts, 0)
    assert taken[0][0] == "h264_nvenc" and taken[0][1]["cq"] == "26"
    assert 4 * len(made) < 0.6 * len(pts)  # surfaces are used again: libx264 holds about 45 frames


def real_gpu() -> Any:
    from segmentation.gpu.context import Gpu

    return Gpu()


@pytest.mark.gpu
@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv420p10le"])
@pytest.mark.parametrize("size", [(192, 128), (193, 129)])
def test_cuda_memory_reaches_ffmpeg(pix_fmt: str, size: tuple[int, int]) -> None:
    """Frames lie in PyTorch's memory and context, which stay valid after FFmpeg's use. Any NVIDIA GPU will do."""
    import torch

    import segmentation.stages.encode.nvenc as nvenc

    gpu, info = real_gpu(), video_info(size)
    (batch,) = batches(info, pix_fmt, [0, 1, 2], gpu.device)
    torch.cuda.synchronize()
    layout = nvenc.SurfaceLayout(info, pix_fmt, gpu)
    made = layout.empty(3)
    layout.fill(made, batch)
    gpu.stream.synchronize()
    context = nvenc.CudaContext(0, primary_ctx=False, current_ctx=True)
    for i in range(3):
        frame = layout.wrap(made[i], context)
        assert frame.format.name == "cuda"
        assert_holds(frame.reformat(format=layout.format), texture(i, info, pix_fmt))
    del frame, context, made
    assert int(torch.ones(1000, device=gpu.device).sum()) == 1000


@pytest.mark.gpu
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv420p10le"])
@pytest.mark.parametrize("size", [(320, 192), (321, 193)])
@pytest.mark.parametrize("quality", [None, 0])
def test_encoding_on_a_gpu_that_can(
    codec: Any, pix_fmt: str, size: tuple[int, int], quality: int | None, tmp_path: Path
) -> None:
    import segmentation.stages.encode.nvenc as nvenc

    config = Config(codec=codec, quality=quality)
    try:
        nvenc.NvencEncoder.describe(config)
    except BackendError as exc:
        assert "\n" not in str(exc)
        pytest.skip(str(exc))
    if pix_fmt not in nvenc.NvencEncoder.formats(codec):
        pytest.skip(f"{codec} of NVENC has no {pix_fmt}")
    info, pts = video_info(size), [0, 1, 2, 3, 10, 11, 15, *range(20, 80)]
    write(nvenc, tmp_path / "out.mkv", info, pix_fmt, pts, real_gpu(), config)
    assert_shows_texture(tmp_path / "out.mkv", info, pix_fmt, pts, 0 if quality == 0 and codec != "av1" else 3)


@pytest.mark.gpu
def test_a_gpu_without_nvenc_is_named(nvenc: Any) -> None:
    import torch

    name = torch.cuda.get_device_name(0)
    if not any(kind in name for kind in ("A100", "H100", "H200", "B200")):
        pytest.skip(f"{name} may have NVENC")
    with pytest.raises(BackendError, match="can't be used: "):
        nvenc.NvencEncoder.describe(Config())
