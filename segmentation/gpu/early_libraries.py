"""Loads the libraries of a GPU on a thread, while Python imports the program. Imports nothing but Python's own."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

DRIVER = "libcuda.so.1"
# The first one leads to CUDA's libraries, and PyTorch loads it first too, for all who come after.
_OF_TORCH = ("libtorch_global_deps.so", "libc10.so", "libtorch_cpu.so", "libc10_cuda.so", "libtorch_cuda.so")


def pin_by_threads() -> None:
    """Lets PyTorch pin memory on several threads; its libraries read that when they are loaded.

    By default one thread pins it, a second for each few gigabytes.
    """
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "pinned_use_cuda_host_register:True,pinned_num_register_threads:8")


def begin_loading() -> threading.Event:
    """Starts the driver on a thread, which loads PyTorch's libraries where there is a GPU once the event is set.

    Both take a third of a second or more. Failures are left to those who load them later, and report them. A process
    that ends meanwhile waits for the thread: the end of libraries that are being loaded is not defined.
    """
    pin_by_threads()
    begin = threading.Event()
    with suppress(RuntimeError):  # no thread can be started, as the run will say
        threading.Thread(target=_load, args=(begin,), name="early libraries").start()
    return begin


def _load(begin: threading.Event) -> None:
    spec, count = find_spec("torch"), ctypes.c_int()
    if sys.platform != "linux" or spec is None or spec.origin is None or not _dlopen(DRIVER, os.RTLD_NOW):
        return
    cuda = ctypes.CDLL(DRIVER)
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return
    begin.wait()
    folder = Path(spec.origin).parent / "lib"
    for name in _OF_TORCH:
        seen_by_all = os.RTLD_GLOBAL if name == _OF_TORCH[0] else os.RTLD_LOCAL
        ended = not threading.main_thread().is_alive()  # a wrong option's process waits for one library, not for all
        if ended or not _dlopen(str(folder / name), os.RTLD_NOW | seen_by_all):
            return


def _dlopen(name: str, mode: int) -> int | None:
    """Loads a library without the GIL, which `ctypes.CDLL` keeps meanwhile. Returns its handle, `None` for none."""
    dlopen = ctypes.CDLL(None).dlopen
    dlopen.restype, dlopen.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
    handle: int | None = dlopen(os.fsencode(name), mode)
    return handle
