"""Freed memory is given back."""

import subprocess
import sys
from pipes import ENVIRONMENT

# Blocks below malloc's threshold for maps of their own, each second one freed: no arena shrinks by itself.
FREES = """
import os
from segmentation.heap import trim_heap

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

blocks = [bytearray(b"x" * 60_000) for _ in range(2000)]
del blocks[::2]
before = resident()
trim_heap()
print(before - resident())
"""


def test_what_was_freed_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", FREES], capture_output=True, text=True, timeout=60, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 40e6
