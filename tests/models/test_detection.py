"""Tasks are told apart by names and shapes of outputs, or refused in one line; a picture's place in the input."""

import re
from pathlib import Path

import numpy as np
import pytest
from detectors import Arrays, make_detector
from networks import make_model, model_of

from segmentation.errors import ConfigError, ModelError
from segmentation.models.detection import OUTPUTS, Place, place_in
from segmentation.models.model import load_model
from segmentation.options.config import Config
from segmentation.options.model_types import COCO80, COCO91, TASKS

CELLS = 84  # of a picture of 64x64, at strides of 8, 16 and 32


def zeros(**shapes: tuple[int, ...]) -> Arrays:
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}


DETR = zeros(dets=(10, 4), labels=(10, 91), masks=(10, 16, 16))
RTMDET = {**zeros(dets=(10, 5), masks=(10, 64, 64)), "labels": np.zeros(10, np.int64)}
MASK_RCNN = {**zeros(boxes=(5, 4), scores=(5,), masks=(5, 1, 64, 64)), "labels": np.zeros(5, np.int64)}


@pytest.mark.parametrize(
    ("outputs", "task", "labels"),
    [
        (DETR, "rf-detr", COCO91),
        (RTMDET, "rtmdet-ins", COCO80),
        (zeros(output0=(84 + 32, CELLS), output1=(32, 16, 16)), "yolo-seg", COCO80),
        (zeros(output0=(4 + 3, CELLS)), "yolo", ("class0", "class1", "class2")),
        (zeros(output0=(3 * CELLS, 5 + 80)), "yolov5", COCO80),
        (zeros(output=(CELLS, 5 + 80)), "yolov5", COCO80),
        (zeros(scores=(40, 2), boxes=(40, 4)), "ssd", ("class0", "class1")),
    ],
)
def test_tasks_are_told_apart_by_names_and_shapes(
    tmp_path: Path, outputs: Arrays, task: str, labels: tuple[str, ...]
) -> None:
    model = model_of(make_detector(tmp_path / "m.onnx", outputs))
    assert model.detection is not None
    assert model.detection.task == task
    assert model.labels == labels
    assert model.kept == (("person",) if "person" in labels else labels)


def test_torchvisions_network_takes_one_picture_without_a_batch(tmp_path: Path) -> None:
    model = model_of(make_detector(tmp_path / "m.onnx", MASK_RCNN, single=True))
    assert model.detection is not None
    assert (model.detection.task, model.form.single, model.batch) == ("mask-rcnn", True, 1)


@pytest.mark.parametrize(
    ("outputs", "options", "said"),
    [
        (zeros(output0=(7, 50)), {}, "is no segmentation model.*--task"),  # not as many places as cells
        (zeros(a=(10, 4), b=(10, 3)), {}, "is no segmentation model"),
        (zeros(output0=(7, 50)), {"task": "yolo-seg"}, "task yolo-seg needs 2 outputs, and its outputs are output0"),
        (zeros(a=(10, 4), b=(10, 3)), {"task": "ssd"}, "task ssd needs an output scores"),
        (zeros(output0=(4, 50)), {"task": "yolo"}, r"outputs for a picture are \(4, 50\), which leave yolo no class"),
        (zeros(output0=(4, 5, 50)), {"task": "yolo"}, r"\(4, 5, 50\), which are not those of yolo"),
        (zeros(output0=(7, 50)), {"task": "yolo", "labels": ("a", "b")}, "2 labels for 3 output channels"),
        (RTMDET, {"task": "rtmdet-ins", "classes": ("zebra crossing",)}, "does not know the class 'zebra crossing'"),
    ],
)
def test_uncertain_cases_are_refused_in_one_line(
    tmp_path: Path, outputs: Arrays, options: dict[str, object], said: str
) -> None:
    path = make_detector(tmp_path / "m.onnx", outputs)
    with pytest.raises(ModelError, match=said) as caught:
        model_of(path, **options)
    assert "\n" not in str(caught.value)


def test_the_task_can_be_forced(tmp_path: Path) -> None:
    path = make_detector(tmp_path / "m.onnx", zeros(output0=(7, 50)))
    model = model_of(path, task="yolo")
    assert model.detection is not None
    assert (model.detection.fit, model.detection.nms) == ("letterbox", 0.7)
    masks = make_detector(tmp_path / "n.onnx", zeros(dets=(10, 4), labels=(10, 2), masks=(2, 32, 32)))
    assert model_of(masks).detection is not None
    assert model_of(masks, task="segmentation", model_output="masks").detection is None
    with pytest.raises(ConfigError, match="task 'yolo9' is unknown"):
        Config(task="yolo9")


def test_the_file_may_state_what_its_layout_does_not(tmp_path: Path) -> None:
    stated = {"task": "yolo", "fit": "squash", "boxes": "xyxy", "score_threshold": "0.4", "nms": "null"}
    model = model_of(make_detector(tmp_path / "m.onnx", zeros(output0=(7, 50)), metadata=stated))
    found = model.detection
    assert found is not None
    assert (found.task, found.fit, found.boxes, found.score_threshold, found.nms) == (
        "yolo",
        "squash",
        "xyxy",
        0.4,
        None,
    )


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("task", "pose", "task 'pose' is unknown"),
        ("fit", "crop", "its fit is 'crop'; choose from squash, letterbox"),
        ("boxes", "xywh", "its boxes is 'xywh'; choose from xyxy"),
        ("score_threshold", "2", "its score_threshold is 2; a number from 0 to 1"),
        ("nms", '"no"', "its nms is 'no'; a number from 0 to 1"),
    ],
)
def test_what_a_file_states_is_checked(tmp_path: Path, key: str, value: str, said: str) -> None:
    path = make_detector(tmp_path / "m.onnx", DETR, metadata={key: value})
    with pytest.raises(ModelError, match=re.escape(said)):
        model_of(path)


def test_exports_of_yolo_say_their_task_and_names_in_their_own_way(tmp_path: Path) -> None:
    stated = {"task": "detect", "names": "{0: 'cat', 1: 'dog', 2: 'fish, dead'}"}
    model = model_of(make_detector(tmp_path / "m.onnx", zeros(output0=(7, 50)), metadata=stated))
    assert model.labels == ("cat", "dog", "fish, dead")
    wrong = {**stated, "names": "__import__('os').abort()"}
    assert model_of(make_detector(tmp_path / "n.onnx", zeros(output0=(7, 50)), metadata=wrong)).labels[0] == "class0"


def test_segmentation_networks_stay_what_they_are(tmp_path: Path) -> None:
    assert load_model(Config()).detection is None
    assert model_of(make_model(tmp_path / "m.onnx", [[1, 0, 0]])).detection is None


def test_all_tasks_can_be_chosen() -> None:
    assert set(TASKS) == set(OUTPUTS)


@pytest.mark.parametrize(
    ("width", "height", "place"),
    [(1920, 1080, Place(0, 140, 640, 360)), (100, 200, Place(160, 0, 320, 640)), (10_000, 1, Place(0, 319, 640, 1))],
)
def test_a_letterbox_keeps_the_pictures_shape(width: int, height: int, place: Place) -> None:
    assert place_in((640, 640), width, height, "letterbox") == place
    assert place_in((640, 640), width, height, "squash") == Place(0, 0, 640, 640)
