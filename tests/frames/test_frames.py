"""What stages hand to each other."""

from typing import Any

import numpy as np

from segmentation.frames import Frame, FrameBatch


class Pooled(tuple[Any, ...]):
    """Planes whose memory is given to others when nobody holds them any more, as that of NVDEC's batches is."""

    def __del__(self) -> None:
        for plane in self:
            plane[:] = 0


def test_a_part_of_a_batch_keeps_the_memory_of_all() -> None:
    pictures = np.arange(1, 6, dtype=np.uint8).repeat(4).reshape(5, 2, 2)
    frames = tuple(Frame(planes=(), pts=pts, duration=1) for pts in range(5))  # type: ignore[arg-type]
    batch = FrameBatch(frames=frames, index=32, planes=Pooled(pictures for _ in range(3)))
    part = batch.part(1, 3)
    del batch
    assert [frame.pts for frame in part.frames] == [1, 2] and part.index == 33
    assert [plane[:, 0, 0].tolist() for plane in part.planes] == [[2, 3]] * 3
    del part
    assert not pictures.any()


def test_a_part_of_a_batch_on_the_host_has_no_planes_of_its_own() -> None:
    frames = tuple(Frame(planes=(), pts=pts, duration=1) for pts in range(3))  # type: ignore[arg-type]
    batch = FrameBatch(frames=frames, index=0)
    assert batch.part(0, 3) is batch
    assert not batch.part(2, 3).planes and batch.part(2, 3).memory == "host"
