"""Encoders do not change the priority of threads."""

import os
import threading
from fractions import Fraction

import av

from segmentation.system.cores import kept_scheduling


def opened() -> av.VideoCodecContext:
    """An AV1 encoder that is ready."""
    context = av.CodecContext.create("libsvtav1", "w")
    context.width, context.height, context.pix_fmt, context.time_base = 64, 64, "yuv420p", Fraction(1, 30)
    context.open()
    return context


def policies() -> set[int]:
    return {os.sched_getscheduler(int(thread)) for thread in os.listdir("/proc/self/task")}


def test_an_encoder_leaves_priorities_as_they_are() -> None:
    """SVT-AV1 changes them for root. In a thread of its own, which ends with them."""
    found: list[tuple[int, int, set[int]]] = []

    def work() -> None:
        before = os.sched_getscheduler(0)
        with kept_scheduling():
            encoder = opened()
        found.append((before, os.sched_getscheduler(0), policies()))
        del encoder

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    ((before, after, everyones),) = found
    assert after == before and everyones == {before}
