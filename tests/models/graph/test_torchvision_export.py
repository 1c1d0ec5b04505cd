"""Exports of PyTorch's networks, with metadata, and of torchvision's by name."""

from pathlib import Path

import numpy as np
import pytest

from segmentation import Config
from segmentation.models.model import load_model
from segmentation.models.scores import probabilities
from segmentation.stages.inference.onnxruntime import OnnxRuntimeInference

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

MEANING = {
    "labels": ["__background__", "person", "cat"],
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
    "channel_order": "rgb",
    "activation": "softmax",
}


def test_an_export_says_everything_itself_and_computes_the_same(tmp_path: Path) -> None:
    from segmentation.models.graph.torchvision_export import _Scores, export

    class Named(torch.nn.Module):  # type: ignore[misc]
        """Outputs by name, as torchvision's networks have them."""

        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 3, 3, padding=1)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"out": self.conv(x), "aux": x}

    torch.manual_seed(0)
    network = _Scores(Named())
    export(network, tmp_path / "m.onnx", (32, 48), MEANING)
    config = Config(model=str(tmp_path / "m.onnx"))
    model = load_model(config)
    assert model.labels == ("__background__", "person", "cat") and model.keep == (1,)
    assert model.mean == (0.485, 0.456, 0.406) and model.std == (0.229, 0.224, 0.225)
    assert (model.activation, model.batch, model.height, model.width) == ("softmax", None, 32, 48)
    pictures = np.random.default_rng(0).random((5, 3, 32, 48), np.float32)
    with torch.inference_mode():
        expected = probabilities(network(torch.from_numpy(pictures)).numpy(), model)
    np.testing.assert_allclose(OnnxRuntimeInference(model, config)(pictures).masks, expected, atol=1e-5)


def test_random_weights_make_numbers_that_fp16_can_hold() -> None:
    from segmentation.models.graph.torchvision_export import _settle

    def block(channels: int) -> list[torch.nn.Module]:
        conv = torch.nn.Conv2d(channels, 8, 3, padding=1, bias=False)
        torch.nn.init.normal_(conv.weight)  # so that values grow
        return [conv, torch.nn.BatchNorm2d(8), torch.nn.ReLU()]

    torch.manual_seed(0)
    network = torch.nn.Sequential(
        *block(3), *(layer for _ in range(20) for layer in block(8)), torch.nn.AdaptiveAvgPool2d(1), *block(8)
    )
    picture = torch.randn(1, 3, 32, 48) * 2 + 1
    with torch.inference_mode():
        assert network.eval()(picture).max() > 65504
    _settle(network, (32, 48))
    with torch.inference_mode():
        assert 0 < network.eval()(picture).max() < 1000


@pytest.mark.parametrize("name", ["lraspp_mobilenet_v3_large", "fcn_resnet50"])
def test_a_network_of_torchvision(tmp_path: Path, name: str) -> None:
    pytest.importorskip(
        "torchvision", reason="torchvision is not installed, or not for this PyTorch", exc_type=ImportError
    )
    from segmentation.models.graph.torchvision_export import export_by_name

    export_by_name(name, tmp_path / "m.onnx", (64, 64), weights=False)
    model = load_model(Config(model=str(tmp_path / "m.onnx")))
    assert len(model.labels) == 21 and model.labels[model.keep[0]] == "person"
    assert model.mean == (0.485, 0.456, 0.406) and (model.height, model.width) == (64, 64)
