"""ONNX networks as PyTorch modules: converted once by onnx2torch, then loaded from the cache."""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch.fx import GraphModule

from segmentation.errors import BackendError, UnknownOperator, one_line
from segmentation.gpu.discovery import installed_version
from segmentation.models.model import Model
from segmentation.models.scores import LEAST_SPAN
from segmentation.stages.inference.compiler.recorded import UnrecordableError, is_recorded, load, record, store
from segmentation.system.cache import engine_folder, keep, read_kept
from segmentation.system.installation import install

if TYPE_CHECKING:
    import onnx

log = logging.getLogger(__name__)

Scores: TypeAlias = torch.Tensor | Sequence[torch.Tensor]  # (N, C, h, w), in a list with auxiliary outputs behind

_FORMAT = 1  # of the cached files
_INSTALL = install("gpu")


def cached_network(
    name: str, origin: Sequence[object], example: torch.Tensor, build: Callable[[], GraphModule], *, outputs: int = 1
) -> GraphModule:
    """Returns the network that `build` makes, for inputs of the shape, type and device of `example`.

    The network is recorded, unless it is already, into a file of the cache folder, whose name begins with `name`. Later
    calls load the file, without importing onnx2torch and the libraries that it needs. `origin` names all that `build`
    depends on. A recorded network returns the first `outputs` of its outputs alone, see `record`.
    """
    versions = _FORMAT, torch.__version__, installed_version("onnx2torch")
    facts = *origin, *versions, tuple(example.shape), example.dtype, example.device
    path = engine_folder() / f"{name}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}.pt"
    if (data := read_kept(path)) is not None:
        try:
            return load(BytesIO(data))
        except ValueError as exc:
            log.warning("%s: %s; it is made again", path, exc)
    net = build()
    try:
        recorded = net if is_recorded(net) else record(net, example, outputs=outputs)
    except UnrecordableError as exc:
        log.info("%s is converted at each start: %s", name, exc)
        return net
    try:
        keep(path, store(recorded))
    except OSError as exc:
        log.warning("%s: the converted network cannot be written (%s)", path, one_line(exc))
    return recorded


def convert(path: Path, device: torch.device, graph: onnx.ModelProto | None = None) -> GraphModule:
    """Returns the network of an ONNX file on `device`, ready to be captured. `graph` replaces the file's own graph.

    Raises `UnknownOperator`, and `BackendError` if onnx2torch can't be imported.
    """
    try:
        import onnx2torch  # imports torchvision, for operators of object detectors
    except ModuleNotFoundError as exc:
        raise BackendError(f"the package {exc.name} is not installed; {_INSTALL}") from exc
    except Exception as exc:  # a torchvision that was built for another PyTorch raises a RuntimeError
        raise BackendError(f"onnx2torch can't be imported ({one_line(exc)}); {_INSTALL}") from exc
    try:
        net: GraphModule = onnx2torch.convert(str(path) if graph is None else graph).eval().to(device)
    except NotImplementedError as exc:
        raise UnknownOperator(f"{path}: PyTorch can't run it ({exc}); use --infer onnxruntime or tensorrt") from exc
    _keep_sizes_on_host(net)
    return net


def _keep_sizes_on_host(net: GraphModule) -> None:
    """Moves the scales and sizes of Resize to the host, which reads them in each run and would wait for the GPU."""
    for node in net.graph.nodes:
        if node.op != "call_module" or type(net.get_submodule(node.target)).__name__ != "OnnxResize":
            continue
        for source in node.all_input_nodes[1:]:
            if source.op == "call_module":
                net.get_submodule(source.target).cpu()
            elif source.op == "get_attr":
                owner, _, name = source.target.rpartition(".")
                holder = net.get_submodule(owner)
                setattr(holder, name, getattr(holder, name).cpu())


@torch.inference_mode()  # type: ignore[untyped-decorator]
def likeliest(scores: Scores, model: Model) -> torch.Tensor:
    """Returns the index into `model.keep` of the likeliest class at each place, (N, h, w) uint8."""
    return torch.stack([main_output(scores)[:, k] for k in model.keep]).argmax(dim=0).to(torch.uint8)


@torch.inference_mode()  # type: ignore[untyped-decorator]
def probabilities(scores: Scores, model: Model, out: torch.Tensor | None = None) -> torch.Tensor:
    """Returns the probability that a place belongs to one of `model.keep`, (N, h, w) float32, written to `out`.

    It is NaN where a score is no number or infinite, as on the host.
    """
    scores = given = main_output(scores)
    if model.activation == "softmax":  # channels lie side by side in memory: one kernel, where dim=1 takes three
        scores = scores.permute(0, 2, 3, 1).softmax(dim=-1, dtype=torch.float32).permute(0, 3, 1, 2)
    scores = scores.float()
    if model.activation == "sigmoid":
        scores = scores.sigmoid()
    first, *others = (scores[:, k] for k in model.keep)  # a list as index would be copied from the host each time
    both = torch.add if model.activation in ("none", "softmax") else torch.maximum
    chosen = functools.reduce(both, others, first)
    if model.activation == "minmax":
        least, most = chosen.amin(dim=(1, 2), keepdim=True), chosen.amax(dim=(1, 2), keepdim=True)
        chosen = (chosen - least) / (most - least).clamp(min=float(LEAST_SPAN))
    if model.activation != "softmax":  # in which infinity gives NaN by itself
        chosen = chosen + 0 * functools.reduce(torch.add, (given[:, k].float() for k in model.keep))
    return torch.clamp(chosen, 0, 1, out=out)


def main_output(scores: Scores) -> torch.Tensor:
    """Returns the network's first output."""
    main: torch.Tensor = scores[0] if isinstance(scores, (tuple, list)) else scores
    return main
