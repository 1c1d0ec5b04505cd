"""Freed memory is given back, and threads share arenas."""

import subprocess
import sys
from pipes import ENVIRONMENT

import pytest

# Blocks below malloc's threshold for maps of their own, each second one freed: no arena shrinks by itself.
FREES = """
import os
from segmentation.system.heap import trim_heap

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

blocks = [bytearray(b"x" * 60_000) for _ in range(2000)]
del blocks[::2]
before = resident()
trim_heap()
print(before - resident())
"""


def test_what_was_freed_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", FREES], capture_output=True, text=True, timeout=240, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 40e6


# Blocks below the threshold again, in threads that live at the same time.
THREADS = """
import ctypes, threading
from segmentation.system.heap import limit_malloc_arenas

limit_malloc_arenas({count})
together = threading.Barrier(12)

def work():
    together.wait()
    kept.append([bytearray(5000) for _ in range(100)])
    together.wait()

kept = []
threads = [threading.Thread(target=work) for _ in range(12)]
for thread in threads: thread.start()
for thread in threads: thread.join()
ctypes.CDLL(None).malloc_stats()
"""


@pytest.mark.parametrize("count", [1, 3])
def test_threads_share_so_many_arenas(count: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", THREADS.format(count=count)],
        capture_output=True,
        text=True,
        timeout=240,
        env=ENVIRONMENT,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Arena") == count
