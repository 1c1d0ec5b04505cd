"""Runs the command line, and the programs beside it.

Functions import what takes time: until a program has begun, Ctrl-C prints a traceback.
"""

import os
import signal
import sys
from contextlib import suppress
from functools import partial

_SHOWN = {"-h", "--help", "--help-all", "--version"}  # which need no library of the stages


def start() -> None:
    """Imports the program and runs it, then ends the process."""
    prepare()
    import gc

    gc.disable()  # modules are no garbage: to look for some takes a sixth of the time in which they load
    try:
        if sys.argv[1:2] == ["doctor"]:  # before the libraries, which may be what is missing
            from segmentation.cli.doctor import main

            sys.exit(main(sys.argv[2:]))
        if sys.argv[1:2] == ["serve"]:
            from segmentation.cli.serve import main as serve

            gc.enable()
            sys.exit(serve(sys.argv[2:]))
        if not _SHOWN.isdisjoint(sys.argv):
            from segmentation.cli.arguments import show

            if code := show():
                sys.exit(code)
        begin_processes()
        begin_driver()
        from segmentation.cli.main import command
    except (ImportError, MemoryError, OSError) as exc:  # one is missing, or memory or descriptors are used up
        sys.exit(_refused("segmentation", exc))
    gc.freeze()
    gc.enable()
    command()


def _start_other(program: str, module: str) -> None:
    """Imports another program, which `main` of `module` runs, and ends the process with its exit code."""
    prepare()
    from importlib import import_module

    try:
        main = import_module(module).main
    except (ImportError, MemoryError, OSError) as exc:
        sys.exit(_refused(program, exc))
    sys.exit(main())


start_build = partial(_start_other, "segmentation-build", "segmentation.cli.build_engine")
start_clips = partial(_start_other, "segmentation-clips", "segmentation.cli.clips")
start_models = partial(_start_other, "segmentation-models", "segmentation.cli.networks.fetch")
start_pieces = partial(_start_other, "segmentation-pieces", "segmentation.cli.pieces")


def _refused(program: str, exc: Exception) -> int:
    """Says that a library can't be loaded; returns the exit code."""
    text = " ".join(str(exc).split()) or "memory is full"
    print(f"{program}: error: a library can't be loaded ({text}); see segmentation doctor", file=sys.stderr)
    return 3


def prepare() -> None:
    """Makes the process ready for the imports."""
    # While libraries are imported there is nothing to finish: Ctrl-C ends the process, without a traceback.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    hold_descriptors()
    # Else NumPy and OpenCV start a thread each for every core, which spin, and print lines where they can't.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def hold_descriptors() -> None:
    """Opens the standard descriptors that the parent process has closed, on nothing.

    Files would get their numbers, and libraries that print to stderr would write into a video.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free


def begin_processes() -> None:
    """Starts the process that forks others, if the arguments ask for several: it imports for as long as this one."""
    import re

    found = re.search(r"--(?:workers[ =](?:local|auto)|(processes)[ =](?:[2-9]|\d\d))", " ".join(sys.argv))
    if found is not None and hasattr(os, "memfd_create"):  # on Linux
        from segmentation.system.fork_server import ForkServer

        ForkServer.start_early("segmentation.sessions.process_worker" if found[1] else "segmentation.scale.worker")


def begin_driver() -> None:
    """Starts a GPU's driver on a thread, beside the imports, if this process may use one, or count them for workers.

    That takes a quarter of a second, without the GIL. Whoever asks the driver next waits for what is left of it.
    """
    import re
    import threading

    if not re.search(r"--baseline\b|--device[ =](?!cuda)", " ".join(sys.argv)):
        with suppress(RuntimeError):  # no thread can be started, as the run will say
            threading.Thread(target=_start_driver, name="driver").start()


def _start_driver() -> None:
    import ctypes

    with suppress(OSError, AttributeError):  # there is none
        ctypes.CDLL("libcuda.so.1").cuInit(0)


if __name__ == "__main__":
    start()
