"""The built-in networks' first run on a GPU skips what was found out about them: it is found out here again."""

from dataclasses import replace

import pytest
from marks import first

from segmentation import Config
from segmentation.models.graph import fp16, fp16_cache
from segmentation.models.graph.onnx_graph import for_one_picture, prepare
from segmentation.models.graph.proven_fp16 import PROVEN, is_proven
from segmentation.models.model import PEOPLE, load_model
from segmentation.models.sample_picture import picture_inputs

SIZES = [(name, number) for number in range(5) for name in PEOPLE]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), first(2, SIZES))
def test_the_graph_is_that_of_the_whole_way(name: str, number: int) -> None:
    model = load_model(Config(model=name))
    height, width = model.sizes[number]
    model = replace(model, height=height, width=width)
    assert is_proven(model)
    graph = prepare(model, 4)
    converted, comparison = fp16.to_fp16(graph, model, picture_inputs(model), for_one_picture(model))
    assert comparison.iou >= 0.995 and comparison.covered > 0.1 and comparison.kept_in_fp32 == ()
    assert fp16.in_fp16(prepare(model, 4, check=False), model, []) == converted


@pytest.mark.parametrize("name", PEOPLE)
def test_nothing_is_run_for_a_built_in_network(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_model(Config(model=name))
    assert set(model.sizes) == set(PROVEN[next(key for key, sizes in PROVEN.items() if model.sizes[0] in sizes)])
    monkeypatch.setattr("segmentation.models.graph.onnx_graph.run", None)
    monkeypatch.setattr("segmentation.models.graph.fp16.in_order", None)
    assert len(fp16_cache._converted(model, 16)) > 1_000_000


def test_another_meaning_or_size_is_not_proven() -> None:
    model = load_model(Config(mean=(0.0, 0.0, 0.0)))
    assert not is_proven(model)
    assert not is_proven(load_model(Config(input_size=(192, 192))))
