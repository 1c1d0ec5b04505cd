"""The option `--anonymize`: what it stands for, and what it does not go with."""

import math
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from segmentation import Config, ConfigError, Segmenter
from segmentation.options.anonymize import Region


def test_faces_are_covered_in_black_frame_by_frame() -> None:
    config = Config(anonymize="faces")
    assert (config.model, config.effect, config.invert) == ("face", "color:#000000", True)
    assert (config.refine, config.smoothing_strength, config.tracker) == (False, 0.0, "balanced")
    assert Config(anonymize="faces", effect="image:flag.png").effect == "image:flag.png"


def test_black_stands_for_the_default_effect_alone() -> None:
    for config in (Config(), Config(mute=True), pickle.loads(pickle.dumps(Config()))):
        assert config.effect == "blur" and replace(config, anonymize="faces").effect == "color:#000000"
    with pytest.raises(ConfigError, match="of blur something may be computed back"):
        Segmenter(Config(effect="blur"), anonymize="faces")
    with Segmenter(anonymize="faces") as segmenter, pytest.raises(ConfigError, match="of blur something"):
        segmenter.run("no.mp4", "out.mp4", effect="blur")


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
        ({"anonymize": "faces", "effect": "blur"}, "of blur something may be computed back"),
        ({"region": ("1,2,3,4",), "effect": "blur"}, "of blur something may be computed back"),
        ({"anonymize": "faces", "effect": "pixelate"}, "may be computed back"),
        ({"anonymize": "faces", "also": (("mask", "m.mkv"),)}, "leave out --also, which may show"),
        ({"anonymize": "faces", "interval": 2}, "leave out --interval"),
        ({"anonymize": "faces", "keep": "id:1"}, "leave out --keep"),
        ({"anonymize": "people", "masks": "m.mkv"}, "leave out --masks"),
        ({"anonymize": "people", "model": "person-hq"}, "leave out --model"),
        ({"keep_metadata": True}, "it is an option of --anonymize"),
        ({"anonymize": "regions"}, "name the places with --region"),
        ({"region": ("1,2,3,4",), "also": (("mask", "m.mkv"),)}, "leave out --also"),
        ({"region": ("1,2,0,4",)}, "region '1,2,0,4': width and height must be above 0"),
        ({"region": ("1,2",)}, "write X,Y,WIDTH,HEIGHT, or the corners"),
        ({"region": ("1,2,3%,4",)}, "write all as one of them"),
        ({"region": ("nan,2,3,4",)}, "region 'nan,2,3,4': write numbers from -100,000 to 100,000"),
        ({"region": ("0,0,2e8,2e8",)}, "write numbers from -100,000 to 100,000"),
        ({"region": ("1,2,3,4@5-5",)}, "write the time as @FROM-TO"),
        ({"region": ("1,2,3,4@5",)}, "write the time as @FROM-TO"),
    ],
)
def test_what_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config(**options)


def test_regions_alone_need_no_network() -> None:
    config = Config(region=("1,2,3,4",))
    assert (config.anonymize, config.effect, config.invert, config.tracker) == ("regions", "color:#000000", True, None)
    assert callable(config.model)
    assert not config.model(np.ones((2, 3, 4, 5), np.float32)).any()


def test_regions_are_rectangles_or_polygons_with_times() -> None:
    box = Region.parse("10,20,30,40@1:00-")
    assert box.points == ((10, 20), (40, 20), (40, 60), (10, 60))
    assert (box.begin, box.end) == (60, math.inf)
    triangle = Region.parse("0%,0%,100%,0%,50%,50%@-2.5")
    assert (triangle.begin, triangle.end) == (0, 2.5)
    assert triangle.shares((640, 360)) == ((0, 0), (1, 0), (0.5, 0.5))
    with pytest.raises(ConfigError, match="lies outside of the picture, which is 640x360"):
        Region.parse("640,0,10,10").shares((640, 360))
