"""JPEG pictures from the GPU (nvJPEG) as Motion JPEG: fast on GPUs without NVENC, but large."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import ctypes
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any, ClassVar, Literal

import av.error
import torch
from av.packet import Packet

from segmentation.config import Config
from segmentation.encode.nvjpeg import NvJpegError, PictureEncoder, version
from segmentation.encode.x264 import describe_stream
from segmentation.errors import BackendError, OutputError
from segmentation.frames import FORMATS, FULL, Frame, FrameBatch, VideoInfo
from segmentation.mux import Muxer
from segmentation.source import reason

_QUALITY = 90
_BT470BG = 5  # the matrix of JPEG files (JFIF), BT.601, as H.273 numbers it
# nvJPEG waits for the GPU several times a picture. On an H200 that is half busy, one thread makes 3,600 pictures of
# 1080p a second, two 6,200 and four 8,300. NVDEC feeds 3,600: three leave room where GPU and Python are busier.
_THREADS = 3
_AHEAD = 1  # batches that are encoded while the one before is handed on


class JpegEncoder:
    """See `segmentation.encode`. Pictures are 4:4:4 in 8 bits, full range; quality 1 to 100, without one 90."""

    memory: ClassVar[Literal["cuda"]] = "cuda"

    def __init__(self, muxer: Muxer, info: VideoInfo, pix_fmt: str, config: Config, gpu: Any = None) -> None:
        self._info = info
        self._stream = muxer.add_video("mjpeg", info, {})
        context = self._stream.codec_context
        describe_stream(context, info, muxer)
        context.colorspace, context.color_range = _BT470BG, FULL
        context.width, context.height, context.pix_fmt = info.width, info.height, "yuvj444p"
        context.thread_count = 1  # it is opened to describe the stream, and never fed
        try:
            context.open()
        except (av.error.FFmpegError, ValueError) as exc:
            raise OutputError(f"mjpeg can't be {info.width}x{info.height} ({reason(exc)})") from exc
        self._threads = ThreadPoolExecutor(_THREADS, "JPEG")
        self._shares: deque[list[Future[list[Packet[Any]]]]] = deque()  # of each batch on its way, one for each thread
        self._idle: list[_Bench] = []  # one for each thread
        try:
            while len(self._idle) < _THREADS:
                self._idle.append(_Bench(gpu, info, pix_fmt, config))
        except NvJpegError as exc:
            self.close()
            raise BackendError(f"nvJPEG does not start ({exc})") from exc

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        if config.device == "cpu" or not torch.cuda.is_available():
            raise BackendError("JPEG is encoded on an NVIDIA GPU only, and PyTorch finds none here")
        return f"nvJPEG {version()}"

    @staticmethod
    def formats(codec: str) -> tuple[str, ...]:
        return tuple(FORMATS)

    def encode(self, batch: FrameBatch) -> list[Packet[Any]]:
        bounds = [len(batch) * i // _THREADS for i in range(_THREADS + 1)]
        self._shares.append(
            [self._threads.submit(self._packets, batch, slice(a, b)) for a, b in pairwise(bounds) if a < b]
        )
        return self._encoded(_AHEAD)

    def flush(self) -> list[Packet[Any]]:
        return self._encoded(0)

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        while self._idle:
            self._idle.pop().close()

    def _encoded(self, left: int) -> list[Packet[Any]]:
        """The packets of all batches but the last `left`, in the order of frames."""
        packets: list[Packet[Any]] = []
        while len(self._shares) > left:
            for share in self._shares.popleft():
                packets += share.result()
        return packets

    def _packets(self, batch: FrameBatch, share: slice) -> list[Packet[Any]]:
        """A share's pictures, which are in the batch's planes when its event is over. Runs in each of the threads.

        The memory of planes is given out again on the pipeline's stream, which waits for none of the threads'. But they
        let the batch go when they have their files, so that nobody reads it any more.
        """
        bench = self._idle.pop()
        try:
            bench.convert(tuple(plane[share] for plane in batch.planes), batch.ready)
            return [self._packet(bench.encode(number), frame) for number, frame in enumerate(batch.frames[share])]
        except NvJpegError as exc:
            bench.gpu.stream.synchronize()  # a GPU that has failed says so here
            raise OutputError(f"nvJPEG can't encode {self._info.width}x{self._info.height} ({exc})") from exc
        finally:
            self._idle.append(bench)

    def _packet(self, packet: Packet[Any], frame: Frame) -> Packet[Any]:
        packet.stream, packet.time_base = self._stream, self._info.time_base
        packet.pts = packet.dts = frame.pts
        packet.duration, packet.is_keyframe = frame.duration, True
        return packet


class _Bench:
    """What a thread encodes with: a stream, nvJPEG, memory for RGB pictures, and page-locked memory, to which the GPU
    copies by itself."""

    def __init__(self, gpu: Any, info: VideoInfo, pix_fmt: str, config: Config) -> None:
        # Its own stream, as the pipeline's has batches queued that this one would wait for.
        self.gpu = gpu.beside()
        layout = FORMATS[pix_fmt]
        self._size = width, height = info.width, info.height
        self._kernels = self.gpu.kernels(layout)
        self._matrix = torch.from_numpy(info.colour.yuv_to_rgb(layout.bits) * 255).to(gpu.device)
        most = -(-(config.batch_size or 1) // _THREADS)
        self._rgb = self.gpu.empty((most, 3, height, width), torch.uint8)
        self._file = torch.empty(0, dtype=torch.uint8)
        quality = _QUALITY if config.quality is None else config.quality
        self._nvjpeg = PictureEncoder(gpu.index, self.gpu.stream.cuda_stream, quality)
        self.close = self._nvjpeg.close

    def convert(self, planes: tuple[torch.Tensor, ...], ready: Any) -> None:
        """Makes planes (N, h, w) RGB pictures, once the event, if there is one, is over."""
        self.gpu.enter()
        if ready is not None:
            self.gpu.wait_event(ready)
        self._kernels("to_rgb", (*self._size, len(planes[0])), *planes, self._rgb, *self._size, self._matrix)

    def encode(self, number: int) -> Packet[Any]:
        """The file of one of those pictures, in a packet that has nothing else yet."""
        width, height = self._size
        first = self._rgb.data_ptr() + 3 * number * width * height
        length = self._nvjpeg.encode([first + i * width * height for i in range(3)], width, width, height)
        if length > len(self._file):
            self._file = torch.empty(length * 3 // 2, dtype=torch.uint8, pin_memory=True)
        self._nvjpeg.read(self._file.data_ptr())
        self.gpu.stream.synchronize()
        packet: Packet[Any] = Packet(length)
        ctypes.memmove(packet.buffer_ptr, self._file.data_ptr(), length)  # without Python's lock
        return packet
