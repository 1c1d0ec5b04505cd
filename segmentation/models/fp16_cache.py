"""FP16 graphs for PyTorch, made once and kept beside the engines."""

import hashlib
import logging
from pathlib import Path

import numpy as np
import onnxruntime as ort

from segmentation.atomic_file import write_atomically
from segmentation.cache import engine_folder
from segmentation.models.model import Model
from segmentation.models.sample_picture import picture_inputs

log = logging.getLogger(__name__)

_OPSET = 13  # the first of which onnx2torch knows every operator here; graphs of older ones are converted


def fp16_graph(model: Model, batch: int) -> Path:
    """The ONNX file of `model` in FP16 for batches of one size, its input and output else as they were.

    With a fixed size, whatever a graph computes from its own shapes is folded into constants, so nothing in it is left
    to be asked for on the host. See `half.to_fp16`. Raises `EngineError`.
    """
    tensors = (model.output_name, model.form, model.height, model.width)
    meaning = (ort.__version__, model.mean, model.std, model.channel_order, *tensors, model.keep)
    key = hashlib.sha256(model.path.read_bytes() + repr(meaning).encode()).hexdigest()[:16]
    path = engine_folder() / f"{model.path.stem}-fp16-b{batch}-{key}.onnx"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, _converted(model, batch))
    return path


def _converted(model: Model, batch: int) -> bytes:
    # Only here: a second of imports that a run which finds the file does not need.
    from onnx import version_converter

    from segmentation.models.fp16 import to_fp16
    from segmentation.models.onnx_graph import for_one_picture, is_quantized, prepare

    graph = prepare(model, batch)
    if model.dtype is not np.float16 and not is_quantized(graph):
        graph, comparison = to_fp16(graph, model, picture_inputs(model), for_one_picture(model))
        log.info("%s in FP16: mask IoU %.4f with FP32", model.name, comparison.iou)
    if graph.opset_import[0].version < _OPSET:
        graph = version_converter.convert_version(graph, _OPSET)
    content: bytes = graph.SerializeToString()
    return content
