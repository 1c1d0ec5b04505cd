"""NVDEC sessions by the native library: one call decodes many packets into a batch's planes. An experiment."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from contextlib import nullcontext
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from segmentation.errors import InputError
from segmentation.gpu.capture_lock import capture_unsafe
from segmentation.stages.decode.nvdec_support import _CODEC_NUMBERS, NVDEC_CODECS
from segmentation.stages.decode.stream_format import StreamFormat

MOST_SETS = 20  # as in the library
MOST_AT_ONCE = 17  # pictures that one packet may push out: a full picture buffer and itself
MOST_PICTURES = 128  # of a call
DROP, UNPACK, MAP_ONLY = 0, 1, 2  # what becomes of a packet's picture


class Settings(ctypes.Structure):
    """As `Settings` of the library."""

    _fields_ = (
        *((name, c_int32) for name in ("codec", "width", "height", "bytes", "shift", "subsampled", "delay")),
        *((name, c_int32) for name in ("more_surfaces", "outputs", "whole_packets", "in_order", "synchronize")),
        ("stream", c_void_p),
        ("kernel", c_void_p),
    )


class Target(ctypes.Structure):
    """As `Target` of the library: where the pictures of one chunk go."""

    _fields_ = (
        ("planes", (c_uint64 * 3) * MOST_SETS),
        *((name, c_int32) for name in ("sets", "capacity", "filled", "reserved")),
    )


class Picture(ctypes.Structure):
    """As `Picture` of the library."""

    _fields_ = (("serial", c_int64), ("group", c_int32), ("status", c_int32))


class Result(ctypes.Structure):
    """As `Result` of the library."""

    _fields_ = (
        *((name, c_int32) for name in ("consumed", "produced", "flushed", "shown")),
        ("waiting", c_int32 * 2),
        *((name, c_int64) for name in ("total", "decoding", "mapping")),
    )


@cache
def library() -> ctypes.CDLL:
    """Returns the library, whose calls release the GIL."""
    place = os.environ.get("NATIVE_LIBRARY") or str(Path(__file__).parents[4] / ".gpu" / "libnative_decoder.so")
    loaded = ctypes.CDLL(place)
    loaded.nd_create.argtypes, loaded.nd_create.restype = (POINTER(Settings), c_char_p, c_int), c_void_p
    arrays = (POINTER(c_uint64), POINTER(c_uint32), POINTER(c_int64), POINTER(c_int64), POINTER(c_uint8))
    rest = (c_int, c_int, c_int, POINTER(Target), POINTER(Picture), c_int, POINTER(Result))
    loaded.nd_decode.argtypes, loaded.nd_decode.restype = (c_void_p, *arrays, *rest), c_int
    loaded.nd_error.argtypes, loaded.nd_error.restype = (c_void_p,), c_char_p
    loaded.nd_forget.argtypes = (c_void_p, c_int)
    loaded.nd_surfaces.argtypes = loaded.nd_destroy.argtypes = (c_void_p,)
    loaded.nd_destroy.restype = None
    return loaded


class Packets:
    """Packets as the library takes them. Keeps them alive."""

    def __init__(self, packets: Sequence[Any], times: Sequence[int], serials: Sequence[int], keep: Sequence[int]):
        n = self.count = len(packets)
        self.kept = packets
        self.data = (c_uint64 * n)(*[packet.buffer_ptr for packet in packets])
        self.sizes = (c_uint32 * n)(*[packet.buffer_size for packet in packets])
        self.times, self.serials = (c_int64 * n)(*times), (c_int64 * n)(*serials)
        self.keep = (c_uint8 * n)(*keep)


class NativeSession:
    """One NVDEC decoder. Of two groups of packets, pictures go to the targets of their group."""

    def __init__(self, form: StreamFormat, *, stream: int, kernel: int, bytes: int, subsampled: bool, sync: bool):
        self.format, self.path, self.begun = form, "", False
        self.totals = [0, 0, 0, 0]  # calls, and ns in them, in decoding, in mapping
        self.gpu: Any = None  # with the stream, for events
        self.group = 0  # of the last chunk
        settings = Settings(
            codec=_CODEC_NUMBERS[NVDEC_CODECS[form.codec]], width=form.width, height=form.height,
            bytes=bytes, shift=6 if bytes == 2 else 0, subsampled=subsampled,
            delay=int(os.environ.get("NATIVE_DELAY", "4")), more_surfaces=int(os.environ.get("NATIVE_SURFACES", "6")),
            outputs=int(os.environ.get("NATIVE_OUTPUTS", "2")), whole_packets=form.latency not in ("native", "chunks"),
            in_order=form.codec in ("vp8", "vp9"), synchronize=sync, stream=stream, kernel=kernel,
        )  # fmt: skip
        self.targets, self.pictures, self.result = (Target * 2)(), (Picture * MOST_PICTURES)(), Result()
        text = ctypes.create_string_buffer(256)
        with capture_unsafe():
            self._handle = library().nd_create(ctypes.byref(settings), text, len(text))
        if not self._handle:
            raise InputError(f"the native decoder: {text.value.decode()}")

    def decode(self, packets: Packets, at: int, group: int, flush: bool) -> Result:
        """Decodes packets from number `at` on, until a target is full. See the library."""
        n = packets.count
        shift = ctypes.byref
        with nullcontext() if self.begun else capture_unsafe():
            failed = library().nd_decode(
                self._handle,
                ctypes.cast(shift(packets.data, 8 * at), POINTER(c_uint64)),
                ctypes.cast(shift(packets.sizes, 4 * at), POINTER(c_uint32)),
                ctypes.cast(shift(packets.times, 8 * at), POINTER(c_int64)),
                ctypes.cast(shift(packets.serials, 8 * at), POINTER(c_int64)),
                ctypes.cast(shift(packets.keep, at), POINTER(c_uint8)),
                *(n - at, group, int(flush), self.targets, self.pictures, MOST_PICTURES, ctypes.byref(self.result)),
            )
        result = self.result
        for i, value in enumerate((1, result.total, result.decoding, result.mapping)):
            self.totals[i] += value
        if failed:
            reason = library().nd_error(self._handle).decode()
            raise InputError(f"{self.path}: NVDEC can't decode it ({reason}); use --decode pyav")
        self.begun = self.begun or result.shown > 0
        return result

    def forget(self, group: int) -> None:
        """Forgets the packets of a group whose pictures have not come."""
        library().nd_forget(self._handle, group)

    def close(self) -> None:
        """Destroys the session."""
        handle, self._handle = self._handle, None
        if handle:
            with capture_unsafe():
                library().nd_destroy(handle)
