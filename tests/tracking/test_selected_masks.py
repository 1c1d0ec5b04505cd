"""The masks of some instances alone."""

import numpy as np
import pytest
from numpy.typing import NDArray

from segmentation.frames import Frame, FrameBatch, HostTransfer, MaskedBatch
from segmentation.frames.instances import FrameInstances, Instance
from segmentation.options.effect import Effect
from segmentation.tracking.selected_masks import with_selected_masks

PLANE = np.zeros((4, 4), np.uint8)
BODY, FACE = np.s_[10:40, 10:20], np.s_[10:20, 15:25]  # half of the face is beside the body


def masks(effect: str, *, keeping: bool = False) -> NDArray[np.float32]:
    """Returns the mask (50, 50) for an effect on somebody with a face, of which the mask shows half."""
    mask, label_map = np.zeros((50, 50), np.float32), np.zeros((50, 50), np.uint8)
    mask[BODY], label_map[BODY], label_map[FACE] = 0.9, 1, 2
    person = Instance(label="person", score=1, box=(0.2, 0.2, 0.4, 0.8), id=1, kept=keeping)
    face = Instance(label="face", score=1, box=(0.3, 0.2, 0.5, 0.4), id=2, parent=1, within=1, kept=keeping)
    frames = FrameBatch(frames=(Frame(planes=(PLANE, PLANE, PLANE), pts=0, duration=1),), index=0)
    found = FrameInstances(instances=(person, face), first_map=label_map)
    batch = MaskedBatch(frames=frames, masks=mask[None], instances=(found,))
    shown = with_selected_masks(batch, Effect.parse(effect), 0.5, HostTransfer(), keeping=keeping)
    return np.asarray(shown.masks)[0]


def test_an_effect_on_faces_is_on_all_of_them() -> None:
    left = masks("blur@face")
    assert (left[FACE] < 0.5).all() and (left[25:40, 10:20] > 0.5).all() and (left[:, 30:] == 1).all()


@pytest.mark.parametrize(("effect", "keeping"), [("cutout@person", False), ("mask@person", False), ("blur", True)])
def test_people_are_what_their_mask_shows(effect: str, keeping: bool) -> None:
    shown = masks(effect, keeping=keeping)
    assert (shown[BODY] > 0.5).all() and (shown[10:20, 20:] < 0.5).all()
