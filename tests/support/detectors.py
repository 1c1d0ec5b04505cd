"""Small networks in the layouts of those that find single things. They give the same instances for each picture."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from references import SIZE, sigmoid

Arrays = dict[str, NDArray[Any]]
CELLS = (SIZE // 8) ** 2 + (SIZE // 16) ** 2 + (SIZE // 32) ** 2
KINDS = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}


def make_detector(
    path: Path,
    outputs: Arrays,
    *,
    size: tuple[int, int] = (64, 64),
    batch: Any = "N",
    single: bool = False,
    metadata: dict[str, str] | None = None,
) -> Path:
    """A network whose outputs for each picture are these; `single` ones have no batch dimension."""
    axes = "c_axes" if single else "axes"
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0, 1, 2] if single else [1, 2, 3], keepdims=0),
        helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
    ]
    weights = {"zero": np.float32(0)}
    for name, array in outputs.items():
        weights[f"{name}/value"] = array.astype(np.float32)[None] if not single else array.astype(np.float32)
        shape = [1] * array.ndim if single else [-1] + [1] * array.ndim
        weights[f"{name}/{axes}"] = np.array(shape, np.int64)
        kind = KINDS[array.dtype]
        nodes += [
            helper.make_node("Reshape", ["nothing", f"{name}/{axes}"], [f"{name}/nothing"]),
            helper.make_node("Add", [f"{name}/value", f"{name}/nothing"], [f"{name}/sum"]),
            helper.make_node("Cast", [f"{name}/sum"], [name], to=kind),
        ]
    lead = [] if single else [batch]
    save(
        path,
        nodes,
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [*lead, 3, *size]),
        [helper.make_tensor_value_info(n, KINDS[a.dtype], [*lead, *a.shape]) for n, a in outputs.items()],
        weights,
        metadata,
    )
    return path


def red_yolo(path: Path, size: tuple[int, int] = (64, 64), *, batch: Any = "N") -> Path:
    """A YOLO of one instance that covers the input, whose mask is where the picture is red. Class 0 of 80."""
    found = np.zeros((84 + 32, sum((size[0] // s) * (size[1] // s) for s in (8, 16, 32))), np.float32)
    found[:4, 0] = size[1] / 2, size[0] / 2, size[1], size[0]
    found[4, 0], found[84, 0] = 0.9, 1
    red = np.zeros((32, 3, 4, 4), np.float32)
    red[0, 0], red[0, 1] = 20 / 16, -20 / 16
    offset = np.zeros(32, np.float32)
    offset[0] = -10
    nodes = [
        helper.make_node("Conv", ["x", "red", "offset"], ["output1"], strides=[4, 4]),
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[1, 2, 3], keepdims=0),
        helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
        helper.make_node("Reshape", ["nothing", "axes"], ["column"]),
        helper.make_node("Add", ["found", "column"], ["output0"]),
    ]
    weights = {
        "red": red,
        "offset": offset,
        "zero": np.float32(0),
        "axes": np.array([-1 if batch == "N" else batch, 1, 1], np.int64),
        "found": found[None],
    }
    value = helper.make_tensor_value_info
    save(
        path,
        nodes,
        value("x", TensorProto.FLOAT, [batch, 3, *size]),
        [
            value("output0", TensorProto.FLOAT, [batch, *found.shape]),
            value("output1", TensorProto.FLOAT, [batch, 32, size[0] // 4, size[1] // 4]),
        ],
        weights,
        None,
    )
    return path


def save(
    path: Path,
    nodes: list[onnx.NodeProto],
    source: onnx.ValueInfoProto,
    outputs: list[onnx.ValueInfoProto],
    weights: dict[str, Any],
    metadata: dict[str, str] | None,
) -> None:
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "net", [source], outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, metadata or {})
    onnx.save(model, path)


def blobs(count: int, height: int, width: int, seed: int = 0) -> NDArray[np.float32]:
    """Smooth logits (count, height, width): a disc for each, positive inside."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    centers = rng.uniform(0.2, 0.8, (count, 2)) * (height, width)
    radius = rng.uniform(0.15, 0.3, count) * min(height, width)
    far = np.hypot(y - centers[:, 0, None, None], x - centers[:, 1, None, None])
    return ((radius[:, None, None] - far) * 2).astype(np.float32)


def color_classifier(path: Path, *, batch: Any = "N", size: tuple[int, int] = (32, 32)) -> Path:
    """A classifier that says which of red, green and blue a picture has most of, in logits."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[2, 3], keepdims=0),
        helper.make_node("Mul", ["mean", "ten"], ["y"]),
    ]
    save(
        path,
        nodes,
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, *size]),
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 3])],
        {"ten": np.float32(10)},
        {"task": "classifier", "labels": '["red", "green", "blue"]'},
    )
    return path


def red_box(path: Path, *, size: tuple[int, int] = (32, 32)) -> Path:
    """An SSD of one box in the middle of the picture, half as wide and high, whose score is the mean of red."""
    nodes = [
        helper.make_node("Conv", ["x", "red"], ["reds"]),
        helper.make_node("ReduceMean", ["reds"], ["mean"], axes=[2, 3], keepdims=1),
        helper.make_node("Reshape", ["mean", "shape"], ["score"]),
        helper.make_node("Mul", ["score", "zero"], ["nothing"]),
        helper.make_node("Concat", ["nothing", "score"], ["scores"], axis=2),
        helper.make_node("Add", ["nothing", "middle"], ["boxes"]),
    ]
    weights = {
        "red": np.array([1, 0, 0], np.float32).reshape(1, 3, 1, 1),
        "shape": np.array([-1, 1, 1], np.int64),
        "zero": np.float32(0),
        "middle": np.array([[[0.25, 0.25, 0.75, 0.75]]], np.float32),
    }
    value = helper.make_tensor_value_info
    save(
        path,
        nodes,
        value("x", TensorProto.FLOAT, ["N", 3, *size]),
        [value("scores", TensorProto.FLOAT, ["N", 1, 2]), value("boxes", TensorProto.FLOAT, ["N", 1, 4])],
        weights,
        {"labels": '["background", "spot"]', "score_threshold": "0.1"},
    )
    return path


def outputs_of(task: str, seed: int = 3) -> Arrays:
    """Outputs of one picture of `SIZE` in this layout: some 10 things, many of them twice and a little apart."""
    rng = np.random.default_rng(seed)
    count = 6
    corner, side = rng.uniform(2, 30, (count, 2)), rng.uniform(10, 30, (count, 2))
    center = np.hstack([corner + side / 2, side])
    corners = np.hstack([corner, corner + side])
    scores = rng.uniform(0.1, 0.95, (count, 5))
    twice = np.repeat(np.arange(count), 3)
    shaken = center[twice] + rng.uniform(-1.5, 1.5, (len(twice), 4))
    made: Arrays = {}
    if task == "rf-detr":
        logits = np.log(scores / (1 - scores))
        made = {"dets": center / SIZE, "labels": logits, "masks": blobs(count, 16, 16, seed)}
    elif task == "rtmdet-ins":
        masks = sigmoid(blobs(count, SIZE, SIZE, seed))
        made = {"dets": np.hstack([corners, scores[:, :1]]), "labels": np.arange(count) % 5, "masks": masks}
    elif task == "mask-rcnn":
        masks = sigmoid(blobs(count, SIZE, SIZE, seed)[:, None])
        made = {"boxes": corners, "labels": np.arange(count) + 1, "scores": scores.max(axis=1), "masks": masks}
    elif task in ("yolo-seg", "yolo"):
        columns = np.zeros((9, CELLS))
        columns[:4, : len(twice)], columns[4:, : len(twice)] = shaken.T, scores[twice].T
        columns[4:, : len(twice)] -= rng.uniform(0, 0.05, (5, len(twice)))
        made = {"output0": columns}
        if task == "yolo-seg":
            shares = rng.normal(size=(32, CELLS))
            made = {"output0": np.vstack([columns, shares]), "output1": blobs(32, 16, 16, seed)}
    elif task == "yolov5":
        rows = np.zeros((3 * CELLS, 10))
        rows[: len(twice)] = np.hstack([shaken, rng.uniform(0.6, 1, (len(twice), 1)), scores[twice]])
        made = {"output0": rows}
    elif task == "yunet":
        for stride in (8, 16, 32):
            cells = (SIZE // stride) ** 2
            made[f"cls_{stride}"], made[f"obj_{stride}"] = rng.uniform(-0.1, 1.1, (2, cells, 1))
            made[f"bbox_{stride}"] = rng.uniform(-0.5, 0.9, (cells, 4))
    else:
        made = {"scores": np.hstack([1 - scores[twice][:, :1], scores[twice]]), "boxes": corners[twice] / SIZE}
    return {name: array if array.dtype == np.int64 else array.astype(np.float32) for name, array in made.items()}
