"""Detectors and classifiers on crops."""

from pathlib import Path

import numpy as np
import pytest
from detectors import color_classifier, make_detector, red_box
from networks import make_model, shared_network

from segmentation.errors import ConfigError, ModelError
from segmentation.models.detection import Place
from segmentation.models.secondary import CROP_SIZE, SecondaryNetwork, check_labels
from segmentation.options.config import Config
from segmentation.options.then import Then

WHOLE = Place(0, 0, 32, 32)


def test_a_classifier_says_what_a_crop_shows(tmp_path: Path) -> None:
    network = SecondaryNetwork(Then("color", str(color_classifier(tmp_path / "c.onnx")), "person"))
    pictures = np.zeros((2, 3, 32, 32), np.float32)
    pictures[0, 2] = pictures[1, 0] = 0.5
    found = network.read(network.outputs(pictures), [WHOLE, WHOLE])
    assert [[one.label for one in several] for several in found] == [["color:blue"], ["color:red"]]
    assert found[0][0].score == pytest.approx(np.exp(5) / (np.exp(5) + 2), abs=1e-4), "a softmax of logits"
    assert found[0][0].box == (0, 0, 1, 1)


def test_a_network_of_one_picture_at_a_time_takes_its_turns(tmp_path: Path) -> None:
    network = SecondaryNetwork(Then("color", str(color_classifier(tmp_path / "c.onnx", batch=2)), "person"))
    pictures = np.zeros((3, 3, 32, 32), np.float32)
    for number in range(3):
        pictures[number, number] = 1
    assert [one[0].label for one in network.read(network.outputs(pictures), [WHOLE] * 3)] == [
        "color:red",
        "color:green",
        "color:blue",
    ]


def test_boxes_are_shares_of_the_crop_amid_its_border(tmp_path: Path) -> None:
    network = SecondaryNetwork(Then("spot", str(red_box(tmp_path / "r.onnx")), "person"))
    pictures = np.zeros((2, 3, 32, 32), np.float32)
    pictures[1, 0] = 0.8
    found = network.read(network.outputs(pictures), [WHOLE, Place(8, 0, 16, 32)])
    assert found[0] == []
    assert [one.label for one in found[1]] == ["spot"], "the only class has the network's name"
    assert found[1][0].score == pytest.approx(0.8)
    assert found[1][0].box == (0, 0.25, 1, 0.75)


def test_effects_are_on_what_may_be_found(tmp_path: Path) -> None:
    colors = SecondaryNetwork(Then("color", str(color_classifier(tmp_path / "c.onnx")), "person"))
    for label in ("person", "color", "color:red", "color:blue"):
        check_labels(Config(effect=f"blur@{label}"), ["person"], [colors])
    check_labels(Config(also=(("mask", "m.mkv"),)), ["person"], [])
    for label in ("dog", "red", "color:pink"):
        with pytest.raises(
            ConfigError, match=rf"effect blur@{label}: nothing is called '{label}'; choose from person, "
        ):
            check_labels(Config(effect=f"blur@{label}"), ["person"], [colors])


def test_all_classes_count_but_the_background(tmp_path: Path) -> None:
    outputs = {"output0": np.zeros((84, 84), np.float32)}
    network = SecondaryNetwork(Then("thing", str(make_detector(tmp_path / "y.onnx", outputs)), "car"))
    assert len(network.model.keep) == 80


def test_networks_that_find_no_single_things_are_refused(tmp_path: Path) -> None:
    path = make_model(tmp_path / "m.onnx", [[1, 0, 0]])
    with pytest.raises(ConfigError, match=r"then face: .*m\.onnx gives masks of classes; boxes or a class are needed"):
        SecondaryNetwork(Then("face", str(path), "person"))
    with pytest.raises(ModelError, match="no such model"):
        SecondaryNetwork(Then("face", str(tmp_path / "none.onnx"), "person"))


def test_networks_of_several_sizes_see_small_crops() -> None:
    path = shared_network("faces-yunet.onnx")
    assert (model := SecondaryNetwork(Then("face", str(path), "person")).model).sizes == ()
    assert (model.height, model.width) == CROP_SIZE
