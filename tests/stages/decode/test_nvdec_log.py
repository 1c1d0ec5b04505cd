"""Damaged pictures that NVDEC's library tells of by C's printf, which any program may call in its place."""

import platform
import subprocess
import sys
from pipes import ENVIRONMENT

import pytest

PROGRAM = """
import ctypes
import threading

from segmentation.stages.decode.nvdec_log import damage_log

libc = ctypes.CDLL(None)  # lets go of the GIL, as the library does
libc.printf(b"before\\n")
log = damage_log()

def work():
    for picture in range(200):
        libc.printf(b"Decode Error occurred for picture %d\\n", ctypes.c_int(picture))

threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
with_the_gil = ctypes.PyDLL(None)
for _ in range(100):
    with_the_gil.puts(b"other text")
for thread in threads:
    thread.join()
count = log.count()
print(f"{count=}", flush=True)
libc.puts(b"after")
libc.printf(b"to the end")
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="C's standard output can be led elsewhere with glibc")
def test_damage_is_counted_and_all_else_passes() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=240, check=True)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["before", *["other text"] * 100, "count=800", "after", "to the end"]


CLOSED = """
import ctypes, os, sys
from segmentation.stages.decode.nvdec_log import damage_log

log = damage_log()
os.close(1)
libc = ctypes.CDLL(None)
libc.puts(b"other text")
libc.puts(b"Decode Error occurred for picture 1")
sys.stderr.write(f"{log.count()}")
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="C's standard output can be led elsewhere with glibc")
def test_damage_is_counted_where_nobody_reads() -> None:
    command = [sys.executable, "-c", CLOSED]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=240, check=True)
    assert (done.stdout, done.stderr) == ("", "1")
