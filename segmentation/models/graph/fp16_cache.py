"""FP16 graphs for PyTorch, converted once and kept beside the engines."""

import hashlib
import logging
from pathlib import Path

import numpy as np
import onnxruntime as ort

from segmentation.errors import EngineError
from segmentation.models.graph.proven_fp16 import is_proven
from segmentation.models.model import Model
from segmentation.models.sample_picture import picture_inputs
from segmentation.system.cache import engine_folder, keep, locked, make_folder, read_kept

log = logging.getLogger(__name__)

_FORM = 2  # of the files: those that were written in another one are not read
_OPSET = 13  # the oldest whose operators onnx2torch has; graphs of older opsets are converted


def fp16_graph(model: Model, batch: int) -> Path:
    """Returns an ONNX file of `model` in FP16 for batches of one size, with its input and output as they were.

    With a fixed size, computations from shapes are folded into constants, so the GPU never waits for the host. Raises
    `EngineError`; see `fp16.to_fp16`.
    """
    if model.form.recurrent:
        raise EngineError(f"{model.path}: carries states from frame to frame, which PyTorch does not here")
    tensors = (model.output_name, model.form, model.height, model.width)
    meaning = (_FORM, ort.__version__, model.mean, model.std, model.channel_order, *tensors, model.keep)
    key = hashlib.sha256(model.path.read_bytes() + repr(meaning).encode()).hexdigest()[:16]
    path = engine_folder() / f"{model.path.stem}-fp16-b{batch}-{key}.onnx"
    if read_kept(path) is None:
        make_folder(path.parent)
        with locked(path):  # a session's processes begin at the same moment
            if read_kept(path) is None:
                log.warning("preparing the GPU for its first run: %s in FP16", model.name)
                keep(path, _converted(model, batch))
    return path


def _converted(model: Model, batch: int) -> bytes:
    """Returns the content of the file."""
    # Imported here, because these take a second, and most runs find the file.
    from onnx import version_converter

    from segmentation.models.graph.fp16 import in_fp16, to_fp16
    from segmentation.models.graph.onnx_graph import for_one_picture, is_quantized, prepare

    proven = is_proven(model)
    graph = prepare(model, batch, check=not proven)
    if proven:
        graph = in_fp16(graph, model, [])
    elif model.dtype is not np.float16 and not is_quantized(graph):
        graph, comparison = to_fp16(graph, model, picture_inputs(model), for_one_picture(model))
        log.info("%s in FP16: mask IoU %.4f with FP32", model.name, comparison.iou)
    if graph.opset_import[0].version < _OPSET:
        graph = version_converter.convert_version(graph, _OPSET)
    content: bytes = graph.SerializeToString()
    return content
