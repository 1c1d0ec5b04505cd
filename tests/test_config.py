"""Options are checked when they are set, and say what they can be."""

import math
from typing import Any

import pytest

from segmentation import Config, ConfigError, Effect
from segmentation.config import seconds


@pytest.mark.parametrize(
    ("text", "effect"),
    [
        ("blur", Effect("blur")),
        ("blur:7.5", Effect("blur", strength=7.5)),
        ("color:#102030", Effect("color", rgb=(16, 32, 48))),
        ("color:00b140", Effect("color", rgb=(0, 177, 64))),
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


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [
        ("effect", "blurr", "choose blur"),
        ("effect", "blur:", "not a number"),
        ("effect", "blur:0", "above 0"),
        ("effect", "blur:nan", "above 0"),
        ("effect", "color:green", "#RRGGBB"),
        ("effect", "mask:3", "choose blur"),
        ("effect", "pixelate:1", "2 to 1080"),
        ("effect", "pixelate:big", "not a number"),
        ("effect", "image", "name the file"),
        ("effect", "video:,contain", "name the file"),
        ("effect", "cutout:png", "choose blur"),
        ("threshold", 0.0, "both excluded"),
        ("threshold", 1.0, "both excluded"),
        ("feather", -1.0, "0 (a sharp edge)"),
        ("feather", float("nan"), "0 (a sharp edge)"),
        ("codec", "vp9", "choose h264"),
        ("mode", "fast", "choose auto"),
        ("batch_size", 0, "1 or more"),
        ("max_frames", -1, "1 or more"),
        ("start", -0.5, "0 or more"),
        ("start", float("inf"), "0 or more"),
        ("duration", 0.0, "more than 0"),
        ("quality", 64, "0 (best) to 51"),
        ("preset", "fastest", "choose ultrafast, superfast"),
        ("preset", "p5", "unknown for h264"),
        ("device", "gpu", "cuda:N"),
        ("smooth", 1.5, "0 (off) to 1"),
        ("mean", (0.5,), "three numbers"),
        ("std", (1.0, 0.0, 1.0), "above 0"),
        ("mean", (math.nan, 0.0, 0.0), "must be numbers"),
        ("input_size", (4, 256), "8 to 8192"),
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
    ("options", "hint"),
    [
        ({"codec": "h264", "quality": 52}, "0 (best) to 51"),
        ({"quality": 52, "preset": "fast"}, "0 (best) to 51"),
        ({"effect": "cutout", "quality": 64}, "vp9 takes 0 (best) to 63"),
        ({"codec": "av1", "preset": "fast"}, "choose 0, 1, 2"),
        ({"codec": "ffv1", "preset": "fast"}, "ffv1 has none"),
        ({"encode": "nvenc", "preset": "fast"}, "unknown for nvenc: choose p1"),
        ({"codec": "mjpeg", "preset": "fast"}, "mjpeg has none"),
        ({"codec": "mjpeg", "quality": 0}, "100 (best) to 1"),
        ({"codec": "mjpeg", "encode": "x264"}, "by --encode jpeg only"),
        ({"codec": "h264", "encode": "jpeg"}, "--encode jpeg makes mjpeg only"),
        ({"codec": "mjpeg", "verify": True}, "can't check mjpeg"),
        ({"encode": "jpeg", "verify": True}, "can't check mjpeg"),
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


@pytest.mark.parametrize("text", ["", "1:2:3:4", "ten", "1::"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ConfigError, match="time"):
        seconds(text)
