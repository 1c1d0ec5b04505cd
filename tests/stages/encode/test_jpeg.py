"""Tests JPEG from the GPU: its colors, and the times of its frames. Most tests need PyTorch but no GPU."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from fractions import Fraction
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import av
import cv2
import numpy as np
import pytest
import stages
from numpy.typing import NDArray
from videos import pictures, same_times, times, video_info

from segmentation import BackendError, Config, OutputError
from segmentation.frames import FORMATS, FULL, LIMITED, Color, Frame, FrameBatch, VideoInfo
from segmentation.media.muxer import Muxer

MATRICES = {1: "bt709", 5: "bt470bg", 9: "bt2020nc"}


def on_the_cpu(images: Sequence[Any], quality: int) -> list[Any]:
    """Encodes pictures as nvJPEG does, in 4:4:4, with OpenCV."""
    import torch

    options = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, 0x111111]
    encoded = (cv2.imencode(".jpg", image.numpy().transpose(1, 2, 0)[..., ::-1], options)[1] for image in images)
    return [torch.from_numpy(data) for data in encoded]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Imports the module with stand-ins for CUDA and nvJPEG on the CPU."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("cuda.core", reason="cuda-core is not installed")
    try:
        import torchvision  # noqa: F401
    except ImportError:
        stub: Any = ModuleType("torchvision")
        stub.io = ModuleType("torchvision.io")
        stub.__version__, stub.io.encode_jpeg = "0", on_the_cpu
        monkeypatch.setitem(sys.modules, "torchvision", stub)
        monkeypatch.setitem(sys.modules, "torchvision.io", stub.io)
    monkeypatch.delitem(sys.modules, "segmentation.stages.encode.jpeg", raising=False)
    import segmentation.stages.encode.jpeg as jpeg

    monkeypatch.setattr(jpeg, "encode_jpeg", on_the_cpu)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: None)
    yield jpeg
    sys.modules.pop("segmentation.stages.encode.jpeg", None)  # the module may refer to the stub


def no_gpu() -> Any:
    """Returns a stand-in for `Gpu` on the CPU."""
    import torch

    def kernel(name: str, size: Any, y: Any, u: Any, v: Any, rgb: Any, width: int, height: int, *matrix: Any) -> None:
        *chroma, count = size
        assert (name, chroma) == ("to_rgb", [*u.shape[:0:-1]]) and count <= len(rgb)
        rgb[:count] = reference_rgb(*(plane[:count] for plane in (y, u, v)), torch.tensor(matrix).view(3, 4))

    event = SimpleNamespace(synchronize=lambda: None)
    return SimpleNamespace(
        with_own_stream=no_gpu,
        record_event=lambda: event,
        device=torch.device("cpu"),
        index=0,
        enter=lambda: None,
        kernels=lambda source, layout: kernel,
        empty=lambda shape, dtype: torch.empty(shape, dtype=dtype),
    )


def reference_rgb(y: Any, u: Any, v: Any, matrix: Any) -> Any:
    """Converts planes Y (N, H, W) and U, V (N, h, w), uint8 or uint16, to RGB (N, 3, H, W) uint8, rounded and clipped.

    `matrix` (3, 4) maps (Y, U, V, 1) to 0..255. Subsampled chroma is enlarged from its default place in H.264 and
    HEVC: in the columns of even luma samples, and midway between two rows.
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

    # PyTorch has few operations for uint16, and 10 bits are the same in int16.
    return (plane.view(torch.int16) if plane.dtype == torch.uint16 else plane).float()


def _enlarged(chroma: Any, height: int, width: int) -> Any:
    """Enlarges (N, h, w) to (N, height, width), each side once or twice as long."""
    import torch

    if chroma.shape[-2] != height:
        chroma = torch.nn.functional.interpolate(chroma[:, None], scale_factor=(2, 1), mode="bilinear")[:, 0]
    if chroma.shape[-1] != width:
        right = torch.cat((chroma[..., 1:], chroma[..., -1:]), -1)
        chroma = torch.stack((chroma, (chroma + right) / 2), -1).flatten(-2)
    return chroma[..., :height, :width]


def scene(i: int, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Returns a smooth colorful picture, RGB (H, W, 3)."""
    y, x = np.mgrid[: size[1], : size[0]]
    channels = (128 + 100 * np.sin((x + 3 * i) / 17), 128 + 90 * np.cos((y - 2 * i) / 13), 60 + (x + y) % 256 / 2)
    return np.stack(channels, -1).astype(np.uint8)


def planes_of(rgb: NDArray[np.uint8], pix_fmt: str, color: Color) -> list[NDArray[Any]]:
    """Converts an RGB picture to YUV planes in floating point. Chroma is averaged around its place."""
    layout = FORMATS[pix_fmt]
    matrix = color.yuv_to_rgb(layout.bits).astype(np.float64)
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
    """Yields batches as GPU stages make them: tensors that may be longer than the batch."""
    import torch

    made = [planes_of(scene(i, (info.width, info.height)), pix_fmt, info.color) for i in range(len(pts))]
    for i in range(0, len(pts), size):
        part = made[i : i + size]
        part += [[np.zeros_like(p) for p in part[0]]] * (size - len(part))
        planes = tuple(torch.from_numpy(np.stack(p)).to(device) for p in zip(*part, strict=True))
        frames = tuple(Frame(planes=(), pts=n, duration=2) for n in pts[i : i + size])  # type: ignore[arg-type]
        yield FrameBatch(frames=frames, index=i, planes=planes)


def write(
    module: Any, path: Path, info: VideoInfo, pix_fmt: str, pts: Sequence[int], gpu: Any, **options: Any
) -> list[Any]:
    config = Config(codec="mjpeg", **options)
    with Muxer(path, info, config) as muxer:
        seen: list[Any] = []
        given = batches(info, pix_fmt, pts, str(gpu.device))
        with closing(module.JpegEncoder(muxer, info, pix_fmt, config, gpu)) as encoder:
            for packets in (*(encoder.encode(batch) for batch in given), encoder.flush()):
                seen += [(p.pts, p.dts, p.duration, p.is_keyframe) for p in packets]
                muxer.write(packets)
        muxer.finish(None)
    return seen


def check(module: Any, path: Path, gpu: Any, pix_fmt: str, color: Color, size: tuple[int, int]) -> None:
    """Checks that the file's frames, as FFmpeg decodes them, are the scene."""
    info = video_info(size, color=color, time_base=Fraction(1, 1000 if path.suffix == ".mkv" else 30))
    pts = [0, 1, 5, 6, 7, 20]
    assert write(module, path, info, pix_fmt, pts, gpu, quality=95) == [(n, n, 2, True) for n in pts]
    tick = Fraction(1, 1000) if path.suffix == ".mkv" else Fraction(0)
    if path.suffix != ".avi":  # AVI fills gaps with empty packets
        assert same_times(times(path), [n * info.time_base for n in pts], tick)
    decoded = list(pictures(path))
    assert len(decoded) == len(pts)
    for i, picture in enumerate(decoded):
        assert picture.pix_fmt == "yuvj444p" and (picture.frame.width, picture.frame.height) == size
        assert int(picture.frame.color_range) == FULL and int(picture.frame.colorspace) == 5
        difference = np.abs(picture.frame.to_ndarray(format="rgb24").astype(int) - scene(i, size))
        assert difference.mean() < 3 and np.percentile(difference, 99) < 16, (i, difference.mean())


ALL = [
    ("yuv420p", Color(1, LIMITED, 1, 1), (128, 96), "out.mp4"),
    ("yuv420p", Color(5, FULL, 5, 6), (128, 96), "out.mov"),
    ("yuv420p", Color(9, LIMITED, 9, 14), (131, 97), "out.mkv"),
    ("yuv422p", Color(1, LIMITED, 1, 1), (130, 97), "out.avi"),
    ("yuv444p", Color(), (64, 48), "out.mp4"),
    ("yuv420p10le", Color(9, LIMITED, 9, 16), (128, 96), "out.mkv"),
    ("yuv444p10le", Color(1, FULL, 1, 1), (65, 49), "out.mp4"),
]


@pytest.mark.parametrize(("pix_fmt", "color", "size", "name"), ALL)
def test_the_whole_way_on_the_cpu(
    pix_fmt: str, color: Color, size: tuple[int, int], name: str, module: Any, tmp_path: Path
) -> None:
    check(module, tmp_path / name, no_gpu(), pix_fmt, color, size)


@pytest.mark.gpu
@pytest.mark.parametrize(("pix_fmt", "color", "size", "name"), ALL)
def test_the_whole_way_on_the_gpu(pix_fmt: str, color: Color, size: tuple[int, int], name: str, tmp_path: Path) -> None:
    import segmentation.stages.encode.jpeg as jpeg

    check(jpeg, tmp_path / name, stages.gpu(), pix_fmt, color, size)


@pytest.mark.gpu
def test_batches_do_not_mix_on_the_gpu(tmp_path: Path) -> None:
    """The planes are computed late, and their memory is reused as soon as `encode` no longer refers to it."""
    import torch

    import segmentation.stages.encode.jpeg as jpeg
    from segmentation.gpu.plane_pool import PlanePool

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
            batch = FrameBatch(frames=frames, index=i, planes=planes, ready=gpu.record_event())
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
def test_colors_are_those_of_swscale(matrix: int, span: int, module: Any) -> None:
    """Without subsampling, so that only the arithmetic differs: by at most 2 levels."""
    import torch

    noise = np.random.default_rng(3).integers(16, 236, (3, 64, 64)).astype(np.uint8)
    frame = av.VideoFrame.from_dlpack(tuple(noise), "yuv444p")
    options = {"src_colorspace": matrix, "dst_colorspace": matrix, "src_color_range": span, "dst_color_range": FULL}
    reference = frame.reformat(format="rgb24", **options).to_ndarray()
    y, u, v = (torch.from_numpy(p[None]) for p in noise)
    ours = reference_rgb(y, u, v, Color(matrix, span).yuv_to_rgb(8) * 255)[0].numpy().transpose(1, 2, 0)
    assert np.abs(ours.astype(int) - reference).max() <= 2


def test_chroma_is_enlarged_from_its_place(module: Any) -> None:
    import torch

    y = torch.zeros((1, 4, 5), dtype=torch.uint8)
    u = torch.tensor([[[0, 40, 80], [80, 120, 160]]], dtype=torch.uint8)
    only_u = np.array([[0, 1, 0, 0]] * 3)
    enlarged = reference_rgb(y, u, u, only_u)[0, 0].tolist()
    assert enlarged[0] == [0, 20, 40, 60, 80]  # even columns as they are, odd ones between
    assert [row[0] for row in enlarged] == [0, 20, 60, 80]  # a quarter and three quarters of the way


@pytest.mark.parametrize("side", stages.GPU_SIDES)
@pytest.mark.parametrize("pix_fmt", FORMATS)
@pytest.mark.parametrize("size", [(64, 48), (161, 121)])
def test_the_kernel_gives_the_same_colors(side: str, pix_fmt: str, size: tuple[int, int]) -> None:
    gpu, _ = stages.gpu_stages(side)
    import torch

    from segmentation.stages.frame_kernels import FRAMES

    layout, (width, height) = FORMATS[pix_fmt], size
    chroma = (3, -(-height >> layout.shift_y), -(-width >> layout.shift_x))
    noise = np.random.default_rng(5)
    planes = [
        torch.from_numpy(noise.integers(0, 1 << layout.bits, shape).astype(layout.dtype))
        for shape in ((3, height, width), chroma, chroma)
    ]
    matrix = torch.from_numpy(Color(1, LIMITED).yuv_to_rgb(layout.bits) * 255)
    rgb = gpu.empty((3, 3, height, width), torch.uint8)
    moved = [plane.to(gpu.device) for plane in planes]
    gpu.kernels(FRAMES, layout)("to_rgb", (*chroma[:0:-1], 3), *moved, rgb, width, height, *matrix.numpy().ravel())
    if side == "cuda":
        gpu.stream.synchronize()
    difference = np.abs(rgb.cpu().numpy().astype(int) - reference_rgb(*planes, matrix).numpy())
    assert difference.max() <= 1


def test_quality(module: Any, tmp_path: Path) -> None:
    info = video_info((128, 96))
    sizes = []
    for options in ({"quality": 1}, {"quality": 50}, {}, {"quality": 100}):
        path = tmp_path / f"{len(sizes)}.mkv"
        write(module, path, info, "yuv420p", range(4), no_gpu(), **options)
        sizes.append(path.stat().st_size)
    assert sizes == sorted(set(sizes))


def test_tags(module: Any, tmp_path: Path) -> None:
    """The pixel aspect ratio, and the color tags that JPEG does not decide, are the source's."""
    info = video_info((128, 96), color=Color(9, LIMITED, 9, 16), sample_aspect_ratio=Fraction(4, 3))
    write(module, tmp_path / "out.mp4", info, "yuv420p", range(4), no_gpu())
    with av.open(str(tmp_path / "out.mp4")) as container:
        stream = container.streams.video[0]
        assert stream.sample_aspect_ratio == Fraction(4, 3) and stream.codec_context.name == "mjpeg"
        frame = next(container.decode(video=0))
        assert (int(frame.color_primaries), int(frame.color_trc)) == (9, 16)


def test_containers_that_hold_no_jpeg(module: Any, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="can't hold mjpeg"):
        write(module, tmp_path / "out.webm", video_info((64, 48)), "yuv420p", range(2), no_gpu())


def test_failures_are_one_line(module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def failing(*_: Any) -> Any:
        raise RuntimeError("image encoding failed: 5\nException raised from ...")

    monkeypatch.setattr(module, "encode_jpeg", failing)
    with pytest.raises(OutputError) as caught:
        write(module, tmp_path / "out.mkv", video_info((64, 48)), "yuv420p", range(2), no_gpu())
    assert str(caught.value) == "nvJPEG can't encode 64x48 (image encoding failed: 5)"
    assert not list(tmp_path.iterdir())


def test_without_a_gpu_it_is_refused(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BackendError, match="NVIDIA GPU only"):
        module.JpegEncoder.describe(Config(encode="jpeg"))
