"""The layers that TensorRT-RTX makes of the built-in network, by its own log: FP16 from the input to the end."""

import logging
import re
from typing import Any

import pytest
from networks import model_of

from segmentation.engines import builder
from segmentation.engines.spec import EngineOptions
from segmentation.engines.variant import choose, installed
from segmentation.models.graph.fp16 import to_fp16
from segmentation.models.graph.onnx_graph import prepare
from segmentation.models.sample_picture import picture_inputs


def test_all_layers_but_the_last_give_fp16(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A layer in FP32 in between would cost two conversions."""
    trt: Any = pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed")
    configure = builder._configure

    def detailed(module: Any, config: Any, *arguments: Any, **named: Any) -> None:
        configure(module, config, *arguments, **named)
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED

    monkeypatch.setattr(builder, "_configure", detailed)
    caplog.set_level(logging.DEBUG, "segmentation.engines.variant")
    model = model_of("person")
    graph, _ = to_fp16(prepare(model, None), model, picture_inputs(model))
    builder.build_plan(graph, model, EngineOptions(), choose(None, installed(), "tensorrt_rtx", build=True))
    text = "\n".join(record.getMessage() for record in caplog.records)
    outputs = re.findall(r"^Name: .+, LayerType: .+, Outputs: \[(.*)\], TacticName:", text, re.MULTILINE)
    kinds = [kind for kind in (re.findall(r"Datatype: (\w+)", output) for output in outputs) if kind]
    assert 40 < len(kinds) < len(graph.graph.node)
    assert all(kind == ["Half"] * len(kind) for kind in kinds[:-1]) and kinds[-1] == ["Float"], kinds
