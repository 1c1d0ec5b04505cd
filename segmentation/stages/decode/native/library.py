"""Loads the library of decoder.cpp and samples.cpp, which has a C interface and needs nothing of Python."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path

from segmentation.errors import BackendError, one_line
from segmentation.gpu.discovery import DRIVER, NVCUVID
from segmentation.stages.decode.native.build import BUILT

MOST_SETS = 32  # as in decoder.cpp, as are the structures
CHANGES = 2  # outcome of `nd_decode`: the pictures get another size or depth
DELAYS = {"calls": 0, "low": 1, "zero": 2}  # `Delay` of decoder.cpp, by the latency of a `StreamFormat`
_REMEDY = "for files, use --decode nvdec"


class SessionSettings(ctypes.Structure):
    """Properties of a session."""

    _fields_ = (
        *(
            (name, c_int32)
            for name in ("codec", "width", "height", "bytes", "shift", "subsampled", "in_order", "delay")
        ),
        ("stream", c_void_p),
    )


class Target(ctypes.Structure):
    """Where the pictures of one group of packets go."""

    planes: ctypes.Array[ctypes.Array[c_uint64]]
    sets: int
    capacity: int
    filled: int

    _fields_ = (
        ("planes", (c_uint64 * 3) * MOST_SETS),
        *((name, c_int32) for name in ("sets", "capacity", "filled", "_")),
    )


class PacketArrays(ctypes.Structure):
    """Packets, of each an entry in every array."""

    _fields_ = tuple((name, c_void_p) for name in ("data", "sizes", "times", "serials", "kept"))


class SampleRows(ctypes.Structure):
    """Samples of an MP4, of each an entry in every array."""

    _fields_ = tuple((name, c_void_p) for name in ("offsets", "sizes", "keys", "kinds", "heads"))


class Sampler(ctypes.Structure):
    """Makes frames of one clip for one output."""

    _fields_ = (
        *((name, c_void_p) for name in ("kernel", "arguments")),
        ("frame", c_int64),
        *((name, c_int32) for name in ("size", "across", "down", "top", "left", "chroma_top", "chroma_left", "_")),
    )


class ClipFrame(ctypes.Structure):
    """A frame of a sampler's clip, at its place, and the serial of the packet with its picture."""

    _fields_ = (("serial", c_int64), ("sampler", c_int32), ("place", c_int32))


class Clips(ctypes.Structure):
    """Samplers, and all frames that they are to make, by rising serials."""

    _fields_ = (("samplers", POINTER(Sampler)), ("frames", POINTER(ClipFrame)), ("count", c_int64))


class NativePicture(ctypes.Structure):
    """A picture that a call has put out."""

    serial: int
    group: int
    damaged: int

    _fields_ = (("serial", c_int64), ("group", c_int32), ("damaged", c_int32))


class Result(ctypes.Structure):
    """Counts of one call of `nd_decode`."""

    consumed: int
    produced: int
    flushed: int
    shown: int
    expected: ctypes.Array[c_int32]
    damaged: int  # pictures that were dropped

    _fields_ = (
        *((name, c_int32) for name in ("consumed", "produced", "flushed", "shown")),
        ("expected", c_int32 * 2),
        *((name, c_int32) for name in ("damaged", "_")),
    )


def load_library(path: Path, libcuda: str = DRIVER, libnvcuvid: str = NVCUVID) -> ctypes.CDLL:
    """Loads the library, and the driver's by it. Its calls release the GIL. Raises `BackendError`."""
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as exc:
        raise BackendError(f"the native decoder can't be loaded ({one_line(exc)}); {_REMEDY}") from exc
    loaded.nd_create.argtypes, loaded.nd_create.restype = (POINTER(SessionSettings), c_char_p, c_int), c_void_p
    loaded.nd_decode.argtypes = (
        *(
            c_void_p,
            POINTER(PacketArrays),
            c_int,
            c_int,
            c_int,
            c_void_p,
            POINTER(Target),
            POINTER(NativePicture),
            c_int,
        ),
        POINTER(Result),
    )
    loaded.nd_sample.argtypes = (
        *(c_void_p, POINTER(PacketArrays), c_int),
        *(POINTER(Clips), POINTER(NativePicture), c_int, POINTER(Result)),
    )
    loaded.nd_read.argtypes = (
        *(c_int, POINTER(SampleRows), c_int, c_int),
        *(c_char_p, c_uint32, c_uint64, c_void_p),
    )
    loaded.nd_error.argtypes, loaded.nd_error.restype = (c_void_p,), c_char_p
    loaded.nd_forget.argtypes, loaded.nd_forget.restype = (c_void_p, c_int), None
    loaded.nd_destroy.argtypes, loaded.nd_destroy.restype = (c_void_p,), None
    reason = ctypes.create_string_buffer(256)
    if loaded.nd_load(libcuda.encode(), libnvcuvid.encode(), reason, len(reason)):
        raise BackendError(f"the native decoder finds no driver ({reason.value.decode()}); {_REMEDY}")
    return loaded


@cache
def library() -> ctypes.CDLL:
    """Returns the library that was built into the package. Raises `BackendError`."""
    if not BUILT.exists():
        raise BackendError(f"the native decoder is not built: install the package with a C++ compiler; {_REMEDY}")
    return load_library(BUILT)
