"""What this machine's GPU, driver and video engines can do: asked of them, never assumed from a name."""

import ctypes
import logging
import re
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from segmentation.config import Config
from segmentation.errors import BackendError, LacksEngine
from segmentation.frames import FORMATS, VideoInfo
from segmentation.stages.decode.chunks import read
from segmentation.stages.decode.interlacing import may_interlace

NVDEC_CODECS = {  # FFmpeg's name of a decoder: PyNvVideoCodec's of the codec
    "h264": "H264",
    "hevc": "HEVC",
    "libdav1d": "AV1",
    "av1": "AV1",
    "mpeg1video": "MPEG1",
    "mpeg2video": "MPEG2",
    "mpeg4": "MPEG4",
    "vp8": "VP8",
    "vp9": "VP9",
}
logging.getLogger("PyNvVideoCodec").propagate = False  # it tells its version at each import; warnings still show

_CHROMA = {"yuv420p": "420", "yuv444p": "444"}
# cudaVideoCodec and cudaVideoChromaFormat of the driver's cuviddec.h.
_CODEC_NUMBERS = {"MPEG1": 0, "MPEG2": 1, "MPEG4": 2, "H264": 4, "HEVC": 8, "VP8": 9, "VP9": 10, "AV1": 11}
_CHROMA_NUMBERS = {"420": 1, "444": 3}
_DRIVER = "libcuda.so.1"
_VIDEO = ("libnvcuvid.so.1", "libnvidia-encode.so.1")  # PyNvVideoCodec loads both
_PACKAGES = (
    "torch",
    "cvcuda-cu13",
    "PyNvVideoCodec",
    "cuda-core",
    "tensorrt-cu13",
    "tensorrt-rtx",
    "av",
    "onnxruntime",
)

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*, cuda.h


@dataclass(frozen=True, slots=True)
class GpuInfo:
    """An NVIDIA GPU as its driver describes it."""

    name: str
    capability: tuple[int, int]  # compute capability: major, minor

    def __str__(self) -> str:
        return f"{self.name} (compute capability {dotted(self.capability)})"


def dotted(capability: tuple[int, int]) -> str:
    """Writes a compute capability such as (8, 9) as "8.9"."""
    return f"{capability[0]}.{capability[1]}"


@cache
def find_gpu(index: int = 0) -> GpuInfo | None:
    """Asks the driver for the `index`-th GPU; `None` if there is no such GPU. PyTorch is not needed for that."""
    try:
        cuda = ctypes.CDLL(_DRIVER)
    except OSError:
        return None
    count, device, major, minor = (ctypes.c_int() for _ in range(4))
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or index >= count.value:
        return None
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGet(ctypes.byref(device), index)
    cuda.cuDeviceGetName(name, len(name), device)
    cuda.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device)
    cuda.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device)
    return GpuInfo(name.value.decode(errors="replace"), (major.value, minor.value))


def device_index(config: Config) -> int:
    """Which GPU is meant. Raises `BackendError` in one line, with the remedy, where there is none to use."""
    if config.device == "cpu":
        raise BackendError("device cpu: this needs an NVIDIA GPU; leave out --device, or write --device cuda:0")
    index = int((config.device or "cuda:0").partition(":")[2] or 0)
    if find_gpu(index) is not None:
        return index
    if not _loads(_DRIVER):
        raise BackendError(f"there is no NVIDIA driver ({_DRIVER}); install it, or start the container with --gpus all")
    if find_gpu(0) is None:
        raise BackendError("the NVIDIA driver shows no GPU; check nvidia-smi, or start the container with --gpus all")
    raise BackendError(f"device {config.device}: the NVIDIA driver shows no such GPU; use --device cuda:0")


def enter_context(index: int) -> None:
    """Makes the GPU's primary context, which PyTorch and all others use, this thread's current one; what goes wrong is
    left to them to say.

    The first time that takes a tenth of a second, as in those libraries, but they keep Python's lock meanwhile.
    """
    try:
        cuda = ctypes.CDLL(_DRIVER)
    except OSError:
        return
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if not (
        cuda.cuInit(0)
        or cuda.cuDeviceGet(ctypes.byref(device), index)
        or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)  # for good, as in PyTorch
    ):
        cuda.cuCtxSetCurrent(context)


def require_torch() -> None:
    """Raises `BackendError` where PyTorch can't use the GPU that the driver shows."""
    import torch

    if not torch.cuda.is_available():
        built = (
            f"CUDA {torch.version.cuda}, which may be newer than the driver" if torch.version.cuda else "the CPU only"
        )
        raise BackendError(f"PyTorch finds no GPU: it was built for {built}; install another build from pytorch.org")


def require_video_libraries() -> None:
    """Raises `BackendError` where the driver's libraries for NVDEC and NVENC are not to be seen."""
    absent = [name for name in _VIDEO if not _loads(name)]
    if absent:
        raise BackendError(
            f"the driver's {absent[0]} is missing; in a container, start it with "
            "NVIDIA_DRIVER_CAPABILITIES=compute,video,utility"
        )


def nvdec_engines(config: Config, info: VideoInfo | None) -> int:
    """How many NVDEC engines there are. Raises `LacksEngine` if they can't decode `info`, saying what they lack."""
    index = device_index(config)
    if info is None:
        return int(nvdec_caps(index, "H264", "420", 8).engines)
    pix_fmt = info.pix_fmt.replace("yuvj", "yuv")
    bits = FORMATS[pix_fmt].bits if pix_fmt in FORMATS else 0
    chroma = _CHROMA.get(pix_fmt.removesuffix("10le"))
    what = f"{info.codec} {info.pix_fmt} of {info.width}x{info.height}"
    if info.codec not in NVDEC_CODECS or chroma is None:
        raise LacksEngine(f"NVDEC has no decoder for {what}")
    caps = nvdec_caps(index, NVDEC_CODECS[info.codec], chroma, bits)
    if not caps.supported:
        raise LacksEngine(f"this GPU's NVDEC has no decoder for {what}")
    least, most = (caps.width_min, caps.height_min), (caps.width_max, caps.height_max)
    size = (info.width, info.height)
    if any(s < low or s > high for s, low, high in zip(size, least, most, strict=True)):
        raise LacksEngine(f"NVDEC takes {'{}x{} to {}x{}'.format(*least, *most)} pixels of this codec, not {what}")
    if any(s % 2 for s in size):
        raise LacksEngine(f"NVDEC gives frames of even size, and this is {what}")
    first = next(read(info, None), None)
    if info.interlaced or (first is not None and may_interlace(info.codec, bytes(first))):
        raise LacksEngine(f"NVDEC would mix the fields of interlaced frames, and this is {what}")
    if config.start and first is not None and first.pts is None:
        raise LacksEngine(f"several decoders find --start by timestamps, and this is {what} without any")
    return int(caps.engines)


@cache
def nvdec_caps(index: int, codec: str, chroma: str, bits: int) -> "DecoderCaps":
    """What NVDEC says of a codec. Raises `BackendError`.

    The driver is asked itself, in the context that all use: PyNvVideoCodec makes one for it, which takes a fifth of a
    second with Python's lock.
    """
    enter_context(index)
    asked = DecoderCaps(codec=_CODEC_NUMBERS[codec], chroma=_CHROMA_NUMBERS[chroma], bits_over_8=bits - 8)
    status = ctypes.CDLL(_VIDEO[0]).cuvidGetDecoderCaps(ctypes.byref(asked))
    if status:
        raise BackendError(f"the driver does not say what NVDEC decodes (CUDA error {status})")
    return asked


class DecoderCaps(ctypes.Structure):
    """CUVIDDECODECAPS of the driver's cuviddec.h."""

    _fields_ = (
        ("codec", ctypes.c_int),
        ("chroma", ctypes.c_int),
        ("bits_over_8", ctypes.c_uint),
        ("_reserved", ctypes.c_uint * 3),
        ("supported", ctypes.c_ubyte),
        ("engines", ctypes.c_ubyte),
        ("_formats", ctypes.c_ushort),
        ("width_max", ctypes.c_uint),
        ("height_max", ctypes.c_uint),
        ("_macroblocks_max", ctypes.c_uint),
        ("width_min", ctypes.c_ushort),
        ("height_min", ctypes.c_ushort),
        ("_rest", ctypes.c_uint * 11),  # histograms, and what is reserved
    )


def machine(config: Config) -> list[str]:
    """The GPU, its driver, the libraries and what NVDEC decodes, a line each; one line where there is no GPU."""
    try:
        index = device_index(config)
    except BackendError as exc:
        return [f"{'GPU':<12} none: {exc}"]
    gpu = find_gpu(index)
    version = re.search(r"Kernel Module\s+(\S+)", _text("/proc/driver/nvidia/version"))
    lines = [f"{'GPU':<12} {gpu}, driver {version[1] if version else 'unknown'}", f"{'libraries':<12} {_libraries()}"]
    try:
        require_video_libraries()
        served = [
            f"{codec.lower()} {chroma} {bits} bit"
            for codec in dict.fromkeys(NVDEC_CODECS.values())
            for chroma in ("420", "444")
            for bits in (8, 10)
            if nvdec_caps(index, codec, chroma, bits).supported
        ]
        lines.append(f"{'NVDEC':<12} {nvdec_engines(config, None)} engines: {', '.join(served)}")
    except BackendError as exc:
        lines.append(f"{'NVDEC':<12} not to be asked: {exc}")
    return lines


def _libraries() -> str:
    found: dict[str, Any] = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(f"{name} {version}" for name, version in found.items())


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
