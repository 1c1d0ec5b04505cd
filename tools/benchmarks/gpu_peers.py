"""Background blur in the shape of NVIDIA's CV-CUDA sample of segmentation: what `benchmark_gpu.py` compares with.

`gpu_sample.py` runs it on one video.

One decoder, NV12 to RGB, batches of 4, CV-CUDA's operators, PyTorch in FP16 and eager, all on one stream; then RGB on
the host and one libx264 for machines without NVENC. As in the sample, the small picture is blurred and enlarged, and a
joint bilateral filter fits the enlarged mask to the picture. Buffers are made once; nothing is slowed down on purpose.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import av
import cvcuda
import PyNvVideoCodec as nvc
import torch
from torch_network import TorchNetwork

from segmentation.frames import VideoInfo
from segmentation.media.opening.probe import probe
from segmentation.stages.decode.chunks import read
from segmentation.stages.decode.nvdec_support import NVDEC_CODECS

BATCH = 4
_OPTIONS = {"preset": "ultrafast", "crf": "20"}


class Operators:
    """From NV12 frames to RGB frames with the background blurred, in buffers for `BATCH` frames."""

    def __init__(self, info: VideoInfo, network: TorchNetwork, stream: torch.cuda.Stream) -> None:
        self._network = network
        self._stream = cvcuda.as_stream(stream.cuda_stream)
        large, small = (BATCH, info.height, info.width), (BATCH, network.height, network.width)
        self.nv12 = torch.empty((BATCH, info.height * 3 // 2, info.width, 1), dtype=torch.uint8, device="cuda")
        self.shown = torch.empty((*large, 3), dtype=torch.uint8, device="cuda")
        self._tensor = torch.empty((BATCH, 3, *small[1:]), dtype=torch.float32, device="cuda")
        self._nv12 = cvcuda.as_tensor(self.nv12, "NHWC")
        self._shown = cvcuda.as_tensor(self.shown, "NHWC")
        self._planar = cvcuda.as_tensor(self._tensor, "NCHW")
        self._rgb, self._behind = (self._buffer((*large, 3)) for _ in range(2))
        self._grey, self._mask, self._fitted = (self._buffer((*large, 1)) for _ in range(3))
        self._small, self._blurred = (self._buffer((*small, 3)) for _ in range(2))
        self._floats, self._normal = (self._buffer((*small, 3), torch.float32) for _ in range(2))
        self._mean, self._std = (
            cvcuda.as_tensor(torch.tensor(values, device="cuda").reshape(1, 1, 1, 3), "NHWC")
            for values in (network.mean, network.std)
        )

    def __call__(self) -> torch.Tensor:
        """Queues the work for the frames in `nv12`; the result (BATCH, H, W, 3) is `shown`."""
        self._preprocess()
        probabilities = self._network(self._tensor)  # (BATCH, h, w)
        self._postprocess((probabilities * 255).to(torch.uint8).unsqueeze(-1).contiguous())
        return self.shown

    def _preprocess(self) -> None:
        stream = self._stream
        cvcuda.cvtcolor_into(self._rgb, self._nv12, cvcuda.ColorConversion.YUV2RGB_NV12, stream=stream)
        cvcuda.resize_into(self._small, self._rgb, cvcuda.Interp.LINEAR, stream=stream)
        cvcuda.convertto_into(self._floats, self._small, 1 / 255, stream=stream)
        deviation = cvcuda.NormalizeFlags.SCALE_IS_STDDEV
        cvcuda.normalize_into(self._normal, self._floats, self._mean, self._std, deviation, stream=stream)
        cvcuda.reformat_into(self._planar, self._normal, stream=stream)

    def _postprocess(self, masks: torch.Tensor) -> None:
        stream = self._stream
        cvcuda.resize_into(self._mask, cvcuda.as_tensor(masks, "NHWC"), cvcuda.Interp.NEAREST, stream=stream)
        cvcuda.gaussian_into(self._blurred, self._small, (15, 15), (5, 5), cvcuda.Border.REPLICATE, stream=stream)
        cvcuda.resize_into(self._behind, self._blurred, cvcuda.Interp.LINEAR, stream=stream)
        cvcuda.cvtcolor_into(self._grey, self._rgb, cvcuda.ColorConversion.RGB2GRAY, stream=stream)
        cvcuda.joint_bilateral_filter_into(
            *(self._fitted, self._mask, self._grey), diameter=5, sigma_color=50, sigma_space=1, stream=stream
        )
        cvcuda.composite_into(self._shown, self._rgb, self._behind, self._fitted, stream=stream)

    def _buffer(self, shape: tuple[int, ...], dtype: torch.dtype = torch.uint8) -> cvcuda.Tensor:
        return cvcuda.as_tensor(torch.empty(shape, dtype=dtype, device="cuda"), "NHWC")


def run_sample(source: str, target: str | None, network: TorchNetwork, max_frames: int | None = None) -> int:
    """Writes `source` with its background blurred to `target`, or with `None` encodes nothing; returns the number of
    frames."""
    info = probe(source)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())  # on which the network was made
    if target is None:
        with torch.cuda.stream(stream):
            frames = _process(info, network, stream, max_frames, lambda shown: None)
            stream.synchronize()
            return frames
    with av.open(target, "w") as container, torch.cuda.stream(stream):
        encoder = container.add_stream("libx264", rate=info.rate, options=_OPTIONS)
        encoder.width, encoder.height, encoder.pix_fmt = info.width, info.height, "yuv420p"
        encoder.codec_context.thread_count = 0  # as many as libx264 likes
        numbers = count()

        def encode(shown: torch.Tensor) -> None:
            for rgb in shown.cpu().numpy():
                picture = av.VideoFrame.from_ndarray(rgb, format="rgb24")
                picture.pts, picture.time_base = next(numbers), 1 / info.rate
                container.mux(encoder.encode(picture))

        frames = _process(info, network, stream, max_frames, encode)
        container.mux(encoder.encode())
        return frames


def _process(
    info: VideoInfo,
    network: TorchNetwork,
    stream: torch.cuda.Stream,
    max_frames: int | None,
    take: Callable[[torch.Tensor], None],
) -> int:
    """Gives `take` (n, H, W, 3) uint8 RGB, batch for batch; returns the number of frames."""
    operators = Operators(info, network, stream)
    frames, filled = 0, 0
    for surface in _surfaces(info, stream):
        operators.nv12[filled, ..., 0].copy_(torch.from_dlpack(surface))  # its memory is used again for later ones
        filled += 1
        if filled == BATCH or frames + filled == max_frames:
            take(operators()[:filled])
            frames, filled = frames + filled, 0
            if frames == max_frames:
                return frames
    if filled:
        take(operators()[:filled])
    return frames + filled


def _surfaces(info: VideoInfo, stream: torch.cuda.Stream) -> Iterator[Any]:
    """The frames of one decoder, (H * 3/2, W) NV12."""
    decoder = nvc.CreateDecoder(
        gpuid=0,
        codec=getattr(nvc.cudaVideoCodec, NVDEC_CODECS[info.codec]),
        cudastream=stream.cuda_stream,
        usedevicememory=True,
    )
    for packet in read(info, None):
        data = nvc.PacketData()
        data.bsl_data, data.bsl, data.pts = packet.buffer_ptr, packet.buffer_size, packet.pts or 0
        yield from decoder.Decode(data)
    yield from decoder.Decode(nvc.PacketData())  # an empty one: what it still holds
