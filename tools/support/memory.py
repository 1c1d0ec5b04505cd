"""Memory of this process: what is in use, and what the C library keeps of freed memory. For Linux with glibc."""

import ctypes
import gc
import os
import sys
from pathlib import Path

_FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class _MallInfo2(ctypes.Structure):
    """See mallinfo(3)."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in _FIELDS)


_libc = ctypes.CDLL("libc.so.6")
_libc.mallinfo2.restype = _MallInfo2


def memory_held() -> dict[str, float]:
    """Returns megabytes of this process, and the number of its Python objects.

    `megabytes` are resident, of which `of_files` are pages of libraries. `in_use` are allocated by malloc, in all
    arenas and mapped blocks. `kept_free` are freed and kept by malloc, also those parts that the kernel has taken back.
    `python_blocks` are Python's small objects, which lie in memory of their own.
    """
    pages, of_files = map(int, Path("/proc/self/statm").read_text().split()[1:3])
    info = _libc.mallinfo2()
    return {
        "megabytes": pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        "of_files": of_files * os.sysconf("SC_PAGE_SIZE") / 1e6,
        "in_use": (info.uordblks + info.hblkhd) / 1e6,
        "kept_free": info.fordblks / 1e6,
        "python_blocks": sys.getallocatedblocks(),
    }


def given_back() -> dict[str, float]:
    """Returns what is held once garbage is collected and the C library has given back what it can."""
    gc.collect()
    _libc.malloc_trim(0)
    return memory_held()
