"""The option `--anonymize`: what it stands for, and what it does not go with."""

from typing import Any

import pytest

from segmentation import Config, ConfigError


def test_faces_are_covered_in_black_frame_by_frame() -> None:
    config = Config(anonymize="faces")
    assert (config.model, config.effect, config.invert) == ("face", "color:#000000", True)
    assert (config.refine, config.smoothing_strength, config.tracker) == (False, 0.0, "balanced")
    assert Config(anonymize="faces", effect="image:flag.png").effect == "image:flag.png"


def test_people_are_covered_by_a_lower_threshold() -> None:
    config = Config(anonymize="people")
    assert (config.model, config.invert, config.refine, config.tracker) == ("person", True, False, None)
    assert config.threshold == 0.3
    assert Config(anonymize="people", threshold=0.2).threshold == 0.2


def test_a_network_of_ones_own() -> None:
    assert Config(anonymize="plates=plates.onnx").model == "plates.onnx"


@pytest.mark.parametrize(
    "options, message",
    [
        ({"anonymize": "face"}, "anonymize 'face' is unknown: choose .*; did you mean faces"),
        ({"anonymize": "plates"}, "no network of plates is built in"),
        ({"anonymize": "plates="}, "name the network's file"),
        ({"anonymize": "faces", "effect": "blur:50"}, "of blur:50 something may be computed back"),
        ({"anonymize": "faces", "effect": "pixelate"}, "may be computed back"),
        ({"anonymize": "faces", "also": (("mask", "m.mkv"),)}, "leave out --also, which may show"),
        ({"anonymize": "faces", "interval": 2}, "leave out --interval"),
        ({"anonymize": "faces", "keep": "id:1"}, "leave out --keep"),
        ({"anonymize": "people", "masks": "m.mkv"}, "leave out --masks"),
        ({"anonymize": "people", "model": "person-hq"}, "leave out --model"),
        ({"keep_metadata": True}, "it is an option of --anonymize"),
    ],
)
def test_what_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config(**options)
