"""`--then` names a network, its file and what it looks at."""

import pytest

from segmentation import Config, ConfigError
from segmentation.options.then import Then, parse_all


def test_a_network_has_a_name_a_file_and_a_label() -> None:
    assert Then.parse("face=nets/a=b@2x.onnx@sports ball") == Then("face", "nets/a=b@2x.onnx", "sports ball")


@pytest.mark.parametrize(
    "text", ["", "face", "face=f.onnx", "=f.onnx@person", "face=@person", "a b=f.onnx@person", "f=@"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"write NAME=FILE\.onnx@LABEL, such as"):
        Config(then=(text,))


def test_names_are_unique_and_parents_come_first() -> None:
    with pytest.raises(ConfigError, match="two networks are called 'a'"):
        Config(then=("a=f.onnx@person", "a=g.onnx@person"))
    with pytest.raises(ConfigError, match="a looks at b, which is found later; put it first"):
        Config(then=("a=f.onnx@b", "b=g.onnx@person"))
    with pytest.raises(ConfigError, match="a would look at what it finds itself; give it another name"):
        Config(then=("a=f.onnx@a:x",))
    assert [one.parent for one in parse_all(("b=g.onnx@person", "a=f.onnx@b:red"))] == ["person", "b:red"]


def test_labels() -> None:
    then = Then.parse("cover=c.onnx@face")
    assert then.label("face", alone=True) == "cover"
    assert then.label("masked", alone=False) == "cover:masked"
    assert then.looks_at("face") and then.looks_at("face:old") and not then.looks_at("faces")
    assert not Then.parse("c=c.onnx@cover:masked").looks_at("cover:bare")


def test_ids_are_found_where_a_network_looks_at_instances() -> None:
    assert Config(then=("face=f.onnx@person",)).tracker == "balanced"
    assert Config(then=("face=f.onnx@person",), track="fast").tracker == "fast"
