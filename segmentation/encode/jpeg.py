"""JPEG pictures from the GPU (nvJPEG) as Motion JPEG: fast on GPUs without NVENC, but large."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import ctypes
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
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
        self._info, self._gpu = info, gpu
        layout = FORMATS[pix_fmt]
        self._kernels = gpu.kernels(layout)
        self._matrix = torch.from_numpy(info.colour.yuv_to_rgb(layout.bits) * 255).to(gpu.device)
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
                self._idle.append(_Bench(gpu, _QUALITY if config.quality is None else config.quality))
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
        width, height = self._info.width, self._info.height
        with torch.cuda.stream(self._gpu.stream):
            rgb = self._gpu.empty((len(batch), 3, height, width), torch.uint8)
            self._kernels("to_rgb", (width, height, len(batch)), *batch.planes, rgb, width, height, self._matrix)
            ready = self._gpu.stream.record_event()
        # The memory of `rgb` is given out again on this stream, which waits for none of the threads'. But they let
        # it go when they have their files, so that nobody reads it any more.
        pairs = list(zip(rgb, batch.frames, strict=True))
        shares = (pairs[begin::_THREADS] for begin in range(_THREADS))
        self._shares.append([self._threads.submit(self._packets, share, ready) for share in shares])
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
            shares = [share.result() for share in self._shares.popleft()]
            packets += [shares[i % _THREADS][i // _THREADS] for i in range(sum(map(len, shares)))]
        return packets

    def _packets(self, share: Sequence[tuple[torch.Tensor, Frame]], ready: Any) -> list[Packet[Any]]:
        """A share's pictures (3, H, W) uint8, which are there when the event is over. Runs in each of the threads."""
        self._gpu.enter()
        bench = self._idle.pop()
        try:
            bench.stream.wait_event(ready)
            return [self._packet(bench.encode(picture), frame) for picture, frame in share]
        except NvJpegError as exc:
            bench.stream.synchronize()  # a GPU that has failed says so here
            raise OutputError(f"nvJPEG can't encode {self._info.width}x{self._info.height} ({exc})") from exc
        finally:
            self._idle.append(bench)

    def _packet(self, packet: Packet[Any], frame: Frame) -> Packet[Any]:
        packet.stream, packet.time_base = self._stream, self._info.time_base
        packet.pts = packet.dts = frame.pts
        packet.duration, packet.is_keyframe = frame.duration, True
        return packet


class _Bench:
    """What a thread encodes with: nvJPEG, a stream, and page-locked memory, to which the GPU copies by itself."""

    def __init__(self, gpu: Any, quality: int) -> None:
        self.stream = torch.cuda.Stream(gpu.device)
        self._nvjpeg = PictureEncoder(gpu.index, self.stream.cuda_stream, quality)
        self.close = self._nvjpeg.close
        self._file = torch.empty(0, dtype=torch.uint8)

    def encode(self, picture: torch.Tensor) -> Packet[Any]:
        """The file of a picture (3, H, W), in a packet that has nothing else yet."""
        _, height, width = picture.shape
        length = self._nvjpeg.encode([plane.data_ptr() for plane in picture], picture.stride(1), width, height)
        if length > len(self._file):
            self._file = torch.empty(length * 3 // 2, dtype=torch.uint8, pin_memory=True)
        self._nvjpeg.read(self._file.data_ptr())
        self.stream.synchronize()
        packet: Packet[Any] = Packet(length)
        ctypes.memmove(packet.buffer_ptr, self._file.data_ptr(), length)  # without Python's lock
        return packet
