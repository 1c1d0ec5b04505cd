"""Threads that find masks at the same time: which of them wait for each other."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from drawn import batch_of

from segmentation.flow.threads import GpuTurn
from segmentation.flow.timing import StageClock
from segmentation.frames import FrameBatch, HostTransfer, Memory
from segmentation.stages.mask_source import NetworkMasks

TIMEOUT = 240.0  # seconds: far more than anything here takes
PLANE = np.zeros((2, 2), np.uint8)


class Preprocess:
    """Preprocess with one buffer, on a GPU for which the host stands in."""

    memory: Memory = "cuda"

    def __init__(self) -> None:
        self.inside = self.most_inside = 0

    def __call__(self, frames: FrameBatch) -> Any:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        time.sleep(0.001)
        self.inside -= 1
        return np.zeros((1, 3, 2, 2), np.float32)


def masks_of(preprocess: Preprocess, turn: GpuTurn) -> NetworkMasks:
    parts: dict[str, Any] = {"preprocess": preprocess, "infer": preprocess, "smoothing": None, "kept_memory": "cuda"}
    return NetworkMasks(**parts, transfer=HostTransfer(), clock=StageClock(), turn=turn)


def test_a_run_prepares_its_frames_while_another_one_queues_its_network() -> None:
    turn, preprocess = GpuTurn(), Preprocess()
    with ThreadPoolExecutor(1) as pool, turn.of(preprocess):
        begun = pool.submit(masks_of(preprocess, turn).prepared, batch_of((PLANE,) * 3))
        assert begun.result(TIMEOUT)[1].shape == (1, 3, 2, 2)


def test_threads_of_one_run_share_its_buffer_one_after_the_other() -> None:
    preprocess, ready = Preprocess(), threading.Barrier(4)
    masks = masks_of(preprocess, GpuTurn())

    def prepare() -> None:
        ready.wait(TIMEOUT)
        for _ in range(10):
            masks.prepared(batch_of((PLANE,) * 3))

    with ThreadPoolExecutor(4) as pool:
        for begun in [pool.submit(prepare) for _ in range(4)]:
            begun.result(TIMEOUT)
    assert preprocess.most_inside == 1
