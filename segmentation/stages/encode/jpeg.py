"""Motion JPEG, encoded on the GPU by nvJPEG through torchvision: fast on GPUs without NVENC, but files are large."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import av.error
import numpy as np
import torch
import torchvision
from av.packet import Packet
from numpy.typing import NDArray
from torchvision.io import encode_jpeg

from segmentation.errors import BackendError, OutputError, one_line
from segmentation.frames import FORMATS, FULL, Frame, FrameBatch, Memory, VideoInfo
from segmentation.gpu.errors import translate_gpu_error
from segmentation.media.muxer import Muxer
from segmentation.media.video_packet import VideoPacket
from segmentation.options.config import Config
from segmentation.options.devices import allows_cuda
from segmentation.options.rate_factor import RateFactor
from segmentation.stages.encode import Encoder
from segmentation.stages.encode.pyav import describe_stream
from segmentation.stages.frame_kernels import FRAMES

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu
    from segmentation.gpu.cuda_calls import Event
    from segmentation.stages.encode.worker_process import EncoderService

_QUALITY = RateFactor(90, 95)
_THREADS = 2  # nvJPEG goes on with the next batch while a thread with the last one waits for the GIL
_AHEAD = 3  # batches that may be on their way, from pictures to packets
_BT470BG = 5  # the matrix of JPEG files (JFIF), BT.601, as H.273 numbers it


class _Pictures(NamedTuple):
    """Memory for the pictures of a batch, which is used again: new views of PyTorch's give up the GIL."""

    rgb: torch.Tensor  # (N, 3, H, W) uint8
    each: list[torch.Tensor]  # (3, H, W)


class JpegEncoder(Encoder):
    """See `segmentation.stages.encode`. Pictures are 4:4:4 in 8 bits, full range. Quality is 1 to 100, 90 by default.

    The newest batch is converted to RGB. Threads bring those before it to packets: torchvision encodes one at a time,
    in a call without the GIL, while the files of the one before are copied to the host.
    """

    memory: ClassVar[Memory] = "cuda"

    def __init__(
        self,
        muxer: Muxer,
        info: VideoInfo,
        pix_fmt: str,
        config: Config,
        gpu: Gpu,
        *,
        service: EncoderService | None = None,
    ) -> None:
        self._info = info
        layout = FORMATS[pix_fmt]
        # On the pipeline's stream the conversion would wait for batches that are queued there.
        self._gpu = gpu.with_own_stream()
        self._kernels = self._gpu.kernels(FRAMES, layout)
        self._matrix = (info.color.yuv_to_rgb(layout.bits) * 255).ravel()
        self._quality = _QUALITY.of(config.quality)
        self._free: list[_Pictures] = []
        self._threads = ThreadPoolExecutor(_THREADS, "JPEG")
        self._begun: deque[Future[list[VideoPacket]]] = deque()
        self._stream = muxer.add_video("mjpeg", info, {})
        context = self._stream.codec_context
        describe_stream(context, info, muxer)
        context.colorspace, context.color_range = _BT470BG, FULL
        context.width, context.height, context.pix_fmt = info.width, info.height, "yuvj444p"
        context.thread_count = 1  # the context only describes the stream
        try:
            context.open()
        except (av.error.FFmpegError, ValueError) as exc:
            raise OutputError(f"mjpeg can't be {info.width}x{info.height} ({one_line(exc)})") from exc

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        if not allows_cuda(config.device) or not torch.cuda.is_available():
            raise BackendError("JPEG is encoded on an NVIDIA GPU only, and PyTorch finds none here")
        return f"nvJPEG, torchvision {torchvision.__version__}"

    @staticmethod
    def formats(codec: str) -> tuple[str, ...]:
        return tuple(FORMATS)

    def encode(self, batch: FrameBatch) -> list[VideoPacket]:
        self._begun.append(self._threads.submit(self._packets, self._pictures(batch), self._gpu.record_event(), batch))
        return self._done(_AHEAD)

    def flush(self) -> list[VideoPacket]:
        return self._done(0)

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    def _pictures(self, batch: FrameBatch) -> _Pictures:
        """Queues the conversion of a batch. Returns its pictures, among others."""
        width, height = self._info.width, self._info.height
        if batch.ready is not None:
            self._gpu.wait_event(batch.ready)
        if self._free:
            made = self._free.pop()
        else:
            rgb = self._gpu.empty((len(batch.planes[0]), 3, height, width), torch.uint8)
            made = _Pictures(rgb, list(rgb))
        chroma_height, chroma_width = batch.planes[1].shape[1:]
        size = (chroma_width, chroma_height, len(batch))
        self._kernels("to_rgb", size, *batch.planes, made.rgb, width, height, *self._matrix)
        return made

    def _done(self, left: int) -> list[VideoPacket]:
        """Returns the packets of all batches but the last `left`, and of those among them that are ready."""
        packets: list[VideoPacket] = []
        while self._begun and (len(self._begun) > left or self._begun[0].done()):
            packets += self._begun.popleft().result()
        return packets

    def _packets(self, pictures: _Pictures, ready: Event, batch: FrameBatch) -> list[VideoPacket]:
        """Encodes a batch, whose pictures are there once `ready` has passed. Its planes are in use until then."""
        self._gpu.enter()
        ready.synchronize()  # torchvision encodes on another stream, and returns when it has done that
        files = self._encoded(pictures.each[: len(batch)])
        self._free.append(pictures)
        with torch.cuda.stream(torch.cuda.default_stream(self._gpu.device)):
            data = torch.cat(files).cpu().numpy()  # one copy for all files
        ends = np.cumsum([len(file) for file in files])[:-1]
        return [self._packet(part, frame) for part, frame in zip(np.split(data, ends), batch.frames, strict=True)]

    def _encoded(self, images: list[torch.Tensor]) -> list[torch.Tensor]:
        """Returns the JPEG files of pictures (3, H, W), in device memory. nvJPEG runs on the default stream."""
        with torch.cuda.stream(torch.cuda.default_stream(self._gpu.device)):
            try:
                files: list[torch.Tensor] = encode_jpeg(images, self._quality)
            except RuntimeError as exc:
                if (fault := translate_gpu_error(exc)) is not None:
                    raise fault from exc
                size = f"{self._info.width}x{self._info.height}"
                raise OutputError(f"nvJPEG can't encode {size} ({str(exc).splitlines()[0]})") from exc
        return files

    def _packet(self, data: NDArray[np.uint8], frame: Frame) -> VideoPacket:
        packet: VideoPacket = Packet(data)  # type: ignore[arg-type, assignment]
        packet.stream, packet.time_base = self._stream, self._info.time_base
        packet.pts = packet.dts = frame.pts
        packet.duration, packet.is_keyframe = frame.duration, True
        return packet
