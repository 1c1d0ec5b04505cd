"""Processor cores: how many there are to work with, and the priority of encoders on them."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from math import ceil

from segmentation.system.cgroups import cpu_quota


def core_count() -> int:
    """Returns the number of cores that this process may use: of its affinity, and of a container's quota."""
    if not hasattr(os, "sched_getaffinity"):  # macOS
        return os.cpu_count() or 1
    cores, quota = len(os.sched_getaffinity(0)), _quota()
    return cores if quota is None else max(1, min(cores, ceil(quota)))


@cache
def _quota() -> float | None:
    """Returns the quota, read once: that takes a dozen files, and each run of a short clip asks for it twice."""
    return cpu_quota()


def check_threads(count: int) -> None:
    """Raises `RuntimeError` where so many threads more can't be started."""
    done, threads = threading.Event(), list[threading.Thread]()
    try:
        for _ in range(count):
            thread = threading.Thread(target=done.wait)
            thread.start()
            threads.append(thread)
    finally:
        done.set()
        for thread in threads:
            thread.join()


@contextmanager
def kept_scheduling() -> Iterator[None]:
    """Keeps the scheduling policy and priority of this thread while an encoder is opened. The encoder's threads get it.

    For root, SVT-AV1 4.1 gives SCHED_FIFO with priority 99 to its own threads and to the thread that opens it. Threads
    and processes that this thread starts later would inherit that, and leave no core to others.
    """
    if not hasattr(os, "sched_getscheduler"):  # macOS
        yield
        return
    policy, parameters, before = os.sched_getscheduler(0), os.sched_getparam(0), _threads()
    try:
        yield
    finally:
        if (os.sched_getscheduler(0), os.sched_getparam(0)) != (policy, parameters):
            for thread in (_threads() - before) | {threading.get_native_id()}:
                with suppress(ProcessLookupError):  # it has just ended
                    os.sched_setscheduler(thread, policy, parameters)


def _threads() -> set[int]:
    """Returns the ids of this process's threads; none where /proc is not mounted."""
    with suppress(FileNotFoundError):
        return set(map(int, os.listdir("/proc/self/task")))
    return set()
