"""Postprocesses frames on the GPU: CV-CUDA blurs the reduced background, and one kernel composites the frame."""

import threading
from dataclasses import replace
from typing import ClassVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import cvcuda
import numpy as np
import torch
from numpy.typing import NDArray

from segmentation.frames import FORMATS, FrameBatch, MaskedBatch, Memory, VideoInfo
from segmentation.gpu.capture_lock import capture_unsafe
from segmentation.gpu.context import Gpu, torch_dtype
from segmentation.gpu.kernels import THREADS
from segmentation.gpu.transfer import GpuTransfer
from segmentation.options.config import Config
from segmentation.options.effect import Effect
from segmentation.stages.frame_kernels import COMPOSITE_ROWS, FRAMES
from segmentation.stages.postprocess import Postprocessor
from segmentation.stages.postprocess.backdrop import Backdrop, check_backdrop
from segmentation.stages.postprocess.blur import OLD_BACKGROUND, block_side, blur_scale, gaussian_side
from segmentation.stages.postprocess.edge import Edge
from segmentation.stages.postprocess.legend import legend, palette_samples

Color = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # (1,) each
# Arguments of kernels for a background: its planes, width, height, the side of the rectangle of luma that a sample
# fills (0: the planes are enlarged bilinearly), and 1 if all frames share the planes.
Background = tuple[torch.Tensor, torch.Tensor, torch.Tensor, int, int, int, int]
# Arguments of kernels for masks (N, h, w): the tensor, its width and height as stored, gain and bias of the ramp.
Mask = tuple[torch.Tensor, int, int, np.float32, np.float32]


class CvCudaPostprocessor(Postprocessor):
    """A `Postprocessor` with CUDA tensors. Each result has planes of its own."""

    memory: ClassVar[Memory] = "cuda"

    def __init__(self, info: VideoInfo, pix_fmt: str, effect: Effect, config: Config, gpu: Gpu) -> None:
        self._gpu = gpu
        self._layout = FORMATS[pix_fmt]
        self._orientation = info.orientation
        self._kernels = gpu.kernels(FRAMES, self._layout, self._orientation)
        self._dtype = torch_dtype(self._layout)
        self._size = (info.width, info.height)
        self._effect = effect
        self._edge = Edge.of(config)
        bits = self._layout.bits
        self._plain = self._color(info.color.from_rgb((0, 0, 0) if effect.kind == "mask" else effect.rgb, bits))
        self._white = self._color(info.color.from_rgb((255, 255, 255), bits))
        self._black = info.color.from_rgb((0, 0, 0), bits)[0]
        count = config.batch_size or 1
        shapes = [(count, *shape) for shape in self._layout.shapes(*self._size)]
        alpha = shapes[:1] if effect.kind == "cutout" else []
        self._pool = gpu.plane_pool([*shapes, *alpha], self._dtype)
        self._legend = _UploadedLegend(info, pix_fmt, effect, gpu) if effect.classes else None
        self._backdrop = _UploadedBackdrop(info, pix_fmt, effect, config, gpu) if effect.file else None
        if effect.kind == "pixelate":
            self._blocks = _Blocks(self, count)
        elif effect.kind not in ("mask", "overlay"):
            self._blur = _Blur(self, count)
        if self._edge.feather:
            (width, height), sigma = self._edge.feather_scale(info.upright_size)
            self._soften = _shared_gaussian(gpu, (count, height, width, 1), sigma)

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        backdrop = check_backdrop(config.effects[0], config)
        return f"CV-CUDA {cvcuda.__version__} and kernels of our own, {config.effect}{backdrop}"

    def close(self) -> None:
        if self._backdrop is not None:
            self._backdrop.close()

    def __call__(self, masked: MaskedBatch) -> FrameBatch:
        batch = masked.frames
        shown = self._pool.take()
        assert len(batch) <= len(shown[0]), "the kernels would write behind the planes"
        mask = self._mask(masked.masks)
        chroma_height, chroma_width = batch.planes[1].shape[1:]
        size = (chroma_width, chroma_height, len(batch))
        match self._effect.kind:
            case "cutout":
                old = (*batch.planes, *self._size, 1) if self._edge.feather else self._blur(self, batch, mask)[:6]
                self._kernels("cut_out", size, *batch.planes, *self._size, *mask, *old, self._black, *shown)
            case "color" | "image" | "video" if not self._edge.feather:
                old, new = self._blur(self, batch, mask)[:5], self._behind(masked, mask)
                self._kernels("replace", size, *batch.planes, *self._size, *mask, *old, *new, *shown)
            case kind:
                white = kind == "mask"
                foreground = (*(self._white if white else batch.planes), int(white), *self._size)
                tint = int(kind == "overlay")
                size = (chroma_width, -(-chroma_height // COMPOSITE_ROWS), len(batch))
                self._kernels("composite", size, *foreground, *mask, *self._behind(masked, mask), tint, *shown)
                if self._legend is not None:
                    self._legend.write(shown)
        return replace(batch, planes=shown)

    def _mask(self, masks: torch.Tensor) -> Mask:
        """Returns the arguments for upright masks (N, h, w)."""
        if self._edge.feather:
            masks = self._feathered(masks)
        width, height = self._orientation.size(masks.shape[2], masks.shape[1])
        gain, bias = self._edge.ramp
        return masks, width, height, np.float32(gain), np.float32(bias)

    def _feathered(self, masks: torch.Tensor) -> torch.Tensor:
        """Returns masks sharpened and blurred, at the smallest size that can hold the blur."""
        sharp = self._soften.buffer[: len(masks), ..., 0]
        with torch.cuda.stream(self._gpu.stream):
            sharp.copy_(sharpened(masks, (sharp.shape[2], sharp.shape[1]), self._edge))
        return self._soften()[..., 0]

    def _behind(self, masked: MaskedBatch, mask: Mask) -> Background:
        if self._backdrop is not None:
            return self._backdrop(masked.frames)
        match self._effect.kind:
            case "blur":
                return self._blur(self, masked.frames, mask)
            case "pixelate":
                return self._blocks(self, masked.frames, mask)
            case "overlay" if self._legend is not None:
                return self._legend.tints(masked.class_map)
            case _:
                return *self._plain, 1, 1, 0, 1

    def _color(self, yuv: tuple[int, int, int]) -> Color:
        y, u, v = self._gpu.constant(np.array(yuv, self._layout.dtype)).split(1)
        return y, u, v


def sharpened(masks: torch.Tensor, size: tuple[int, int], edge: Edge) -> torch.Tensor:
    """Returns masks (N, h, w) in 0..1 at `size` (width, height), put through the edge's ramp."""
    gain, bias = edge.sharp
    width, height = size
    large = torch.nn.functional.interpolate(masks.unsqueeze(1), (height, width), mode="bilinear", align_corners=False)
    return large.squeeze(1).mul_(gain).add_(bias / 255).clamp_(0, 1)


class _Gaussian:
    """Calling it blurs `buffer`, (N, h, w, channels) float32, in place, and returns the buffer.

    The blur goes along rows, then along columns: in one go CV-CUDA reads a sample for each place of a square. Both
    buffers are wrapped once, because CV-CUDA waits for the whole device each time that it wraps a tensor.
    """

    def __init__(self, gpu: Gpu, shape: tuple[int, ...], sigma: float) -> None:
        self.buffer, between = (gpu.empty(shape, torch.float32) for _ in range(2))
        with capture_unsafe():  # the call waits for the whole device
            self._wrapped = [cvcuda.as_tensor(tensor, "NHWC") for tensor in (self.buffer, between)]
        self._side, self._sigma = gaussian_side(sigma), (sigma, sigma)
        self._stream = gpu.cvcuda_stream

    def __call__(self) -> torch.Tensor:
        buffer, between = self._wrapped
        for target, source, sides in ((between, buffer, (self._side, 1)), (buffer, between, (1, self._side))):
            cvcuda.gaussian_into(target, source, sides, self._sigma, cvcuda.Border.REFLECT101, stream=self._stream)
        return self.buffer


_sharing = threading.Lock()
_gaussians: WeakKeyDictionary[Gpu, WeakValueDictionary[object, _Gaussian]] = WeakKeyDictionary()


def _shared_gaussian(gpu: Gpu, shape: tuple[int, ...], sigma: float) -> _Gaussian:
    """Returns a `_Gaussian` that all share who hold it: composites of a session take turns.

    To wrap its buffers waits for the whole device, and so for the work of all runs.
    """
    with _sharing:
        known = _gaussians.setdefault(gpu, WeakValueDictionary())
        found = known.get((shape, sigma))
        if found is None:
            found = known[shape, sigma] = _Gaussian(gpu, shape, sigma)
        return found


class _Blur:
    """Calling it returns blur(I * (1 - a)) / blur(1 - a) at reduced size, in planes that the next call overwrites."""

    def __init__(self, owner: CvCudaPostprocessor, count: int) -> None:
        strength = owner._effect.strength if owner._effect.kind == "blur" else OLD_BACKGROUND
        (width, height), sigma = blur_scale(owner._size, strength)
        self._size = (width, height)
        self._gaussian = _shared_gaussian(owner._gpu, (count, height, width, 4), sigma)
        self._small = owner._gpu.plane_pool([(count, height, width)] * 3, owner._dtype).take()

    def __call__(self, owner: CvCudaPostprocessor, batch: FrameBatch, mask: Mask) -> Background:
        size = (*self._size, len(batch))
        owner._kernels("reduce", size, *batch.planes, *owner._size, *mask, self._gaussian.buffer, *self._size)
        owner._kernels("divide", size, self._gaussian(), *self._small, *self._size)
        y, u, v = self._small
        return y, u, v, *self._size, 0, 0


class _Blocks:
    """Calling it returns the background's mean color in each block, in planes that the next call overwrites."""

    def __init__(self, owner: CvCudaPostprocessor, count: int) -> None:
        self._side = block_side(owner._size, owner._effect.block)
        width, height = (-(-pixels // self._side) for pixels in owner._size)
        self._size = (width, height)
        self._small = owner._gpu.plane_pool([(count, height, width)] * 3, owner._dtype).take()

    def __call__(self, owner: CvCudaPostprocessor, batch: FrameBatch, mask: Mask) -> Background:
        width, height = self._size
        size = (width * THREADS[0], height * THREADS[1], len(batch))  # a block of threads makes a block of the picture
        owner._kernels(
            "pixelate", size, *batch.planes, *owner._size, *mask, self._side, *self._small, width, height
        )  # fmt: skip
        y, u, v = self._small
        return y, u, v, width, height, self._side, 0


class _UploadedBackdrop:
    """Calling it returns the backdrop of a batch on the GPU. An image is uploaded once, a video for each batch."""

    def __init__(self, info: VideoInfo, pix_fmt: str, effect: Effect, config: Config, gpu: Gpu) -> None:
        self._backdrop = Backdrop(info, pix_fmt, effect, config)
        self._size = (info.width, info.height)
        self._transfer = GpuTransfer(gpu, info, FORMATS[pix_fmt], 1 if self._backdrop.still else config.batch_size or 1)
        self._uploaded: tuple[torch.Tensor, ...] | None = None

    def close(self) -> None:
        self._backdrop.close()

    def __call__(self, batch: FrameBatch) -> Background:
        still = self._backdrop.still
        if self._uploaded is None or not still:
            pictures = batch.frames[:1] if still else batch.frames
            frames = tuple(replace(frame, planes=self._backdrop(frame.pts)) for frame in pictures)
            self._uploaded = self._transfer.frames(FrameBatch(frames=frames, index=batch.index), "cuda").planes
        y, u, v = self._uploaded
        return y, u, v, *self._size, 1, int(still)


class _UploadedLegend:
    """The colors of classes, and the legend that names the classes, on the GPU."""

    def __init__(self, info: VideoInfo, pix_fmt: str, effect: Effect, gpu: Gpu) -> None:
        self._gpu, self._stored = gpu, info.orientation.inverse
        # PyTorch has few operations on uint16. As int16, samples of 10 bits have the same bits.
        self._dtype = torch.uint8 if FORMATS[pix_fmt].bits == 8 else torch.int16
        made = legend(effect.classes, info, pix_fmt)
        self._boxes = made.boxes(pix_fmt)
        self._planes = [self._upload(plane) for plane in made.planes]
        self._palette = [self._upload(values) for values in palette_samples(effect, info.color, pix_fmt)]

    def _upload(self, samples: NDArray[np.generic]) -> torch.Tensor:
        return torch.from_numpy(samples.astype(np.int16)).to(self._dtype).to(self._gpu.device)

    def tints(self, class_map: torch.Tensor) -> Background:
        """Returns planes in the color of the class at each place, from a class map (N, h, w) upright."""
        with torch.cuda.stream(self._gpu.stream):
            stored = torch.rot90(class_map, self._stored.turns, (1, 2))
            stored = (stored.flip(2) if self._stored.mirrored else stored).contiguous().long()
            y, u, v = (values[stored] for values in self._palette)
        height, width = stored.shape[1:]
        return y, u, v, width, height, 0, 0

    def write(self, shown: tuple[torch.Tensor, ...]) -> None:
        """Overwrites a part of the planes of a batch with the legend."""
        with torch.cuda.stream(self._gpu.stream):
            for plane, part, (rows, columns) in zip(shown, self._planes, self._boxes, strict=True):
                plane.view(self._dtype)[:, rows, columns] = part
