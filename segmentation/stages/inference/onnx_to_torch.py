"""ONNX networks as PyTorch modules, through onnx2torch."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from segmentation.errors import UnknownOperator
from segmentation.models.model import Model
from segmentation.models.scores import LEAST_SPAN


def convert(path: Path, device: torch.device, graph: Any = None) -> torch.nn.Module:
    """The network of an ONNX file, or its `graph` (a ModelProto) where that differs, on `device`, ready to be captured.

    Raises `UnknownOperator`.
    """
    try:
        net: Any = _onnx2torch().convert(str(path) if graph is None else graph).eval().to(device)
    except NotImplementedError as exc:
        raise UnknownOperator(f"{path}: PyTorch can't run it ({exc}); use --infer onnxruntime or tensorrt") from exc
    # Resize reads its scales and sizes on the host each time: kept there, nothing waits for the GPU.
    for node in net.graph.nodes:
        if node.op == "call_module" and type(net.get_submodule(node.target)).__name__ == "OnnxResize":
            for source in node.all_input_nodes[1:]:
                owner, _, name = source.target.rpartition(".")
                if source.op == "call_module":
                    net.get_submodule(source.target).cpu()
                elif source.op == "get_attr":
                    holder = net.get_submodule(owner)
                    setattr(holder, name, getattr(holder, name).cpu())
    return net


@torch.inference_mode()  # type: ignore[untyped-decorator]
def likeliest(scores: Any, model: Model) -> torch.Tensor:
    """(N, C, h, w) scores to (N, h, w) uint8, see `inference.Found`."""
    return torch.stack([_main(scores)[:, k] for k in model.keep]).argmax(dim=0).to(torch.uint8)


@torch.inference_mode()  # type: ignore[untyped-decorator]
def probabilities(scores: Any, model: Model) -> torch.Tensor:
    """(N, C, h, w) scores to (N, h, w) float32 probability that a place belongs to one of `model.keep`."""
    scores = _main(scores).float()
    if model.activation == "softmax":
        scores = scores.softmax(dim=1)
    elif model.activation == "sigmoid":
        scores = scores.sigmoid()
    kept = torch.stack([scores[:, k] for k in model.keep])  # a list as index would be copied from the host each time
    chosen = kept.sum(dim=0) if model.activation in ("none", "softmax") else kept.amax(dim=0)
    if model.activation == "minmax":
        least, most = chosen.amin(dim=(1, 2), keepdim=True), chosen.amax(dim=(1, 2), keepdim=True)
        chosen = (chosen - least) / (most - least).clamp(min=float(LEAST_SPAN))
    return chosen.clamp(0, 1)


def _main(scores: Any) -> torch.Tensor:
    """The output that counts: auxiliary ones follow it."""
    main: torch.Tensor = scores[0] if isinstance(scores, (tuple, list)) else scores
    return main


def _onnx2torch() -> Any:
    """onnx2torch, without torchvision: it needs that for two operators of object detectors alone, and importing it
    takes a second."""
    if "torchvision" in sys.modules:
        import onnx2torch

        return onnx2torch
    stand_in, operators = ModuleType("torchvision"), ModuleType("torchvision.ops")
    stand_in.ops, operators.roi_align = operators, None  # type: ignore[attr-defined]
    sys.modules.update({"torchvision": stand_in, "torchvision.ops": operators})
    try:
        import onnx2torch

        return onnx2torch
    finally:
        del sys.modules["torchvision"], sys.modules["torchvision.ops"]
