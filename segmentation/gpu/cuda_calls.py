"""Calls of the CUDA driver. Those that only queue work keep the GIL: launches, copies, events.

Libraries release the GIL in every call. While many threads compete for the GIL, a thread then waits many times longer
for it than the call takes.
"""

import ctypes
from collections import deque
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from functools import cache

from cuda.bindings.driver import CUresult

_DRIVER = "libcuda.so.1"
_NOT_READY = int(CUresult.CUDA_ERROR_NOT_READY)
_BLOCKING, _UNTIMED = 1, 2  # CU_EVENT_BLOCKING_SYNC: a waiting thread sleeps; CU_EVENT_DISABLE_TIMING
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: the stream does not wait for the default one
_BUFFER, _SIZE = 1, 2  # CU_LAUNCH_PARAM_BUFFER_POINTER and _SIZE of cuda.h


class DriverError(RuntimeError):
    """A call of the CUDA driver failed."""


class _Extra(ctypes.Structure):
    """The arguments of a kernel in one buffer: the `extra` of cuLaunchKernel."""

    _fields_ = (
        ("buffer_follows", c_void_p),
        ("buffer", c_char_p),
        ("size_follows", c_void_p),
        ("size", POINTER(c_size_t)),
        ("end", c_void_p),
    )


# All return a status. Handles, streams and addresses in device memory are pointers.
_FUNCTIONS: dict[str, tuple[type, ...]] = {
    "cuCtxGetCurrent": (POINTER(c_void_p),),
    "cuCtxSetCurrent": (c_void_p,),
    "cuLaunchKernel": (c_void_p, *[c_uint] * 7, *[c_void_p] * 2, POINTER(_Extra)),
    "cuMemcpyAsync": (c_void_p, c_void_p, c_size_t, c_void_p),
    "cuStreamWaitEvent": (c_void_p, c_void_p, c_uint),
    "cuEventCreate": (POINTER(c_void_p), c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventQuery": (c_void_p,),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
}
_LONG_FUNCTIONS: dict[str, tuple[type, ...]] = {
    "cuEventSynchronize": (c_void_p,),
    "cuStreamCreate": (POINTER(c_void_p), c_uint),
    "cuLibraryLoadData": (POINTER(c_void_p), c_char_p, c_void_p, c_void_p, c_uint, c_void_p, c_void_p, c_uint),
    "cuLibraryGetKernel": (POINTER(c_void_p), c_void_p, c_char_p),
}


@cache
def _library() -> ctypes.PyDLL:
    """Returns the driver, loaded so that its calls keep the GIL."""
    library = ctypes.PyDLL(_DRIVER)
    for name, types in _FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = types, c_int
    return library


def _check(status: int, what: str) -> None:
    """Raises `DriverError` for a status other than success."""
    if status:
        raise DriverError(f"{CUresult(status).name} where {what}")


def current_context() -> int:
    """Returns the handle of the calling thread's current context."""
    handle = c_void_p()
    _check(_library().cuCtxGetCurrent(byref(handle)), "a context is asked for")
    return handle.value or 0


def make_current(handle: int) -> None:
    """Makes a context the calling thread's current one."""
    _check(_library().cuCtxSetCurrent(handle), "a context is entered")


def launch(
    kernel: int,
    grid: tuple[int, int, int],
    block: tuple[int, int],
    arguments: bytes,
    size: "ctypes._Pointer[c_size_t]",
    stream: int,
    name: str,
) -> None:
    """Queues a kernel. `arguments` have the layout of C, and `size` points to their length in bytes."""
    extra = _Extra(_BUFFER, arguments, _SIZE, size, None)
    status = _library().cuLaunchKernel(kernel, *grid, *block, 1, 0, stream, None, extra)
    if status:
        _check(status, f"the kernel {name} is queued")


def copy(target: int, source: int, size: int, stream: int) -> None:
    """Queues a copy of `size` bytes between addresses in device memory or in page-locked memory of the host."""
    _check(_library().cuMemcpyAsync(target, source, size, stream), "a copy is queued")


class Event:
    """A point in a stream's work, with some methods of `torch.cuda.Event`.

    Creating or destroying an event makes all threads wait that queue work at that moment. So handles are used again.
    """

    def __init__(self, spare: deque[int], *, timed: bool = False) -> None:
        """`spare` has unused handles of this kind and of the thread's current CUDA context, and gets this one back.

        Only `timed` events have an `elapsed_time`.
        """
        self._spare, self._handle = spare, 0
        try:
            self._handle = spare.popleft()
        except IndexError:
            handle = c_void_p()
            flags = _BLOCKING if timed else _BLOCKING | _UNTIMED
            _check(_library().cuEventCreate(byref(handle), flags), "an event is made")
            self._handle = handle.value or 0

    def __del__(self) -> None:
        if self._handle:
            self._spare.append(self._handle)

    def record(self, stream: int) -> None:
        """Puts the event behind all work that is on the stream now."""
        _check(_library().cuEventRecord(self._handle, stream), "an event is recorded")

    def wait(self, stream: int) -> None:
        """Makes work that is queued on the stream from now on wait for the event."""
        _check(_library().cuStreamWaitEvent(stream, self._handle, 0), "a stream is to wait")

    def query(self) -> bool:
        """Returns whether the event has passed."""
        status: int = _library().cuEventQuery(self._handle)
        if status not in (0, _NOT_READY):
            _check(status, "an event is asked for")
        return not status

    def synchronize(self) -> None:
        """Blocks the calling thread until the event has passed. Releases the GIL, unless it has."""
        if not self.query():
            self._wait()

    def _wait(self) -> None:
        _check(_patient().cuEventSynchronize(self._handle), "an event is waited for")

    def elapsed_time(self, end: "Event") -> float:
        """Returns the milliseconds from this event to `end`."""
        time = c_float()
        _check(_library().cuEventElapsedTime(byref(time), self._handle, end._handle), "events are compared")
        return time.value


@cache
def _patient() -> ctypes.CDLL:
    """Returns the driver, loaded so that its calls release the GIL: those that wait or work long."""
    library = ctypes.CDLL(_DRIVER)
    for name, types in _LONG_FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = types, c_int
    return library


def make_stream() -> int:
    """Returns a stream of the thread's current CUDA context, which is never destroyed."""
    stream = c_void_p()
    _check(_patient().cuStreamCreate(byref(stream), _NON_BLOCKING), "a stream is made")
    return stream.value or 0


def load_library(code: bytes) -> int:
    """Loads the machine code of kernels, for all contexts, and returns the driver's CUlibrary."""
    library = c_void_p()
    _check(_patient().cuLibraryLoadData(byref(library), code, None, None, 0, None, None, 0), "kernels are loaded")
    return library.value or 0


def kernel_of(library: int, name: str) -> int:
    """Returns the CUkernel of that name, which is launched as a CUfunction is."""
    kernel = c_void_p()
    _check(_patient().cuLibraryGetKernel(byref(kernel), library, name.encode()), f"the kernel {name} is looked up")
    return kernel.value or 0
