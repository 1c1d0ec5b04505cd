"""NVDEC's codecs, and whether this GPU's NVDEC can decode a video: the driver is asked, never a table of GPUs."""

import ctypes
from functools import cache

from segmentation.errors import BackendError, LacksEngine
from segmentation.frames import FORMATS, VideoInfo
from segmentation.gpu.discovery import NVCUVID, device_index, in_context
from segmentation.options.config import Config

NVDEC_CODECS = {  # FFmpeg's name of a decoder: PyNvVideoCodec's name of the codec
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
_CHROMA = {"yuv420p": "420", "yuv444p": "444"}
# cudaVideoCodec and cudaVideoChromaFormat of the driver's cuviddec.h.
CODEC_NUMBERS = {"MPEG1": 0, "MPEG2": 1, "MPEG4": 2, "H264": 4, "HEVC": 8, "VP8": 9, "VP9": 10, "AV1": 11}
_CHROMA_NUMBERS = {"420": 1, "444": 3}


class DecoderCaps(ctypes.Structure):
    """CUVIDDECODECAPS of the driver's cuviddec.h."""

    codec: int
    chroma: int
    bits_over_8: int
    supported: int
    engines: int
    width_max: int  # pixels, as the other sizes
    height_max: int
    width_min: int
    height_min: int

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
        ("_rest", ctypes.c_uint * 11),  # histograms and reserved fields
    )


@cache
def nvdec_caps(index: int, codec: str, chroma: str, bits: int) -> DecoderCaps:
    """Returns the driver's answer for a codec on GPU `index`, see `NVDEC_CODECS`.

    `chroma` is "420" or "444", `bits` counts those of a sample. Raises `BackendError` if the driver does not answer.

    PyNvVideoCodec can ask too, but creates a context for it: a fifth of a second under the GIL.
    """
    caps = DecoderCaps(codec=CODEC_NUMBERS[codec], chroma=_CHROMA_NUMBERS[chroma], bits_over_8=bits - 8)
    with in_context(index):
        status = ctypes.CDLL(NVCUVID).cuvidGetDecoderCaps(ctypes.byref(caps))
    if status:
        raise BackendError(f"the driver does not say what NVDEC decodes (CUDA error {status})")
    return caps


def nvdec_formats(index: int) -> list[str]:
    """Returns the formats that NVDEC of GPU `index` decodes, as "hevc 420 10 bit". Raises `BackendError`."""
    return [
        f"{codec.lower()} {chroma} {bits} bit"
        for codec in dict.fromkeys(NVDEC_CODECS.values())
        for chroma in _CHROMA_NUMBERS
        for bits in (8, 10)
        if nvdec_caps(index, codec, chroma, bits).supported
    ]


def nvdec_engines(config: Config, info: VideoInfo | None) -> int:
    """Returns the number of NVDEC engines that can decode `info`; `None` stands for any H.264 video.

    Raises `LacksEngine` if NVDEC can't decode `info` exactly, `BackendError` if there is no GPU to ask.
    """
    index = device_index(config)
    if info is None:
        return nvdec_caps(index, "H264", "420", 8).engines
    engines = engines_for(index, info.codec, info.pix_fmt, (info.width, info.height))
    check_exactness(config, info)
    return engines


def engines_for(index: int, codec: str, pix_fmt: str, size: tuple[int, int]) -> int:
    """Returns the number of NVDEC engines of GPU `index` that can decode such pictures of `size` (width, height).

    `codec` is FFmpeg's name of the decoder. Raises `LacksEngine` if there are none.
    """
    video = _named(codec, pix_fmt, size)
    caps = _caps_for(index, codec, pix_fmt, video)
    _check_size(size, caps, video)
    return caps.engines


def check_exactness(config: Config, info: VideoInfo) -> None:
    """Raises `LacksEngine` for videos that any NVDEC would decode, but not to the frames that are to be shown."""
    video = _named(info.codec, info.pix_fmt, (info.width, info.height))
    if info.interlaced:
        raise LacksEngine(f"NVDEC would mix the fields of interlaced frames, and this is {video}")
    if info.layered:
        raise LacksEngine(f"NVDEC would put out each view as a frame of its own, and this is {video} with several")
    if info.packed:
        raise LacksEngine(f"NVDEC would lose packed B-frames, and this is {video} with some")
    if info.inside:
        raise LacksEngine(
            f"NVDEC would show the coded picture from its corner on, and this is {video} within a larger one"
        )
    if info.gradual:
        raise LacksEngine(f"NVDEC would show pictures that are not complete yet, and this {video} begins with some")
    if config.start and not info.timed:
        raise LacksEngine(f"several decoders find --start by timestamps, and this is {video} without any")


def _named(codec: str, pix_fmt: str, size: tuple[int, int]) -> str:
    return f"{'av1' if codec == 'libdav1d' else codec} {pix_fmt} of {size[0]}x{size[1]}"


def _caps_for(index: int, codec: str, pix_fmt: str, video: str) -> DecoderCaps:
    """Returns the capabilities for a codec and a pixel format. Raises `LacksEngine` if they are not served."""
    pix_fmt = pix_fmt.replace("yuvj", "yuv")
    bits = FORMATS[pix_fmt].bits if pix_fmt in FORMATS else 0
    chroma = _CHROMA.get(pix_fmt.removesuffix("10le"))
    if codec not in NVDEC_CODECS or chroma is None:
        raise LacksEngine(f"NVDEC has no decoder for {video}")
    caps = nvdec_caps(index, NVDEC_CODECS[codec], chroma, bits)
    if not caps.supported:
        raise LacksEngine(f"this GPU's NVDEC has no decoder for {video}")
    return caps


def _check_size(size: tuple[int, int], caps: DecoderCaps, video: str) -> None:
    """Raises `LacksEngine` for a size that the engine does not take, or that its frames can't have."""
    least, most = (caps.width_min, caps.height_min), (caps.width_max, caps.height_max)
    if any(s < low or s > high for s, low, high in zip(size, least, most, strict=True)):
        raise LacksEngine(f"NVDEC takes {'{}x{} to {}x{}'.format(*least, *most)} pixels of this codec, not {video}")
    if any(s % 2 for s in size):
        raise LacksEngine(f"NVDEC gives frames of even size, and this is {video}")
