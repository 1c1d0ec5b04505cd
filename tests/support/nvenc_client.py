"""Uses NVENC in a process of its own, which finds the stand-in's libraries; `standin.run` starts it."""

import ctypes
import json
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from textures import texture, write
from videos import video_info

from segmentation import Config, SegmentationError
from segmentation.frames import Frame, FrameBatch
from segmentation.gpu.discovery import enter_context
from segmentation.media.muxer import Muxer
from segmentation.stages.encode.nvenc_support import nvenc_engine
from segmentation.stages.encode.pyav import PyAVEncoder

SIZE = (320, 192)
TICKS = 512  # of a frame's duration
BASE = Fraction(1, 12800)
_CUDA = 2  # kDLCUDA of DLPack


def probe(options: dict[str, Any], size: tuple[int, int]) -> str:
    """Returns the line of `--plan`."""
    return nvenc_engine(Config(**options), video_info(size))


def picture(number: int, pix_fmt: str) -> av.VideoFrame:
    """Returns a frame of a moving texture in the host's memory."""
    y, u, v = texture(number, video_info(SIZE), "yuv444p")
    frame = av.VideoFrame.from_ndarray(np.stack([y, u, v]), "yuv444p").reformat(format=pix_fmt)
    frame.pts, frame.time_base = number * TICKS, BASE
    return frame


def ffmpeg(path: str, codec: str, pix_fmt: str, options: dict[str, str], count: int, bit_rates: Sequence[int]) -> Any:
    """Encodes `count` pictures with FFmpeg alone; returns (pts, dts, size) of all packets.

    After each of `bit_rates` but the last, the rate becomes the next one, in equal stretches.
    """
    packets = []
    with av.open(path, "w") as container:
        stream = container.add_stream(codec, rate=25, options=options)
        stream.width, stream.height = SIZE
        stream.pix_fmt, stream.codec_context.time_base = pix_fmt, BASE
        for i in range(count):
            if bit_rates:
                stream.bit_rate = bit_rates[i * len(bit_rates) // count]
            packets += stream.encode(picture(i, pix_fmt))
        packets += stream.encode(None)
        made = [(packet.pts, packet.dts, packet.size) for packet in packets]  # the muxer changes their times
        for packet in packets:
            container.mux(packet)
        return made


def together(codecs: Sequence[str], count: int) -> Any:
    """Encodes with several encoders in turn, as several outputs do; returns the sizes of all packets."""
    av.logging.set_level(av.logging.ERROR)  # errors then have FFmpeg's message
    contexts = []
    for codec in codecs:
        context = av.CodecContext.create(codec, "w")
        context.width, context.height, context.pix_fmt, context.time_base = *SIZE, "nv12", BASE
        context.options = {"bf": "2", "cq": "20"}
        context.open()
        contexts.append(context)
    sizes: list[list[int]] = [[] for _ in codecs]
    for i in range(count + 1):
        for context, found in zip(contexts, sizes, strict=True):
            found += [packet.size for packet in context.encode(picture(i, "nv12") if i < count else None)]
    return sizes


def encoder(jobs: Sequence[Any], reused: int) -> Any:
    """Writes files with `NvencEncoder`. Each job is (path, pix_fmt, size, options of `Config`, pts).

    Surfaces are in the host's memory, and FFmpeg gets them as CUDA's. After `reused` more batches, if it is not 0, a
    batch's surfaces are overwritten, whether or not their packets are out.
    """
    import host_kernels
    import torch

    import segmentation.stages.encode.nvenc as nvenc
    from segmentation.stages.encode.nvenc_surfaces import SurfaceLayout

    class HostCuda(torch.Tensor):
        """A tensor on the host that says it is on a GPU."""

        def __dlpack__(self, **options: Any) -> Any:
            capsule = super().__dlpack__(**options)
            pointer = ctypes.pythonapi.PyCapsule_GetPointer
            pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            ctypes.c_int32.from_address(pointer(capsule, b"dltensor") + 8).value = _CUDA  # after the address
            return capsule

        def __dlpack_device__(self) -> tuple[int, int]:
            return _CUDA, 0

    empty, fill, filled = SurfaceLayout.empty, SurfaceLayout.fill, []

    def host_empty(self: SurfaceLayout, count: int) -> Any:
        return empty(self, count).as_subclass(HostCuda)

    def watched_fill(self: SurfaceLayout, surfaces: Any, batch: FrameBatch) -> None:
        fill(self, surfaces, batch)
        if reused:
            filled.append(surfaces)
            for old in filled[-1 - reused : -reused]:
                old.fill_(7)

    SurfaceLayout.empty, SurfaceLayout.fill = host_empty, watched_fill  # type: ignore[method-assign]
    gpu: Any = host_kernels.HostGpu()
    gpu.index = 0
    enter_context(0)
    for path, pix_fmt, size, options, pts in jobs:
        config = Config(**options)
        write(nvenc, Path(path), video_info(tuple(size)), pix_fmt, pts, gpu, config)
    return len(jobs)


def cpu(jobs: Sequence[Any]) -> int:
    """Writes the same files as `encoder`, by x264."""
    for path, pix_fmt, size, options, pts in jobs:
        config, info = Config(**options), video_info(tuple(size))
        with Muxer(Path(path), info, config) as muxer:
            x264 = PyAVEncoder(muxer, info, pix_fmt, config)
            frames = tuple(Frame(planes=tuple(texture(i, info, pix_fmt)), pts=n, duration=2) for i, n in enumerate(pts))
            muxer.write(x264.encode(FrameBatch(frames=frames, index=0)))
            muxer.write(x264.flush())
            x264.close()
            muxer.finish(None)
    return len(jobs)


if __name__ == "__main__":
    try:
        answer = {"value": globals()[sys.argv[1]](*json.loads(sys.argv[2]))}
    except (SegmentationError, av.error.FFmpegError) as exc:
        answer = {"error": str(exc)}
    print(json.dumps(answer))
