"""The processor's cores: how many there are to work with, and that encoders do not take them from others."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def core_count() -> int:
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS


@contextmanager
def kept_scheduling() -> Iterator[None]:
    """Opens an encoder without a change of priorities: this thread's stays, and threads that begin meanwhile get it.

    Where it may, as for root, SVT-AV1 4.1 makes its own threads and the one that opens it real-time threads of the
    highest priority, which all later threads and processes inherit. On few cores everything else then stands still.
    """
    if not hasattr(os, "sched_getscheduler"):  # macOS
        yield
        return
    policy, parameters, before = os.sched_getscheduler(0), os.sched_getparam(0), _threads()
    try:
        yield
    finally:
        if os.sched_getscheduler(0) != policy:
            for thread in (_threads() - before) | {threading.get_native_id()}:
                with suppress(ProcessLookupError):  # it has just ended
                    os.sched_setscheduler(thread, policy, parameters)


def _threads() -> set[int]:
    """Returns the ids of this process's threads."""
    return {int(entry.name) for entry in Path("/proc/self/task").iterdir()}
