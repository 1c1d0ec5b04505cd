"""Exports segmentation networks of torchvision to ONNX, with the meaning of their numbers in the metadata."""

import json
import logging
from pathlib import Path

import onnx
import torch

from segmentation.errors import ModelError, one_line
from segmentation.options.model_types import Meaning

log = logging.getLogger(__name__)

_OPSET = 17
_LEAST_VARIANCE = 0.01  # of channels that are hardly different from picture to picture, such as means over all of it


class _Scores(torch.nn.Module):  # type: ignore[misc]
    """Returns the scores (N, C, H, W) alone, out of the main and auxiliary ones that torchvision's networks return."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Runs the network on pictures (N, 3, H, W)."""
        return self.network(pictures)["out"]


def export_by_name(name: str, target: Path, size: tuple[int, int] | None, *, weights: bool = True) -> None:
    """Writes the network `name` of torchvision as ONNX, for pictures of `size` (height, width).

    `size` defaults to the one at which the weights were evaluated. Without `weights` the weights are random, and the
    same each time. Raises `ModelError` if the weights can't be downloaded.
    """
    from torchvision.models import get_model, get_model_weights

    described = get_model_weights(name).DEFAULT
    transforms = described.transforms()
    if size is None:
        size = (transforms.resize_size[0],) * 2
    torch.manual_seed(0)
    log.info("torchvision: %s, %s", name, described if weights else "random weights")
    try:
        network = get_model(
            name,
            weights=described if weights else None,
            weights_backbone=None,
            num_classes=len(described.meta["categories"]),
        )
    except OSError as exc:  # urllib's URLError is one
        raise ModelError(f"{name}: its weights can't be downloaded ({one_line(exc)}); see --no-weights") from exc
    if not weights:
        _settle(network, size)
    meaning = {
        "labels": described.meta["categories"],
        "mean": transforms.mean,
        "std": transforms.std,
        "channel_order": "rgb",
        "activation": "softmax",
    }
    export(_Scores(network), target, size, meaning)


def _settle(network: torch.nn.Module, size: tuple[int, int]) -> None:
    """Gives batch norms the statistics of noise: else values grow with each of a hundred random layers, beyond FP16."""
    norms = [module for module in network.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0  # the next pictures alone count
    with torch.no_grad():
        network.train()(torch.randn(2, 3, *size))
        for norm in norms:
            norm.running_var.clamp_(min=_LEAST_VARIANCE)


def export(network: torch.nn.Module, target: Path, size: tuple[int, int], meaning: Meaning) -> None:
    """Writes a network that maps (N, 3, H, W) to scores (N, C, h, w) as ONNX, with `meaning` as its metadata.

    The batch is dynamic; height and width are those of `size`.
    """
    torch.onnx.export(
        network.eval(),
        (torch.zeros(1, 3, *size),),
        target,
        input_names=["input"],
        output_names=["scores"],
        dynamic_axes={"input": {0: "N"}, "scores": {0: "N"}},
        opset_version=_OPSET,
        dynamo=False,  # the other exporter needs onnxscript as well
    )
    model = onnx.load(target)
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in meaning.items()}
    onnx.helper.set_model_props(model, texts)
    onnx.save(model, target)
