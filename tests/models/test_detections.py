"""Each layout of single things gives what its published formulas give, written plainly in `references.py`."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from detectors import make_detector, outputs_of
from networks import model_of
from references import REFERENCES, SIZE, Thing

from segmentation.frames.instances import MOST
from segmentation.models.detection import Detection, Place
from segmentation.models.detections import Detections, read
from segmentation.models.detector import Detector
from segmentation.models.model import open_session


def found_by(path: Path, **options: object) -> Detections:
    options = {"labels": tuple(f"c{i}" for i in range(7)), **options}
    model = model_of(path, **options)
    assert model.detection is not None
    return Detector(open_session(path), model)(np.full((2, 3, SIZE, SIZE), 0.5, np.float32))[1]


@pytest.mark.parametrize("task", ["rf-detr", "rtmdet-ins", "mask-rcnn"])
def test_masks_may_be_missing(tmp_path: Path, task: str) -> None:
    """As in networks of the same families that find boxes alone."""
    outputs = outputs_of(task)
    path = make_detector(tmp_path / "m.onnx", outputs, size=(SIZE, SIZE), single=task == "mask-rcnn")
    boxes = {name: array for name, array in outputs.items() if name != "masks"}
    alone = make_detector(tmp_path / "n.onnx", boxes, size=(SIZE, SIZE), single=task == "mask-rcnn")
    labels = tuple(f"c{i}" for i in range(5 if task == "rf-detr" else 7))
    whole, found = found_by(path, labels=labels), found_by(alone, labels=labels)
    assert (found.boxes == whole.boxes).all() and (found.scores == whole.scores).all()
    assert whole.masks is not None and found.masks is None


@pytest.mark.parametrize("task", REFERENCES)
def test_each_layout_gives_what_its_published_formulas_give(tmp_path: Path, task: str) -> None:
    outputs = outputs_of(task)
    path = make_detector(tmp_path / "m.onnx", outputs, size=(SIZE, SIZE), single=task == "mask-rcnn")
    count = {"rf-detr": 5, "yolo-seg": 5, "yolo": 5, "yolov5": 5, "yunet": 1, "ssd": 6}.get(task, 7)
    labels = tuple(f"c{i}" for i in range(count)) if task != "ssd" else ("background", *(f"c{i}" for i in range(5)))
    found = found_by(path, labels=labels)
    wanted = sorted(REFERENCES[task](outputs), key=lambda thing: -thing.score)
    assert len(wanted) >= 3, "so few that nothing is compared"
    assert found.classes.tolist() == [thing.number for thing in wanted]
    assert found.scores == pytest.approx([thing.score for thing in wanted], abs=0.01)
    assert np.abs(found.boxes - [thing.box for thing in wanted]).max() < 1
    if wanted[0].mask is None:
        assert found.masks is None
        return
    assert found.masks is not None
    for mask, thing in zip(found.masks, wanted, strict=True):
        assert_same_within_a_pixel(mask > 0.5, thing)
    assert sum(thing.mask.sum() for thing in wanted if thing.mask is not None) > 100


def assert_same_within_a_pixel(mask: np.ndarray, thing: Thing) -> None:
    assert thing.mask is not None
    wanted, kernel = thing.mask.astype(np.uint8), np.ones((3, 3), np.uint8)
    assert not (mask & (cv2.dilate(wanted, kernel) == 0)).any()
    assert not (~mask & (cv2.erode(wanted, kernel) == 1)).any()


def test_suppression_leaves_boxes_of_another_class_alone() -> None:
    boxes = np.array([[10, 10, 30, 30], [11, 10, 31, 30], [11, 10, 31, 30]], np.float32)
    rows = np.hstack([boxes[:, :4], np.ones((3, 1)), [[0.9, 0], [0.8, 0], [0, 0.7]]]).astype(np.float32)
    form = Detection(task="yolov5", outputs=("o",), score_threshold=0.5, nms=0.5)
    assert read([rows], form, (64, 64), (0, 1)).classes.tolist() == [0, 1]
    assert read([rows], form, (64, 64), (1,)).scores == pytest.approx([0.7])


def test_boxes_that_are_no_numbers_and_too_many_are_left_out() -> None:
    rows = np.tile(np.float32([10, 10, 30, 30, 1, 0.9]), (400, 1))
    rows[0, 2] = np.nan
    rows[1, 0] = np.inf
    rows[2:, 4] = np.linspace(0.6, 1, 398)
    found = read([rows], Detection(task="yolov5", outputs=("o",)), (64, 64), (0,))
    assert len(found.boxes) == MOST
    assert found.scores[0] == pytest.approx(0.9)
    assert np.isfinite(found.boxes).all()


def test_boxes_are_those_of_the_picture_amid_its_border() -> None:
    boxes = np.array([[0, 0, 64, 64], [10, 0, 20, 7], [30, 20, 40, 30]], np.float32)
    found = Detections(
        boxes=boxes,
        scores=np.float32([0.9, 0.8, 0.7]),
        classes=np.array([0, 1, 2]),
        masks=np.zeros((3, 64, 64), np.float32),
    ).within(Place(0, 8, 64, 48))
    assert found.classes.tolist() == [0, 2], "the second lies in the border"
    assert found.boxes.tolist() == [[0, 0, 64, 48], [30, 12, 40, 22]]
    assert found.masks is not None
    assert found.masks.shape == (2, 48, 64)
