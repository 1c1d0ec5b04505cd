"""Covers are the same on a GPU, where no mask goes to the host or comes from there for them."""

from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest
from drawn import make_info
from mask_sides import SIDES, gpu_of
from numpy.typing import NDArray
from videos import video_info

from segmentation.frames import FORMATS, Color, Frame, FrameBatch, HostTransfer, MaskedBatch
from segmentation.frames.instances import FrameInstances, Instance
from segmentation.options.config import Config
from segmentation.tracking.anonymize.cover import CoverBoxes, CoverMasks, cover_alone
from segmentation.tracking.anonymize.several import CoverPeople, with_people

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

INFO = video_info()
COUNT, SIZE = 11, (96, 170)


def transfer_of(side: str) -> Any:
    if side == "gpu":
        from segmentation.gpu.transfer import GpuTransfer as Transfer
    else:
        from host_kernels import host_stages

        Transfer = host_stages().GpuTransfer
    device = gpu_of(side)
    device.enter()
    return Transfer(device, make_info(64, 48, Color()), FORMATS["yuv420p"], COUNT)


def noise(count: int, size: tuple[int, int], seed: int) -> NDArray[np.float32]:
    """Returns soft masks, of which one row in seven has a NaN."""
    generator = np.random.default_rng(seed)
    small = generator.random((count, 8, 12), np.float32) ** 4
    masks = np.stack([cv2.resize(one, size[::-1], interpolation=cv2.INTER_LINEAR) for one in small])
    masks[3::7, 5, 6] = np.nan
    return masks.astype(np.float32)


def batches(masks: NDArray[np.float32], side: str | None, length: int) -> list[MaskedBatch]:
    made = []
    for first in range(0, len(masks), length):
        part = masks[first : first + length]
        frames = tuple(Frame(planes=(), pts=first + row, duration=1) for row in range(len(part)))
        there: Any = part.copy() if side is None else torch.from_numpy(part.copy()).to(gpu_of(side).device)
        made.append(MaskedBatch(frames=FrameBatch(frames=frames, index=first), masks=there))
    return finished(made)


def finished(made: Any) -> Any:
    """Returns what was made, once it is there: it is read on another stream than the one that makes it."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return made


def assert_alike(there: Any, here: Any) -> None:
    """Masks are the same. Of one with a NaN only that it has one counts: all of its frame is covered."""
    there, here = (one if isinstance(one, np.ndarray) else one.cpu().numpy() for one in (there, here))
    unknown = np.isnan(here).any(axis=(1, 2))
    assert np.isnan(there).any(axis=(1, 2)).tolist() == unknown.tolist() and not unknown.all()
    np.testing.assert_allclose(there[~unknown], here[~unknown], atol=1e-6)


@pytest.mark.parametrize("length", [1, 3, 8])
@pytest.mark.parametrize("side", SIDES)
def test_masks_of_people_grow_alike(side: str, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    transfer, masks = transfer_of(side), noise(COUNT, SIZE, 1)
    here = [batch.masks for batch in CoverMasks(INFO, HostTransfer())(iter(batches(masks, None, length)))]
    monkeypatch.setattr(transfer._gpu, "download", None)
    there = finished([batch.masks for batch in CoverMasks(INFO, transfer)(iter(batches(masks, side, length)))])
    assert all(isinstance(one, torch.Tensor) for one in there)
    assert_alike(torch.cat(there), np.concatenate(here))
    picture = next(iter(batches(masks[:2], side, 2)))
    alone = finished(cover_alone(picture, transfer).masks)
    assert_alike(alone, cover_alone(*batches(masks[:2], None, 2), HostTransfer()).masks)


@pytest.mark.parametrize("size", [SIZE, (61, 240), (360, 640)])
@pytest.mark.parametrize("side", SIDES)
def test_people_join_other_covers_alike(side: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    transfer, people = transfer_of(side), noise(COUNT, SIZE, 2)
    covers = (noise(COUNT, size, 3)[::-1] > 0.4).astype(np.float32)

    def both(side: str | None) -> tuple[MaskedBatch, MaskedBatch]:
        (one,), (other,) = batches(covers, side, COUNT), batches(people, side, COUNT)
        return one, other

    here = with_people(*both(None), HostTransfer()).masks
    monkeypatch.setattr(transfer._gpu, "download", None)
    there = finished(with_people(*both(side), transfer).masks)
    assert isinstance(there, torch.Tensor)
    known = ~np.isnan(here).any(axis=(1, 2))
    assert (there.isnan().any(2).any(1).cpu().numpy() == ~known).all() and known.sum() == COUNT - 2
    assert (there.cpu().numpy()[known] != here[known]).mean() < 1e-4, "values at the threshold are rounded"
    on_host = replace(both(side)[1], masks=people)  # a network without an implementation on the GPU
    again = finished(with_people(both(side)[0], on_host, transfer).masks)
    np.testing.assert_array_equal(again.cpu(), there.cpu())


@pytest.mark.parametrize("side", SIDES)
def test_the_step_takes_people_from_the_second_network(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    transfer, people, config = transfer_of(side), noise(COUNT, SIZE, 4), Config(anonymize="faces,people")
    nobody = np.zeros_like(people)

    def covered(side: str | None, transfer: Any) -> list[Any]:
        pairs = zip(batches(nobody, side, 4), batches(people, side, 4), strict=True)
        step = CoverPeople(config, INFO, transfer)
        return finished([batch.masks for batch in step(replace(one, further=(other,)) for one, other in pairs)])

    here = covered(None, HostTransfer())
    monkeypatch.setattr(transfer._gpu, "download", None)
    assert_alike(torch.cat(covered(side, transfer)), np.concatenate(here))


@pytest.mark.parametrize("side", SIDES)
def test_boxes_are_covered_alike(side: str) -> None:
    transfer, dice = transfer_of(side), np.random.default_rng(5)
    corners, sides = dice.uniform(-0.1, 1, (COUNT, 3, 2)), dice.uniform(0.01, 0.3, (COUNT, 3, 2))
    boxes = np.concatenate([corners, corners + sides], axis=2).tolist()
    found = [
        tuple(
            Instance(label="face", score=0.9, box=tuple(box), id=3 * row + k) for k, box in enumerate(some[: row % 4])
        )
        for row, some in enumerate(boxes)
    ]
    nothing = np.zeros(SIZE, np.uint8)

    def covered(side: str | None, *options: Any) -> list[Any]:
        made = []
        for batch in batches(np.zeros((COUNT, *SIZE), np.float32), side, 4):
            part = found[batch.frames.index : batch.frames.index + len(batch)]
            things = [FrameInstances(instances=one, first_map=nothing, unknown=one == found[5]) for one in part]
            made.append(replace(batch, instances=tuple(things)))
        return finished([batch.masks for batch in CoverBoxes(INFO, *options)(iter(made))])

    here = np.concatenate(covered(None, HostTransfer()))
    there = covered(side, transfer, lambda one, time: True, 1.0, transfer._gpu)
    assert all(isinstance(one, torch.Tensor) for one in there)
    there = torch.cat(there).cpu().numpy()
    assert np.isnan(here[5]).all() and 0 < (here == 1).mean() < 0.9
    np.testing.assert_array_equal(there, here)
