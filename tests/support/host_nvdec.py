"""Runs NVDEC's decoders on the CPU: FFmpeg decodes in NVDEC's place, and the kernels run on the host.

Threads, chunks, sessions and times are those of a GPU. Tests marked `gpu` show what NVDEC itself makes of a stream.
"""

import ctypes
import sys
import threading
from ctypes import CFUNCTYPE, c_int, c_longlong, c_ulong, c_void_p
from functools import cache
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import av
import av.error
import numpy as np
from av.codec.context import Flags
from host_kernels import HostCvCuda, HostGpu, _put_back, host_stages
from native_nvdec import stand_in, stand_in_driver
from videos import planes

from segmentation.clips.open_videos import OpenVideos
from segmentation.frames import VideoInfo
from segmentation.options.config import Config
from segmentation.stages.decode.native import library as native_library
from segmentation.stages.decode.nvdec_support import CODEC_NUMBERS

ENGINES = 4
_PACKET, _GONE = 0, 2  # events, see stand_in_nvcuvid.cpp
_CODECS = {"H264": "h264", "HEVC": "hevc", "VP8": "vp8", "VP9": "vp9", "MPEG2": "mpeg2video", "MPEG4": "mpeg4"}


class PacketData:
    bsl_data = bsl = pts = decode_flag = 0


class Surface:
    """A frame as NVDEC has it: Y above interleaved UV, or above U and V, 10 bits in the high ones, rows with a rest."""

    def __init__(self, frame: Any) -> None:
        self.timestamp = frame.pts
        y, u, v = planes(frame)
        below = [u, v] if u.shape == y.shape else [np.stack([u, v], axis=-1).reshape(len(u), -1)]
        width = max(y.shape[1], below[0].shape[1])  # which differ by one where the width is odd
        self._samples = np.full((len(y) + sum(map(len, below)), width + 24), 0x55, y.dtype)
        row = 0
        for part in (y, *below):
            self._samples[row : row + len(part), : part.shape[1]] = part << (6 if y.dtype == np.uint16 else 0)
            row += len(part)
        self.shape, self.strides = (len(self._samples), y.shape[1]), (self._samples.shape[1],)  # in samples

    def GetPtrToPlane(self, index: int) -> int:
        return int(self._samples.ctypes.data)

    def overwrite(self) -> None:
        self._samples[:] = 0xAA


class Session:
    """Overwrites its surfaces at the next call, as NVDEC's may. Counts those that are alive, and all that were made.

    It conceals damage, and names it on C's standard output, as NVDEC's library does.
    """

    alive = made = 0

    def __init__(self, codec: str) -> None:
        self._decoder = _ffmpeg(_CODECS[codec])
        self._surfaces: list[Surface] = []
        Session.alive += 1
        Session.made += 1

    def __del__(self) -> None:
        Session.alive -= 1

    def Decode(self, data: PacketData) -> list[Surface]:
        for surface in self._surfaces:
            surface.overwrite()
        packet = None
        if data.bsl:
            packet = av.Packet(ctypes.string_at(data.bsl_data, data.bsl))
            packet.pts = data.pts
        frames, damaged = _frames(self._decoder, packet)
        if damaged:
            ctypes.CDLL(None).printf(b"Decode Error occurred\n")
        self._surfaces = [Surface(frame) for frame in frames]
        return self._surfaces


def _ffmpeg(codec: str, *, in_order: bool = False) -> Any:
    """Returns FFmpeg's decoder. `in_order` hands frames out as they are decoded."""
    decoder: Any = av.CodecContext.create(codec, "r")
    if in_order:
        decoder.flags |= Flags.low_delay
    decoder.thread_count = 1  # with more, FFmpeg does not always say that a frame is damaged
    return decoder


def _frames(decoder: Any, packet: Any) -> tuple[list[Any], bool]:
    """Returns the frames after one more packet, all that are left without one, and whether damage was found."""
    try:
        frames = decoder.decode(packet)
    except av.error.InvalidDataError:
        return [], True
    finally:
        if packet is None:
            decoder.flush_buffers()
    return frames, any(frame.is_corrupt for frame in frames)


class _Nvc(ModuleType):
    __version__ = "FFmpeg"
    PacketData = PacketData
    PyNvVCException = PyNvVCExceptionUnsupported = ValueError
    DisplayDecodeLatencyType = SimpleNamespace(NATIVE="NATIVE")
    cudaVideoCodec = SimpleNamespace(**{name: name for name in _CODECS})

    @staticmethod
    def CreateDecoder(**options: Any) -> Session:
        return Session(options["codec"])


class NvdecGpu(HostGpu):
    """The methods of `context.Gpu` that decoding calls besides, in host memory."""

    index = 0
    stream = SimpleNamespace(cuda_stream=0, record_event=lambda event: event)

    def with_own_stream(self) -> "NvdecGpu":
        return NvdecGpu()

    def free_bytes(self) -> int:
        return 1 << 30

    def wait_event(self, event: Any) -> None: ...

    def record_event(self) -> Any:
        return SimpleNamespace(synchronize=lambda: None, query=lambda: True)


_importing = threading.Lock()  # `cache` lets threads that come at once all import, with each other's stand-ins


def imported_anew(*names: str) -> Any:
    """Imports modules with stand-ins for CV-CUDA and PyNvVideoCodec, as copies of their own. Returns the last."""
    fakes: dict[str, ModuleType] = {"cvcuda": HostCvCuda("cvcuda"), "PyNvVideoCodec": _Nvc("PyNvVideoCodec")}
    kept = {name: sys.modules.pop(name, None) for name in (*fakes, *names)}
    sys.modules.update(fakes)
    try:
        *_, last = map(import_module, names)
    finally:
        for name, module in kept.items():
            _put_back(name, module)
    return last


@cache
def _module() -> Any:
    nvdec = imported_anew(
        "segmentation.gpu.context",
        "segmentation.gpu.plane_pool",
        "segmentation.stages.decode.nvdec_session",
        "segmentation.stages.decode.chunk_decoder",
        "segmentation.stages.decode.nvdec",
    )
    nvdec.ChunkDecoder.__init__.__globals__["nvdec_engines"] = lambda config, info: ENGINES
    return nvdec


@cache
def _native_module() -> Any:
    native = imported_anew(
        "segmentation.gpu.context",
        "segmentation.gpu.plane_pool",
        "segmentation.stages.decode.nvdec_session",
        "segmentation.stages.decode.chunk_decoder",
        "segmentation.stages.decode.native.session",
        "segmentation.stages.decode.native.decoder",
    )
    native.ChunkDecoder.__init__.__globals__["nvdec_engines"] = lambda config, info: ENGINES
    native.library = stand_in
    native.NativeSession.__init__.__globals__["native"] = SimpleNamespace(
        **{**vars(native_library), "library": stand_in}
    )
    return native


@cache
def _clips_module() -> Any:
    clips = imported_anew(
        "segmentation.gpu.context",
        "segmentation.gpu.plane_pool",
        "segmentation.stages.decode.native.session",
        "segmentation.clips.native_clips",
    )
    library = SimpleNamespace(**{**vars(native_library), "library": stand_in})
    clips.native = clips.NativeSession.__init__.__globals__["native"] = library
    return clips


@cache
def _live_module() -> Any:
    live = imported_anew(
        "segmentation.gpu.context",
        "segmentation.gpu.plane_pool",
        "segmentation.gpu.transfer",
        "segmentation.stages.decode.native.session",
        "segmentation.live.nvdec_decoder",
    )
    live.__dict__["GpuTransfer"] = host_stages().GpuTransfer
    live.NativeSession.__init__.__globals__["native"] = SimpleNamespace(**{**vars(native_library), "library": stand_in})
    return live


class DrivenByFFmpeg:
    """Lets FFmpeg decode H.264 and HEVC for the stand-in for the driver, while the context is entered."""

    _decode_type = CFUNCTYPE(c_int, c_void_p, *[c_int] * 3, c_void_p, c_ulong, c_longlong)

    def __init__(self) -> None:
        self._decoders: dict[int, Any] = {}  # by parser
        self._function = self._decode_type(self._decode)

    def __enter__(self) -> "DrivenByFFmpeg":
        driver = stand_in_driver()
        driver.stand_in_picture.argtypes = (c_void_p, c_longlong, c_int, c_int, *[c_void_p] * 3, c_int)
        driver.stand_in_decoder(self._function)
        return self

    def __exit__(self, *_: object) -> None:
        stand_in_driver().stand_in_decoder(None)
        self.hold(0)
        self.damage(every=0)

    @property
    def alive(self) -> int:
        """How many sessions there are."""
        return len(self._decoders)

    def hold(self, frames: int) -> None:
        """Holds frames back as where a stream does not tell their order, in sessions that wait for it."""
        stand_in_driver().stand_in_held(frames)

    def damage(self, every: int) -> None:
        """Calls the next picture damaged, and every so-many-th one from there on."""
        stand_in_driver().stand_in_faults(-1, 0, every, -1)

    def _decode(
        self, parser: int, event: int, codec: int, in_order: int, data: int, size: int, time: int
    ) -> int:  # see stand_in_nvcuvid.cpp
        if event == _GONE:
            self._decoders.pop(parser, None)
            return 1
        decoder = self._decoders.get(parser)
        if decoder is None:
            name = {CODEC_NUMBERS["H264"]: "h264", CODEC_NUMBERS["HEVC"]: "hevc"}[codec]
            decoder = self._decoders[parser] = _ffmpeg(name, in_order=bool(in_order))
        packet = None
        if event == _PACKET:
            packet = av.Packet(ctypes.string_at(data, size))
            packet.pts = time
        good = 1
        for frame in _frames(decoder, packet)[0]:
            parts = [np.ascontiguousarray(plane) for plane in planes(frame)]
            addresses = [part.ctypes.data for part in parts]
            good &= stand_in_driver().stand_in_picture(
                parser, frame.pts, frame.width, frame.height, *addresses, frame.is_corrupt
            )
        return good


def host_nvdec(info: VideoInfo, sessions: Any = None, **options: Any) -> Any:
    """Returns a `NvdecDecoder` for 4:2:0 in 8 bits, whose planes are in host memory."""
    config = Config(**{"batch_size": 8, **options})
    with _importing:
        nvdec = _module()
    return nvdec.NvdecDecoder(info, "yuv420p", config, NvdecGpu(), sessions=sessions)


def host_native_nvdec(info: VideoInfo, sessions: Any = None, **options: Any) -> Any:
    """Returns a `NativeNvdecDecoder` on the stand-in for the driver, see stand_in_nvcuvid.cpp."""
    config = Config(**{"batch_size": 8, **options})
    with _importing:
        native = _native_module()
    stand_in_driver().stand_in_size(info.width, info.height)
    return native.NativeNvdecDecoder(info, "yuv420p", config, NvdecGpu(), sessions=sessions)


def host_native_clips(size: tuple[int, int]) -> Any:
    """Returns `NativeClips` on the stand-in for the driver, for videos of a size (width, height)."""
    with _importing:
        clips = _clips_module()
    stand_in_driver().stand_in_size(*size)
    return clips.NativeClips(NvdecGpu(), OpenVideos())


def host_live_nvdec(info: VideoInfo, sessions: Any = None, **options: Any) -> Any:
    """Returns a `LiveNvdecDecoder` for 4:2:0 in 8 bits, whose planes are in host memory."""
    with _importing:
        live = _live_module()
    return live.LiveNvdecDecoder(info, "yuv420p", Config(**options), NvdecGpu(), sessions=sessions)
