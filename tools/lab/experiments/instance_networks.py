"""Measures whole runs with a network that finds single things, on the CPU by ONNX Runtime and on a GPU by PyTorch.

    python tools/lab/experiments/instance_networks.py samples/astronaut.mp4 -o instances.json

Without --model the network is one of random weights as large as a small YOLO-seg: 640x640, 80 classes, 32 prototypes,
about 11 GFLOP. Its threshold lets some 100 boxes of a picture through. Pipelines take turns, after a run that is not
measured, with and without ids. `network_times.py` times the network alone.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))  # the tools are programs, not a package

from circumstances import ROOT, circumstances
from secondary_networks import measure

from segmentation.models.sample_picture import PICTURE

SIZE, CLASSES, PROTOTYPES, STRIDES = 640, 80, 32, (8, 16, 32)
THRESHOLD = 0.25
PROPOSED = 100  # boxes of a picture above the threshold
# Channels and stride of each convolution of 3x3; the outputs of those that end a list go to the heads.
BODY = (((32, 2), (64, 2), (64, 1), (64, 1)), ((128, 2), (128, 1)), ((256, 2), (256, 1)), ((256, 2),))


class Graph:
    """Nodes and random weights of a network in the making."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, NDArray[Any]] = {}
        self._random = np.random.default_rng(0)

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node, and returns the name of its output."""
        name = f"{op}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def constant(self, value: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(value)
        return name

    def convolution(self, source: str, before: int, after: int, side: int, stride: int = 1) -> str:
        scale = np.sqrt(2 / (before * side * side))
        kernel = self.constant((scale * self._random.standard_normal((after, before, side, side))).astype(np.float32))
        return self.add("Conv", source, kernel, strides=[stride] * 2, pads=[side // 2] * 4)

    def model(self, outputs: dict[str, list[Any]]) -> onnx.ModelProto:
        """Returns the network with these outputs, by name with their shapes."""
        value = helper.make_tensor_value_info
        constants = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        source = value("images", TensorProto.FLOAT, ["N", 3, SIZE, SIZE])
        targets = [value(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()]
        graph = helper.make_graph(self.nodes, "net", [source], targets, constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def random_yolo(path: Path) -> Path:
    """Writes the network: boxes around the cells of three grids, scores, and coefficients of prototypes."""
    graph, layer, channels, levels = Graph(), "images", 3, []
    for part in BODY:
        for wide, stride in part:
            raw = graph.convolution(layer, channels, wide, 3, stride)
            layer, channels = graph.add("Mul", raw, graph.add("Sigmoid", raw)), wide
        levels.append((layer, channels))

    def head(columns: int) -> str:
        """Returns an output (N, columns, cells) of all grids."""
        flat = graph.constant(np.array([0, columns, -1]))
        grids = [graph.add("Reshape", graph.convolution(*level, columns, 1), flat) for level in levels[1:]]
        return graph.add("Concat", *grids, axis=2)

    sides = [SIZE // stride for stride in STRIDES]
    stride = np.repeat(STRIDES, [side * side for side in sides]).astype(np.float32)
    corners = np.hstack([np.mgrid[:side, :side][::-1].reshape(2, -1) for side in sides]) * stride
    scale = graph.constant(np.stack([stride, stride, 8 * stride, 8 * stride])[None])
    offset = graph.constant(np.vstack([corners, 0 * corners])[None].astype(np.float32))
    boxes = graph.add("Add", graph.add("Mul", graph.add("Sigmoid", head(4)), scale), offset)
    logits = head(CLASSES)
    scores = graph.add("Sigmoid", graph.add("Add", logits, graph.constant(_shift(graph, logits))))
    found = graph.add("Concat", boxes, scores, head(PROTOTYPES), axis=1)
    prototypes = graph.convolution(*levels[0], PROTOTYPES, 1)
    quarter = SIZE // 4
    outputs = {found: ["N", 4 + CLASSES + PROTOTYPES, len(stride)], prototypes: ["N", PROTOTYPES, quarter, quarter]}
    onnx.save(graph.model(outputs), path)
    return path


def _shift(graph: Graph, scores: str) -> NDArray[np.float32]:
    """Returns what brings the first class, a person, above the threshold in `PROPOSED` cells of a photograph.

    (1, CLASSES, 1) float32; the other classes are below.
    """
    session = ort.InferenceSession(graph.model({scores: ["N", CLASSES, "P"]}).SerializeToString())
    photo = cv2.imread(str(PICTURE))
    assert photo is not None
    small = cv2.resize(photo, (SIZE, SIZE), interpolation=cv2.INTER_AREA)[..., ::-1].astype(np.float32) / 255
    (found,) = session.run([scores], {"images": small.transpose(2, 0, 1)[None]})
    shift = np.full((1, CLASSES, 1), -100, np.float32)
    shift[0, 0] = np.log(THRESHOLD / (1 - THRESHOLD)) - np.sort(found[0, 0])[-PROPOSED - 1 : -PROPOSED + 1].mean()
    return shift


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", nargs="+")
    parser.add_argument("--model", type=Path, help="a network that finds single things (default: one is made)")
    parser.add_argument("--keep", type=Path, help="where to write the network that is made, for other tools")
    parser.add_argument("--repeats", type=int, default=3, help="measured runs of each pipeline (default: 3)")
    parser.add_argument(
        "-o", "--output", type=Path, default=ROOT / "tools" / "lab" / "results" / "instance-networks.json"
    )
    options = parser.parse_args()
    about = circumstances(f"lab/experiments/{Path(__file__).name}", sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or random_yolo(options.keep or Path(folder) / "yolo-seg-random.onnx")
        pipelines = {
            f"{infer}{', ids' if track else ''}": {"model": model, "infer": infer, "track": track}
            for track in (None, "balanced")
            for infer in ("torch-instances", "instances")
        }
        result = {**about, "milliseconds_a_frame": measure(options.videos, pipelines, options.repeats)}
    options.output.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result["milliseconds_a_frame"], indent=2))


if __name__ == "__main__":
    main()
