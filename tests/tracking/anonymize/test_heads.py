"""Heads in masks of people: where they are, how large, and whose."""

from collections.abc import Sequence
from dataclasses import replace

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from videos import video_info

from segmentation import Config, ConfigError
from segmentation.frames import Frame, FrameBatch, HostTransfer, MaskedBatch
from segmentation.frames.instances import Box, FrameInstances, Instance
from segmentation.options.anonymize import Anonymize
from segmentation.tracking.anonymize.doubts import DoubtFinder
from segmentation.tracking.anonymize.heads import heads_in
from segmentation.tracking.anonymize.several import BareHeads, CoverPeople, JoinBoxes
from segmentation.tracking.instance_steps import make_instance_steps

SIZE = 192, 336  # height, width
INFO = video_info()


def people(*columns: int, head: int = 10) -> NDArray[np.float32]:
    """Standing people, each with a head of twice `head` pixels a side, a neck and a body to the lower edge."""
    mask = np.zeros(SIZE, np.uint8)
    for column in columns:
        cv2.ellipse(mask, ((column, 40), (2.0 * head, 2.6 * head), 0.0), 1, cv2.FILLED)
        cv2.rectangle(mask, (column - head // 2, 50), (column + head // 2, 60), 1, cv2.FILLED)
        cv2.rectangle(mask, (column - 2 * head, 58), (column + 2 * head, 191), 1, cv2.FILLED)
    return mask.astype(np.float32)


def pixels(box: Box) -> list[int]:
    return [round(side * length) for side, length in zip(box, (*SIZE[::-1], *SIZE[::-1]), strict=True)]


def test_a_head_is_the_top_of_a_person_and_not_the_body() -> None:
    (box,) = heads_in(people(100), [])
    assert pixels(box) == pytest.approx([90, 27, 110, 53], abs=3)


def test_people_in_one_shape_have_a_head_each() -> None:
    boxes = sorted(pixels(box) for box in heads_in(people(100, 135, 170), []))
    assert [(left + right) // 2 for left, _, right, _ in boxes] == pytest.approx([100, 135, 170], abs=2)


def test_whoever_has_a_face_has_no_other_head_and_faces_size_heads() -> None:
    face: Box = (93 / 336, 35 / 192, 107 / 336, 52 / 192)
    assert heads_in(people(100), [face]) == []
    (box,) = heads_in(people(100, 220, head=16), [face])
    assert box[3] - box[1] <= 1.5 * (face[3] - face[1]) + 1e-6


def test_specks_are_nobody() -> None:
    mask = np.zeros(SIZE, np.float32)
    mask[10:16, 10:16] = 1
    assert heads_in(mask, []) == []


def batch(masks: NDArray[np.float32], faces: Sequence[Instance] = ()) -> MaskedBatch:
    """A batch in which one network found `faces` and another one these masks of people."""
    frames = FrameBatch(frames=tuple(Frame(planes=(), pts=i, duration=1) for i in range(len(masks))), index=0)
    found = FrameInstances(instances=tuple(faces), first_map=np.zeros((90, 160), np.uint8))
    return MaskedBatch(
        frames=frames,
        masks=np.zeros((len(masks), 90, 160), np.float32),
        instances=(found,) * len(masks),
        further=(MaskedBatch(frames=frames, masks=masks),),
    )


def test_heads_join_the_faces_where_they_are_to_be_covered() -> None:
    (joined,) = JoinBoxes(Config(anonymize="heads"), HostTransfer())(iter([batch(people(100)[None])]))
    assert joined.instances
    (head,) = joined.instances[0].instances
    assert head.label == "head" and joined.instances[0].label_map[20, 47] == 1


@pytest.mark.parametrize(
    ("top", "score", "heads"),
    [(35, 0.9, 0), (35, 0.4, 1), (44, 0.9, 1)],
    ids=["a face", "a doubtful one, as of an ear", "a nape"],
)
def test_a_head_from_behind_is_covered_whatever_was_taken_for_its_face(top: int, score: float, heads: int) -> None:
    face = Instance(label="face", score=score, box=(93 / 336, top / 192, 107 / 336, (top + 17) / 192))
    (joined,) = JoinBoxes(Config(anonymize="heads"), HostTransfer())(iter([batch(people(100)[None], [face])]))
    assert [one.label for one in joined.instances[0].instances] == ["face"] + ["head"] * heads


def test_heads_that_nothing_covers_are_doubtful() -> None:
    config = Config(anonymize="faces", audit="a.json")
    masks = people(100)[None].repeat(10, 0)
    (noted,) = BareHeads(config, HostTransfer())(iter([batch(masks)]))
    finder = DoubtFinder()
    for i, heads in enumerate(noted.bare or ()):
        finder.add(i / 25, FrameInstances(instances=(), first_map=np.zeros((9, 16), np.uint8)), 0, heads)
    (doubt,) = finder.doubts()
    assert (doubt.kind, doubt.begin, doubt.end) == ("bare", 0, 9 / 25)
    face = Instance(label="face", score=0.9, box=(93 / 336, 35 / 192, 107 / 336, 52 / 192))
    (noted,) = BareHeads(config, HostTransfer())(iter([batch(masks, [face])]))
    assert noted.bare == ((),) * 10


@pytest.mark.parametrize(("covered", "kept", "bare"), [(0.3, True, 0), (0.3, False, 1), (0.1, True, 1)])
def test_a_head_that_the_cover_of_a_near_face_hides_is_not_bare(covered: float, kept: bool, bare: int) -> None:
    """Of somebody who is seen down to the neck, the box of the head is too high and small for the face."""
    mask = np.zeros((1, 192, 336), np.float32)
    cv2.ellipse(mask[0], (168, 120), (70, 115), 0, 0, 360, 1, -1)
    face = Instance(label="face", score=0.9, box=(0.3, 0.4, 0.7, 0.99), kept=kept)
    (head,) = heads_in(mask[0], [face.box])
    there = batch(mask, [face])
    (found,) = there.instances
    cover = np.zeros((90, 160), np.uint8)
    cover[round(head[1] * 90) : round((head[1] + covered) * 90)] = 1
    (noted,) = BareHeads(Config(anonymize="faces", audit="a.json"), HostTransfer())(
        iter([replace(there, instances=(replace(found, first_map=cover),))])
    )
    assert noted.bare and len(noted.bare[0]) == bare


def test_people_are_covered_beside_boxes() -> None:
    config = Config(anonymize="people,faces")
    (made,) = CoverPeople(config, INFO, HostTransfer())(iter([batch(people(100)[None])]))
    mask = np.asarray(made.masks)[0]
    assert mask[60, 47] == 1 and mask[20, 47] == 1 and not mask[:, 100:].any()


def test_kinds_are_named_once_and_the_boxes_come_first() -> None:
    kinds = Anonymize.parse_all("people, plates=p.onnx,faces")
    assert [(one.kind, one.model) for one in kinds] == [("plates", "p.onnx"), ("faces", "face"), ("people", "person")]
    assert [one.kind for one in Config(anonymize="heads").further] == ["bodies"]
    assert Config(anonymize="faces").further == ()
    for text in ("faces,faces", "faces,heads", "regions,faces"):
        with pytest.raises(ConfigError):
            Anonymize.parse_all(text)


@pytest.mark.parametrize(
    ("options", "first", "last"),
    [
        ({"anonymize": "faces"}, "Shots", "CoverBoxes"),
        ({"anonymize": "faces,people"}, "Shots", "CoverPeople"),
        ({"anonymize": "faces", "audit": "a.json"}, "Shots", "BareHeads"),
        ({"anonymize": "heads"}, "JoinBoxes", "CoverBoxes"),
        ({"anonymize": "faces,plates=p.onnx"}, "JoinBoxes", "CoverBoxes"),
    ],
)
def test_boxes_are_read_early_where_others_join_them_alone(options: dict[str, str], first: str, last: str) -> None:
    """On a GPU that is a wait."""
    steps = make_instance_steps(Config(**options), INFO, "yuv420p", ["face"], HostTransfer(), [], None, None)
    assert [type(step).__name__ for step in (steps[0], steps[-1])] == [first, last]
