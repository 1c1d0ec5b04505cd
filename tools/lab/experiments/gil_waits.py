"""Counts which calls of a Python program give the GIL up, in all of its threads.

    python tools/lab/experiments/gil_waits.py --after 26 --seconds 6 \\
        tools/lab/experiments/streams.py live --streams 8 --size 1920x1080 --fps 30 --no-video --seconds 26

A library in front of `pthread_cond_signal` counts for each thread how often CPython gives the lock up and takes it, and
a profiler reads the count at each call and return. So the program is slower than without. Counts are for each frame
that has gone through a run of the package, else of the whole time. For Linux on x86-64, with a C compiler.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import runpy
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))  # so that a checkout works without being installed

_SOURCE = Path(__file__).parent / "gil" / "count.c"
_LIBRARY = "GIL_COUNT"  # variable: the library, in the process that is measured
_SIGNALS = 2  # for each time: the lock is given up, and taken again


class Counts:
    """How often each call has given the GIL up while `on` is set."""

    def __init__(self) -> None:
        self.found: Counter[tuple[str, str]] = Counter()  # by kind of thread, and call
        self.on = False
        self._local = threading.local()
        self._count = ctypes.PyDLL(None).gil_count  # a call that keeps the GIL
        self._count.restype = ctypes.c_long

    def profile(self, frame: FrameType, event: str, arg: Any) -> None:
        """See `sys.setprofile`."""
        if not self.on:
            self._local.last = None
            return
        last = getattr(self._local, "last", None)
        if last is not None and (more := self._count() - last):
            kind = re.sub(r"-?\d.*", "", threading.current_thread().name)
            self.found[kind, _named(frame, event, arg)] += more
        self._local.last = self._count()


def _named(frame: FrameType, event: str, arg: Any) -> str:
    """Names what has just ended, or what came before a call."""
    place = Path(frame.f_code.co_filename)
    line = f"{place.parent.name}/{place.name}:{frame.f_lineno}"
    if event.startswith("c_") and event != "c_call":
        return f"{line} {getattr(arg, '__qualname__', arg)}"
    return f"{line} {'return of' if event == 'return' else 'before a call in'} {frame.f_code.co_qualname}"


def measured(arguments: argparse.Namespace) -> None:
    """Runs the program in this process, and prints the counts."""
    from segmentation.pipeline.run import Run

    counts, frames, written = Counts(), 0, 0
    original = Run._count

    def counted(run: Run, batch: Any) -> None:
        nonlocal written
        written += len(batch)
        original(run, batch)

    def watch() -> None:
        nonlocal frames
        time.sleep(arguments.after)
        begin, counts.on = written, True
        time.sleep(arguments.seconds)
        counts.on, frames = False, written - begin

    Run._count = counted  # type: ignore[method-assign]
    threading.Thread(target=watch, daemon=True).start()  # is not profiled
    threading.setprofile(counts.profile)
    sys.argv = [arguments.program, *arguments.options]
    sys.path.insert(0, str(Path(arguments.program).parent))
    try:
        runpy.run_path(arguments.program, run_name="__main__")
    finally:
        each = _SIGNALS * max(1, frames)
        print(f"{frames} frames, {counts.found.total() / each:.2f} each")
        for (kind, call), number in counts.found.most_common(arguments.rows):
            print(f"{number / each:8.2f}  {kind[:24]:24} {call}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--after", type=float, default=5.0, help="seconds from the beginning on (%(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds that are counted (%(default)s)")
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("program")
    parser.add_argument("options", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if _LIBRARY in os.environ:
        measured(arguments)
        return
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "count.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, _SOURCE, "-ldl"], check=True)
        environment = os.environ | {"LD_PRELOAD": str(library), _LIBRARY: "1"}
        sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment).returncode)


if __name__ == "__main__":
    main()
