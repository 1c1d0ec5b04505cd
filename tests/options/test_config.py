"""Options are checked when they are set, and say what they can be."""

import math
from dataclasses import replace
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from segmentation import Config, ConfigError, Effect
from segmentation.options.config import with_batch_size
from segmentation.options.times import seconds


class Named(str, Enum):  # noqa: UP042  # whose members `str` names otherwise than StrEnum's
    CODEC = "h264"


@pytest.mark.parametrize(
    ("text", "effect"),
    [
        ("blur", Effect("blur")),
        ("blur:7.5", Effect("blur", strength=7.5)),
        ("color:#102030", Effect("color", rgb=(16, 32, 48))),
        ("color:00b140", Effect("color", rgb=(0, 177, 64))),
        ("color:white", Effect("color", rgb=(255, 255, 255))),
        ("overlay:RebeccaPurple", Effect("overlay", rgb=(102, 51, 153))),
        ("color:lightgrey@face", Effect("color", rgb=(211, 211, 211), label="face")),
        ("mask", Effect("mask")),
        ("overlay", Effect("overlay")),
        ("pixelate", Effect("pixelate")),
        ("pixelate:64", Effect("pixelate", block=64)),
        ("image:a.jpg", Effect("image", file="a.jpg")),
        ("image:C:,x.png,contain", Effect("image", file="C:,x.png", contain=True)),
        ("video:sea.mp4,contain", Effect("video", file="sea.mp4", contain=True)),
        ("cutout", Effect("cutout")),
    ],
)
def test_effects_are_read(text: str, effect: Effect) -> None:
    assert Effect.parse(text) == effect


def test_effects_are_parsed_once_for_the_output_and_then_for_others() -> None:
    config = Config(effect="blur:9@face", also=[("overlay", "a.mkv")])
    assert config.effects == (Effect("blur", strength=9, label="face"), Effect("overlay"))
    assert [effect.text for effect in config.effects] == ["blur:9@face", "overlay"]
    assert replace(config, effect="mask").effects[0] == Effect("mask")


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [
        ("effect", "blurr", "choose blur"),
        ("effect", "blur:", "not a number"),
        ("effect", "blur:0", "above 0"),
        ("effect", "blur:nan", "above 0"),
        ("effect", "color:grean", "#RRGGBB"),
        ("effect", "overlay:grean", "did you mean green?"),
        ("effect", "mask:3", "choose blur"),
        ("effect", "pixelate:1", "2 to 1080"),
        ("effect", "pixelate:big", "not a number"),
        ("effect", "image", "name the file"),
        ("effect", "video:,contain", "name the file"),
        ("effect", "cutout:png", "choose blur"),
        ("effect", "beach.JPG", "did you mean image:beach.JPG?"),
        ("effect", "sea.mov", "did you mean video:sea.mov?"),
        ("effect", "imge:beach.jpg", "did you mean image?"),
        ("effect", "C:\\beach.jpg", "did you mean image:C:\\beach.jpg?"),
        ("effect", "green", "did you mean color:green?"),
        ("effect", "#00b140", "did you mean color:#00b140?"),
        ("effect", "transparent", "did you mean cutout?"),
        ("threshold", 0.0, "both excluded"),
        ("threshold", 1.0, "both excluded"),
        ("feather", -1.0, "0 (a sharp edge)"),
        ("feather", float("nan"), "0 (a sharp edge)"),
        ("codec", "vp9", "choose h264"),
        ("mode", "fast", "choose auto"),
        ("batch_size", 0, "1 or more"),
        ("max_frames", -1, "1 or more"),
        ("start", -0.5, "0 to 1,000,000,000"),
        ("start", float("inf"), "0 to 1,000,000,000"),
        ("duration", 0.0, "above 0"),
        ("quality", 101, "0 (best) to 51"),
        ("preset", "fastest", "choose ultrafast, superfast"),
        ("preset", "p5", "unknown for h264"),
        ("device", "gpu", "cuda:N"),
        ("smooth", 1.5, "0 (off) to 1"),
        ("mean", (0.5,), "three numbers"),
        ("std", (1.0, 0.0, 1.0), "1e-06 to 1,000,000"),
        ("mean", (math.nan, 0.0, 0.0), "-1,000,000 to 1,000,000"),
        ("input_size", (4, 256), "8 to 8,192"),
        ("classes", (), "one at least"),
        ("labels", [], "one at least"),
        ("region", ("1,1,5,5@nan-3",), "not a number of seconds"),
        ("activation", "relu", "choose none"),
    ],
)
def test_what_an_option_cannot_be(option: str, value: Any, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config(**{option: value})
    message = str(caught.value)
    assert hint in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("option", "value", "line"),
    [
        ("threshold", "0.5", "threshold '0.5': must be a number"),
        ("threshold", True, "threshold True: must be a number"),
        pytest.param("threshold", 10**400, "must be a number", id="huge"),
        pytest.param("threshold", 10**5000, "threshold of type int: must be a number", id="too huge to write"),
        pytest.param("also", ["mask"] * 1_000_000, "...]: must be a list of pairs", id="endless"),
        ("start", None, "start None: must be a number"),
        ("duration", "5", "duration '5': must be a number"),
        ("max_frames", "10", "max frames '10': must be a whole number"),
        ("max_frames", 2.5, "max frames 2.5: must be a whole number"),
        ("max_frames", 10.0, "max frames 10.0: must be a whole number"),
        ("max_frames", True, "max frames True: must be a whole number"),
        ("batch_size", 2.5, "batch size 2.5: must be a whole number"),
        ("quality", "20", "quality '20': must be a whole number"),
        ("refine", "no", "refine 'no': must be True or False"),
        ("overwrite", 1, "overwrite 1: must be True or False"),
        ("verify", None, "verify None: must be True or False"),
        ("effect", None, "effect None: must be text"),
        ("codec", 264, "codec 264: must be text"),
        ("track", True, "track True: must be text, one of fast, balanced, accurate"),
        ("codec", np.zeros((2, 2)), "codec array([[0., 0... [0., 0.]]): must be text"),
        ("mode", None, "mode None is unknown: choose auto"),
        ("device", 0, "device 0: must be text"),
        ("model", None, "model None: must be the name of a file"),
        ("model", "", "model '': must be the name of a file"),
        ("results", "", "results '': must be the name of a file"),
        ("save_masks", "", "save masks '': must be the name of a file"),
        ("masks", b"m.mkv", "masks b'm.mkv': must be the name of a file"),
        ("trace", True, "trace True: must be the name of a file"),
        ("classes", "person", "classes 'person': must be a list of texts"),
        ("labels", "a", "labels 'a': must be a list of texts"),
        ("labels", (1, 2), "labels (1, 2): must be a list of texts"),
        ("mean", 0.5, "mean 0.5: must be a list of numbers"),
        ("std", ("1", "1", "1"), "must be a list of numbers"),
        ("input_size", 256, "input size 256: must be two whole numbers, height and width"),
        ("input_size", (256, 256, 3), "must be two whole numbers"),
        ("input_size", (256.0, 256), "must be two whole numbers"),
        ("also", None, "also None: must be a list of pairs, each an effect and a file"),
        ("also", ["mask:x.mkv"], "also ['mask:x.mkv']: must be a list of pairs"),
        ("also", ["mx"], "also ['mx']: must be a list of pairs"),
        ("also", {"mask": "x"}, "also {'mask': 'x'}: must be a list of pairs"),
        ("also", ("mask", "x.mkv"), "also ('mask', 'x.mkv'): must be a list of pairs"),
        ("also", [("mask", "")], "must be a list of pairs"),
    ],
)
def test_an_option_of_the_wrong_type_is_one_line(option: str, value: Any, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config(**{option: value})
    message = str(caught.value)
    assert line in message and message.startswith(option.replace("_", " "))
    assert "\n" not in message and len(message) < 200


@pytest.mark.parametrize(
    ("option", "value", "taken"),
    [
        ("start", np.float32(1), 1.0),
        ("start", Fraction(1001, 30000), Fraction(1001, 30000)),
        ("codec", Named.CODEC, "h264"),
        ("model", Named.CODEC, "h264"),
        ("classes", [Named.CODEC], ("h264",)),
        ("duration", 5, 5.0),
        ("max_frames", np.int64(10), 10),
        ("refine", np.bool_(False), False),
        ("model", Path("x.onnx"), "x.onnx"),
        ("results", Path("x.jsonl"), "x.jsonl"),
        ("classes", ["person"], ("person",)),
        ("mean", np.zeros(3, np.float32), (0.0, 0.0, 0.0)),
        ("input_size", [np.int32(256), 320], (256, 320)),
        ("also", zip(["mask", "blur"], ["a.mkv", Path("b.mkv")], strict=True), (("mask", "a.mkv"), ("blur", "b.mkv"))),
        ("also", (pair for pair in [["mask", "a.mkv"]]), (("mask", "a.mkv"),)),
    ],
)
def test_what_stands_for_an_option_becomes_it(option: str, value: Any, taken: Any) -> None:
    config = Config(**{option: value})
    assert replace(config) == config and hash(replace(config)) == hash(config)
    found = getattr(config, option)
    assert found == taken and type(found) is type(taken)
    if isinstance(taken, tuple):
        assert list(map(type, found)) == list(map(type, taken))


def test_options_stay_as_they_were_checked() -> None:
    also = [("mask", "a.mkv")]
    config = Config(also=also)
    also.append(("sparkle", "b.mkv"))
    assert config.also == (("mask", "a.mkv"),)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"codec": "h264", "quality": 52}, "0 (best) to 51"),
        ({"quality": 52, "preset": "fast"}, "0 (best) to 51"),
        ({"effect": "cutout", "quality": 101}, "vp9 takes 0 (best) to 63"),
        ({"codec": "av1", "preset": "fast"}, "choose 0, 1, 2"),
        ({"codec": "ffv1", "preset": "fast"}, "ffv1 has none"),
        ({"encode": "nvenc", "preset": "fast"}, "unknown for nvenc: choose p1"),
        ({"codec": "mjpeg", "preset": "fast"}, "mjpeg has none"),
        ({"codec": "mjpeg", "quality": 0}, "100 (best) to 1"),
        ({"codec": "mjpeg", "encode": "x264"}, "by --encode jpeg only"),
        ({"codec": "h264", "encode": "jpeg"}, "--encode jpeg makes mjpeg only"),
        ({"codec": "mjpeg", "verify": True}, "can't check mjpeg"),
        ({"encode": "jpeg", "verify": True}, "can't check mjpeg"),
        ({"video": False}, "nothing would be written; add --results, --save-masks or --count"),
        ({"video": False, "results": "a", "also": [("mask", "a.mkv")]}, "leave out --also, or --no-video"),
        ({"video": False, "results": "a", "codec": "mjpeg"}, "leave out --codec, or --no-video"),
        ({"video": False, "results": "a", "encode": "jpeg"}, "leave out --encode, or --no-video"),
        ({"video": False, "results": "a", "quality": "high"}, "leave out --quality, or --no-video"),
        ({"video": False, "results": "a", "preset": "fast"}, "leave out --preset, or --no-video"),
        ({"video": False, "results": "a", "verify": True}, "leave out --verify, or --no-video"),
        ({"video": False, "results": "a", "cut_every": 60}, "leave out --cut-every, or --no-video"),
    ],
)
def test_what_does_not_go_together(options: dict[str, Any], hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config(**options)
    assert hint in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("options", [{"codec": "mjpeg"}, {"encode": "jpeg"}, {"codec": "mjpeg", "encode": "jpeg"}])
def test_mjpeg_and_its_encoder_imply_each_other(options: dict[str, Any]) -> None:
    config = Config(**options)
    assert (config.codec, config.encode) == ("mjpeg", "jpeg")


@pytest.mark.parametrize(
    "options",
    [{"preset": "ultrafast"}, {"codec": "av1", "preset": "12"}, {"encode": "nvenc", "preset": "p7"}],
)
def test_presets(options: dict[str, Any]) -> None:
    assert Config(**options).preset == options["preset"]


def test_errors_are_value_errors_too() -> None:
    with pytest.raises(ValueError, match="batch size 0"):
        Config(batch_size=0)


@pytest.mark.parametrize(("text", "value"), [("90", 90.0), ("1:30", 90.0), ("0:01:30.5", 90.5)])
def test_times(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "1:2:3:4", "ten", "1::", "nan", "1:inf"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ConfigError, match="time"):
        seconds(text)


def test_options_with_another_batch_size_are_else_the_same() -> None:
    config = Config(effect="pixelate:9@face", smooth=0.25, batch_size=8)
    changed = with_batch_size(config, 3)
    assert changed == replace(config, batch_size=3) and changed.effects == config.effects and config.batch_size == 8
    assert with_batch_size(config, 8) is config
