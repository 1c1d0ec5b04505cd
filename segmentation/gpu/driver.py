"""Calls of the CUDA driver that only queue work, without giving up Python's lock; events and copies by such calls.

Libraries give the lock up for every call. While ten threads ask for it, getting it back takes longer than queueing: on
an H200's host 0.1 to 0.5 ms, where these calls take 2 to 5 us.
"""

import ctypes
from collections import deque
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from functools import cache
from typing import Any

from cuda.bindings.driver import CUresult

_DRIVER = "libcuda.so.1"
_NOT_READY = int(CUresult.CUDA_ERROR_NOT_READY)
_BLOCKING, _UNTIMED = 1, 2  # CU_EVENT_BLOCKING_SYNC: who waits sleeps; CU_EVENT_DISABLE_TIMING
_BUFFER, _SIZE = 1, 2  # CU_LAUNCH_PARAM_BUFFER_POINTER and _SIZE of cuda.h


class DriverError(RuntimeError):
    """A call of the CUDA driver failed."""


class _Extra(ctypes.Structure):
    """The arguments of a kernel in one piece, as cuLaunchKernel's `extra` takes them."""

    _fields_ = (
        ("buffer_follows", c_void_p),
        ("buffer", c_char_p),
        ("size_follows", c_void_p),
        ("size", POINTER(c_size_t)),
        ("end", c_void_p),
    )


# All return a status. Handles, streams and addresses in device memory are pointers.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuLaunchKernel": (c_void_p, *[c_uint] * 7, *[c_void_p] * 2, POINTER(_Extra)),
    "cuMemcpyDtoDAsync_v2": (c_void_p, c_void_p, c_size_t, c_void_p),
    "cuStreamWaitEvent": (c_void_p, c_void_p, c_uint),
    "cuEventCreate": (POINTER(c_void_p), c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventQuery": (c_void_p,),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
}


@cache
def _library() -> Any:
    library = ctypes.PyDLL(_DRIVER)
    for name, types in _FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = types, c_int
    return library


def _check(status: int, what: str) -> None:
    if status:
        raise DriverError(f"{CUresult(status).name} where {what}")


def launch(
    kernel: int, grid: tuple[int, int, int], block: tuple[int, int], arguments: bytes, size: Any, stream: int, name: str
) -> None:
    """Queues a kernel. `arguments` lie as in C, and `size` points to their length."""
    extra = _Extra(_BUFFER, arguments, _SIZE, size, None)
    status = _library().cuLaunchKernel(kernel, *grid, *block, 1, 0, stream, None, extra)
    if status:
        _check(status, f"the kernel {name} is queued")


def copy(target: int, source: int, size: int, stream: int) -> None:
    """Queues a copy of `size` bytes within device memory."""
    _check(_library().cuMemcpyDtoDAsync_v2(target, source, size, stream), "a copy is queued")


class Event:
    """A point in a stream's work, as `torch.cuda.Event`, of whose methods it has some.

    Making and destroying events stops all who queue something at that moment, so they are used again.
    """

    def __init__(self, spent: deque[int], *, timed: bool = False) -> None:
        """Only `timed` ones have an `elapsed_time`. `spent` has events of this kind and of this thread's current CUDA
        context that nobody refers to any more: one of those is taken, and comes back in the end."""
        self._spent, self._handle = spent, 0
        try:
            self._handle = spent.popleft()
        except IndexError:
            handle = c_void_p()
            flags = _BLOCKING if timed else _BLOCKING | _UNTIMED
            _check(_library().cuEventCreate(byref(handle), flags), "an event is made")
            self._handle = handle.value or 0

    def __del__(self) -> None:
        if self._handle:
            self._spent.append(self._handle)

    def record(self, stream: int) -> None:
        """The point is after all that is queued on the stream now."""
        _check(_library().cuEventRecord(self._handle, stream), "an event is recorded")

    def wait(self, stream: int) -> None:
        """What is queued on the stream from now on waits for it."""
        _check(_library().cuStreamWaitEvent(stream, self._handle, 0), "a stream is to wait")

    def query(self) -> bool:
        """Whether it has passed."""
        status: int = _library().cuEventQuery(self._handle)
        if status not in (0, _NOT_READY):
            _check(status, "an event is asked for")
        return not status

    def synchronize(self) -> None:
        """Waits for it, of course without Python's lock."""
        _check(_waiting()(self._handle), "an event is waited for")

    def elapsed_time(self, end: "Event") -> float:
        """Milliseconds from this one to `end`."""
        time = c_float()
        _check(_library().cuEventElapsedTime(byref(time), self._handle, end._handle), "events are compared")
        return time.value


@cache
def _waiting() -> Any:
    function = ctypes.CDLL(_DRIVER).cuEventSynchronize
    function.argtypes, function.restype = (c_void_p,), c_int
    return function
