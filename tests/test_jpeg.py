"""JPEG from the GPU: colours as the stream means them, every frame at its time. Most needs PyTorch but no GPU."""

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from fractions import Fraction
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest
import stages
from conftest import pictures, same_times, times, video_info
from numpy.typing import NDArray

from segmentation import BackendError, Config, OutputError
from segmentation.errors import DeviceError, DeviceMemoryError
from segmentation.faults import explain
from segmentation.frames import FORMATS, FULL, LIMITED, Colour, Frame, FrameBatch, VideoInfo
from segmentation.mux import Muxer

MATRICES = {1: "bt709", 5: "bt470bg", 9: "bt2020nc"}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module under test, on the CPU, with `HostNvJpeg` as its `nvjpeg` and what CUDA does stood in for."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("cuda.pathfinder")
    from host_nvjpeg import HostNvJpeg

    import segmentation.encode.jpeg as jpeg
    from segmentation.encode import nvjpeg

    stream = SimpleNamespace(synchronize=lambda: None, cuda_stream=1)
    empty, library = torch.empty, HostNvJpeg()

    def unlocked(*shape: Any, pin_memory: bool = False, **options: Any) -> Any:
        tensor = empty(*shape, **options)
        if pin_memory:
            library.page_locked[tensor.data_ptr()] = len(tensor)
        return tensor

    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: stream)
    monkeypatch.setattr(torch, "empty", unlocked)
    monkeypatch.setattr(nvjpeg, "library", lambda: library)
    monkeypatch.setattr(nvjpeg, "_handle", cache(nvjpeg._handle.__wrapped__))
    monkeypatch.setattr(jpeg, "nvjpeg", library, raising=False)
    return jpeg


def no_gpu() -> Any:
    import torch

    def kernel(name: str, size: Any, y: Any, u: Any, v: Any, rgb: Any, width: int, height: int, matrix: Any) -> None:
        assert (name, size) == ("to_rgb", (width, height, len(y)))
        rgb[: len(y)] = reference_rgb(y, u, v, matrix)

    return SimpleNamespace(
        stream=torch.cuda.Stream(None),
        beside=no_gpu,
        device=torch.device("cpu"),
        index=0,
        enter=lambda: None,
        kernels=lambda layout: kernel,
        empty=lambda shape, dtype: torch.empty(shape, dtype=dtype),
    )


def reference_rgb(y: Any, u: Any, v: Any, matrix: Any) -> Any:
    """Planes Y (N, H, W) and U, V (N, h, w), uint8 or uint16, to RGB (N, 3, H, W) uint8, rounded and clipped.

    `matrix` (3, 4) takes (Y, U, V, 1) to 0..255. Subsampled chroma is enlarged from where H.264 and HEVC place it
    unless they say otherwise: in the columns of even luma samples, and midway between two rows.
    """
    import torch

    height, width = y.shape[-2:]
    luma = _floats(y)
    blue, red = (_enlarged(_floats(plane), height, width) for plane in (u, v))
    rgb = torch.empty((len(y), 3, height, width), dtype=torch.uint8, device=y.device)
    for channel, (of_y, of_u, of_v, offset) in enumerate(matrix.tolist()):
        value = (luma * of_y).add_(blue, alpha=of_u).add_(red, alpha=of_v).add_(offset + 0.5)
        rgb[:, channel] = value.clamp_(0, 255)  # truncated
    return rgb


def _floats(plane: Any) -> Any:
    import torch

    # PyTorch does little with uint16; values of 10 bits are the same in int16.
    return (plane.view(torch.int16) if plane.dtype == torch.uint16 else plane).float()


def _enlarged(chroma: Any, height: int, width: int) -> Any:
    """(N, h, w) to (N, height, width), each side once or twice as long."""
    import torch

    if chroma.shape[-2] != height:
        chroma = torch.nn.functional.interpolate(chroma[:, None], scale_factor=(2, 1), mode="bilinear")[:, 0]
    if chroma.shape[-1] != width:
        right = torch.cat((chroma[..., 1:], chroma[..., -1:]), -1)
        chroma = torch.stack((chroma, (chroma + right) / 2), -1).flatten(-2)
    return chroma[..., :height, :width]


def scene(i: int, size: tuple[int, int]) -> NDArray[np.uint8]:
    """A smooth colourful picture, RGB (H, W, 3)."""
    y, x = np.mgrid[: size[1], : size[0]]
    channels = (128 + 100 * np.sin((x + 3 * i) / 17), 128 + 90 * np.cos((y - 2 * i) / 13), 60 + (x + y) % 256 / 2)
    return np.stack(channels, -1).astype(np.uint8)


def planes_of(rgb: NDArray[np.uint8], pix_fmt: str, colour: Colour) -> list[NDArray[Any]]:
    """YUV planes of an RGB picture, by the colour's own matrix in floating point; chroma averaged over its place."""
    layout = FORMATS[pix_fmt]
    matrix = colour.yuv_to_rgb(layout.bits).astype(np.float64)
    yuv = np.linalg.solve(matrix[:, :3], (rgb.reshape(-1, 3) / 255 - matrix[:, 3]).T).reshape(3, *rgb.shape[:2])
    planes = [yuv[0]]
    for chroma in yuv[1:]:
        if layout.shift_x:  # left-sided: 1 2 1 around the even columns
            padded = np.pad(chroma, ((0, 0), (1, 1)), "edge")
            chroma = ((padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:]) / 4)[:, ::2]
        if layout.shift_y:
            padded = np.pad(chroma, ((0, chroma.shape[0] % 2), (0, 0)), "edge")
            chroma = (padded[::2] + padded[1::2]) / 2
        planes.append(chroma)
    return [np.clip(np.round(p), 0, (1 << layout.bits) - 1).astype(layout.dtype) for p in planes]


def batches(info: VideoInfo, pix_fmt: str, pts: Sequence[int], device: str, size: int = 4) -> Iterator[FrameBatch]:
    """Batches as GPU stages make them: tensors that may be longer than the batch."""
    import torch

    made = [planes_of(scene(i, (info.width, info.height)), pix_fmt, info.colour) for i in range(len(pts))]
    for i in range(0, len(pts), size):
        part = made[i : i + size]
        part += [[np.zeros_like(p) for p in part[0]]] * (size - len(part))
        planes = tuple(torch.from_numpy(np.stack(p)).to(device) for p in zip(*part, strict=True))
        frames = tuple(Frame(planes=(), pts=n, duration=2) for n in pts[i : i + size])  # type: ignore[arg-type]
        yield FrameBatch(frames=frames, index=i, planes=planes)


def write(
    module: Any, path: Path, info: VideoInfo, pix_fmt: str, pts: Sequence[int], gpu: Any, **options: Any
) -> list[Any]:
    config = Config(codec="mjpeg", batch_size=4, **options)
    with Muxer(path, info, config) as muxer:
        seen: list[Any] = []
        given = batches(info, pix_fmt, pts, str(gpu.device))
        with closing(module.JpegEncoder(muxer, info, pix_fmt, config, gpu)) as encoder:
            for packets in (*(encoder.encode(batch) for batch in given), encoder.flush()):
                seen += [(p.pts, p.dts, p.duration, p.is_keyframe) for p in packets]
                muxer.write(packets)
        muxer.finish(None)
    return seen


def check(module: Any, path: Path, gpu: Any, pix_fmt: str, colour: Colour, size: tuple[int, int]) -> None:
    """The file's frames, as FFmpeg reads their JPEGs, are the scene."""
    info = video_info(size, colour=colour, time_base=Fraction(1, 1000 if path.suffix == ".mkv" else 30))
    pts = [0, 1, 5, 6, 7, 20]
    assert write(module, path, info, pix_fmt, pts, gpu, quality=95) == [(n, n, 2, True) for n in pts]
    tick = Fraction(1, 1000) if path.suffix == ".mkv" else Fraction(0)
    if path.suffix != ".avi":  # it fills gaps with empty packets
        assert same_times(times(path), [n * info.time_base for n in pts], tick)
    decoded = list(pictures(path))
    assert len(decoded) == len(pts)
    for i, picture in enumerate(decoded):
        assert picture.pix_fmt == "yuvj444p" and (picture.frame.width, picture.frame.height) == size
        assert int(picture.frame.color_range) == FULL and int(picture.frame.colorspace) == 5
        difference = np.abs(picture.frame.to_ndarray(format="rgb24").astype(int) - scene(i, size))
        assert difference.mean() < 3 and np.percentile(difference, 99) < 16, (i, difference.mean())


ALL = [
    ("yuv420p", Colour(1, LIMITED, 1, 1), (128, 96), "out.mp4"),
    ("yuv420p", Colour(5, FULL, 5, 6), (128, 96), "out.mov"),
    ("yuv420p", Colour(9, LIMITED, 9, 14), (131, 97), "out.mkv"),
    ("yuv422p", Colour(1, LIMITED, 1, 1), (130, 97), "out.avi"),
    ("yuv444p", Colour(), (64, 48), "out.mp4"),
    ("yuv420p10le", Colour(9, LIMITED, 9, 16), (128, 96), "out.mkv"),
    ("yuv444p10le", Colour(1, FULL, 1, 1), (65, 49), "out.mp4"),
]


@pytest.mark.parametrize(("pix_fmt", "colour", "size", "name"), ALL)
def test_the_whole_way_on_the_cpu(
    pix_fmt: str, colour: Colour, size: tuple[int, int], name: str, module: Any, tmp_path: Path
) -> None:
    check(module, tmp_path / name, no_gpu(), pix_fmt, colour, size)
    assert not module.nvjpeg.alive


@pytest.mark.gpu
@pytest.mark.parametrize(("pix_fmt", "colour", "size", "name"), ALL)
def test_the_whole_way_on_the_gpu(
    pix_fmt: str, colour: Colour, size: tuple[int, int], name: str, tmp_path: Path
) -> None:
    import segmentation.encode.jpeg as jpeg

    check(jpeg, tmp_path / name, stages.gpu(), pix_fmt, colour, size)


@pytest.mark.gpu
def test_batches_do_not_mix_on_the_gpu(tmp_path: Path) -> None:
    """The planes are computed late, and their memory is given out again as soon as `encode` has let go of it."""
    import torch

    import segmentation.encode.jpeg as jpeg
    from segmentation.pool import PlanePool

    gpu, config = stages.gpu(), Config(codec="mjpeg", batch_size=8)
    info = video_info((1920, 1080))
    shapes = ((8, 1080, 1920), (8, 540, 960), (8, 540, 960))
    levels = list(range(20, 220, 4))
    pool = PlanePool(gpu, shapes, torch.uint8)
    busy = torch.rand((4096, 4096), device=gpu.device)
    torch.cuda.synchronize()
    with (
        Muxer(tmp_path / "out.mkv", info, config) as muxer,
        closing(jpeg.JpegEncoder(muxer, info, "yuv420p", config, gpu)) as encoder,
    ):
        for i in range(0, len(levels), 8):
            part = levels[i : i + 8]
            planes = pool.take()
            with torch.cuda.stream(gpu.stream):
                for _ in range(10):
                    busy = busy @ busy / busy.norm()
                for k, level in enumerate(part):
                    planes[0][k] = level
                planes[1][:], planes[2][:] = 128, 128
            frames = tuple(Frame(planes=(), pts=i + k, duration=1) for k in range(len(part)))  # type: ignore[arg-type]
            batch = FrameBatch(frames=frames, index=i, planes=planes, ready=gpu.recorded())
            muxer.write(encoder.encode(batch))
            del planes, batch
            for plane in pool.take():
                with torch.cuda.stream(gpu.stream):
                    plane.fill_(255)
        muxer.write(encoder.flush())
        muxer.finish(None)
    grey = [(level - 16) * 255 / 219 for level in levels]
    decoded = [p.planes[0] for p in pictures(tmp_path / "out.mkv")]
    assert len(decoded) == len(levels)
    for plane, expected in zip(decoded, grey, strict=True):
        assert np.abs(plane.astype(float) - expected).max() <= 2


@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("span", [LIMITED, FULL])
def test_colours_are_those_of_swscale(matrix: int, span: int) -> None:
    """Without subsampling, so that only the arithmetic is compared: within 2 levels."""
    torch = pytest.importorskip("torch")
    noise = np.random.default_rng(3).integers(16, 236, (3, 64, 64)).astype(np.uint8)
    frame = av.VideoFrame.from_dlpack(tuple(noise), "yuv444p")
    options = {"src_colorspace": matrix, "dst_colorspace": matrix, "src_color_range": span, "dst_color_range": FULL}
    reference = frame.reformat(format="rgb24", **options).to_ndarray()
    y, u, v = (torch.from_numpy(p[None]) for p in noise)
    ours = reference_rgb(y, u, v, Colour(matrix, span).yuv_to_rgb(8) * 255)[0].numpy().transpose(1, 2, 0)
    assert np.abs(ours.astype(int) - reference).max() <= 2


def test_chroma_is_enlarged_from_its_place() -> None:
    torch = pytest.importorskip("torch")
    y = torch.zeros((1, 4, 5), dtype=torch.uint8)
    u = torch.tensor([[[0, 40, 80], [80, 120, 160]]], dtype=torch.uint8)
    only_u = np.array([[0, 1, 0, 0]] * 3)
    enlarged = reference_rgb(y, u, u, only_u)[0, 0].tolist()
    assert enlarged[0] == [0, 20, 40, 60, 80]  # even columns as they are, odd ones between
    assert [row[0] for row in enlarged] == [0, 20, 60, 80]  # a quarter and three quarters of the way


@pytest.mark.gpu
@pytest.mark.parametrize("pix_fmt", FORMATS)
@pytest.mark.parametrize("size", [(64, 48), (161, 121)])
def test_the_kernel_gives_the_same_colours(pix_fmt: str, size: tuple[int, int]) -> None:
    import torch

    layout, (width, height) = FORMATS[pix_fmt], size
    chroma = (3, -(-height >> layout.shift_y), -(-width >> layout.shift_x))
    noise = np.random.default_rng(5)
    planes = [
        torch.from_numpy(noise.integers(0, 1 << layout.bits, shape).astype(layout.dtype))
        for shape in ((3, height, width), chroma, chroma)
    ]
    matrix = torch.from_numpy(Colour(1, LIMITED).yuv_to_rgb(layout.bits) * 255)
    rgb = stages.gpu().empty((3, 3, height, width), torch.uint8)
    moved = [plane.to(stages.gpu().device) for plane in (*planes, matrix)]
    stages.gpu().kernels(layout)("to_rgb", (width, height, 3), *moved[:3], rgb, width, height, moved[3])
    stages.gpu().stream.synchronize()
    difference = np.abs(rgb.cpu().numpy().astype(int) - reference_rgb(*planes, matrix).numpy())
    assert difference.max() <= 1


def noise(i: int, size: tuple[int, int]) -> NDArray[np.uint8]:
    """A first picture without anything, then each with more."""
    grey = np.random.default_rng(i).normal(128, 6 * i, (size[1], size[0], 1))
    return np.clip(grey, 0, 255).repeat(3, -1).astype(np.uint8)


def test_files_that_become_longer(module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(globals(), "scene", noise)
    check(module, tmp_path / "out.mkv", no_gpu(), "yuv444p", Colour(), (256, 192))


@pytest.mark.gpu
def test_files_that_become_longer_on_the_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import segmentation.encode.jpeg as jpeg

    monkeypatch.setitem(globals(), "scene", noise)
    check(jpeg, tmp_path / "out.mkv", stages.gpu(), "yuv444p", Colour(), (256, 192))


def check_quality(module: Any, folder: Path, gpu: Any) -> None:
    sizes = []
    for options in ({"quality": 1}, {"quality": 50}, {}, {"quality": 100}):
        path = folder / f"{len(sizes)}.mkv"
        write(module, path, video_info((128, 96)), "yuv420p", range(4), gpu, **options)
        sizes.append(path.stat().st_size)
    assert sizes == sorted(set(sizes))


def test_quality(module: Any, tmp_path: Path) -> None:
    check_quality(module, tmp_path, no_gpu())


@pytest.mark.gpu
def test_quality_on_the_gpu(tmp_path: Path) -> None:
    import segmentation.encode.jpeg as jpeg

    check_quality(jpeg, tmp_path, stages.gpu())


def test_tags(module: Any, tmp_path: Path) -> None:
    """The picture's shape, and the colour tags that JPEG does not decide, are the source's."""
    info = video_info((128, 96), colour=Colour(9, LIMITED, 9, 16), sample_aspect_ratio=Fraction(4, 3))
    write(module, tmp_path / "out.mp4", info, "yuv420p", range(4), no_gpu())
    with av.open(str(tmp_path / "out.mp4")) as container:
        stream = container.streams.video[0]
        assert stream.sample_aspect_ratio == Fraction(4, 3) and stream.codec_context.name == "mjpeg"
        frame = next(container.decode(video=0))
        assert (int(frame.color_primaries), int(frame.color_trc)) == (9, 16)


def test_containers_that_hold_no_jpeg(module: Any, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="can't hold mjpeg"):
        write(module, tmp_path / "out.webm", video_info((64, 48)), "yuv420p", range(2), no_gpu())


def test_pictures_that_overtake_each_other(module: Any, tmp_path: Path) -> None:
    """The sooner they are begun, the longer they take: each has its own time and content all the same."""
    number = itertools.count()
    module.nvjpeg.before = lambda state: time.sleep(0.02 * (2 - next(number) % 3))
    check(module, tmp_path / "out.mkv", no_gpu(), "yuv420p", Colour(1, LIMITED, 1, 1), (64, 48))


def test_several_pictures_at_once(module: Any, tmp_path: Path) -> None:
    """The first three are begun before one of them is done, each by an encoder of its own."""
    together, begun = threading.Barrier(3, timeout=20), []

    def begin(state: int) -> None:
        begun.append(state)
        if len(begun) <= 3:
            together.wait()

    module.nvjpeg.before = begin
    write(module, tmp_path / "out.mkv", video_info((64, 48)), "yuv420p", range(4), no_gpu())
    assert len(begun) == 4 and len(set(begun[:3])) == 3


FAILURES = [
    ("NVJPEG_STATUS_EXECUTION_FAILED", None, OutputError, "nvJPEG can't encode 64x48 (NVJPEG_STATUS_EXECUTION_FAILED)"),
    ("NVJPEG_STATUS_ALLOCATOR_FAILURE", None, DeviceMemoryError, "the GPU's memory is full"),
    (
        "NVJPEG_STATUS_EXECUTION_FAILED",
        "CUDA error: an illegal memory access",
        DeviceError,
        "the GPU failed (CUDA error",
    ),
]


@pytest.mark.parametrize(("status", "of_the_stream", "kind", "text"), FAILURES)
def test_failures_are_one_line(
    status: str, of_the_stream: str | None, kind: type[Exception], text: str, module: Any, tmp_path: Path
) -> None:
    """nvJPEG's word if only nvJPEG failed, CUDA's if the GPU did; and nothing is left behind."""
    import torch

    def synchronize() -> None:
        if of_the_stream is not None:
            raise RuntimeError(of_the_stream)

    def fail(state: int) -> None:
        torch.cuda.Stream(None).synchronize = synchronize
        raise NvJpegError(status)

    from segmentation.encode.nvjpeg import NvJpegError

    module.nvjpeg.before = fail
    with pytest.raises((OutputError, RuntimeError)) as caught:
        write(module, tmp_path / "out.mkv", video_info((64, 48)), "yuv420p", range(9), no_gpu())
    shown = explain(caught.value) or caught.value
    assert type(shown) is kind and str(shown).startswith(text)
    assert not list(tmp_path.iterdir()) and not module.nvjpeg.alive


def test_an_encoder_that_does_not_start_is_one_line(
    module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whichever call fails, of whichever thread's encoder; what was made before is freed."""
    from segmentation.encode.nvjpeg import NvJpegError

    calls = itertools.count()

    def fail(*_: Any) -> None:
        if next(calls) == 1:
            raise NvJpegError("NVJPEG_STATUS_EXECUTION_FAILED")

    monkeypatch.setattr(module.nvjpeg, "nvjpegEncoderParamsSetSamplingFactors", fail)
    with pytest.raises(BackendError, match=r"^nvJPEG does not start \(NVJPEG_STATUS_EXECUTION_FAILED\)$"):
        write(module, tmp_path / "out.mkv", video_info((64, 48)), "yuv420p", range(2), no_gpu())
    assert not list(tmp_path.iterdir()) and not module.nvjpeg.alive and next(calls) == 2


def test_without_a_gpu_it_is_refused(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BackendError, match="NVIDIA GPU only"):
        module.JpegEncoder.describe(Config(encode="jpeg"))
