"""Background blur as it is usually written, with OpenCV and ONNX Runtime or PyTorch: what is compared with.

    python tools/benchmarks/typical_workflow.py INPUT OUTPUT
    python tools/benchmarks/typical_workflow.py INPUT OUTPUT --device cuda --model fcn_resnet50

One loop, one frame at a time, as in most tutorials; nothing in it is slowed down on purpose. On a GPU only the network
runs there, eager and in FP32. What it does not keep: sound, timestamps and color tags.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import segmentation  # noqa: F401 - before onnxruntime: switches its telemetry off

# isort: split
import cv2
import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from segmentation import Config
from segmentation.media.opening.probe import probe
from segmentation.models.model import Model, load_model

Three = tuple[float, float, float]


@dataclass(frozen=True)
class Network:
    """`run` takes (1, 3, height, width) float32, `(rgb - mean) / std` with rgb in 0..1, to (h, w) probabilities."""

    run: Callable[[NDArray[np.float32]], NDArray[np.float32]]
    height: int
    width: int
    mean: Three
    std: Three


def on_cpu(model: Model) -> Network:
    """A network that puts out (1, 1, h, w) probabilities, on ONNX Runtime."""
    session = ort.InferenceSession(str(model.path), providers=["CPUExecutionProvider"])
    return Network(
        lambda tensor: session.run([model.output_name], {model.input_name: tensor})[0][0, 0],
        *(model.height, model.width, model.mean, model.std),
    )


def on_gpu(model: str, source: str, device: str = "cuda") -> Network:
    """A network of `torch_network` for the video `source`, with PyTorch in FP32."""
    import torch  # only here: without a GPU it need not be installed
    from torch_network import TorchNetwork

    network = TorchNetwork(model, probe(source), torch.device(device))
    return Network(
        lambda tensor: network(torch.from_numpy(tensor).to(device))[0].cpu().numpy(),
        *(network.height, network.width, network.mean, network.std),
    )


def blur_background(source: str, target: str, network: Network, max_frames: int | None = None) -> int:
    """Writes `source` with its background blurred to `target`; returns the number of frames."""
    capture = cv2.VideoCapture(source)
    size = (int(capture.get(cv2.CAP_PROP_FRAME_WIDTH)), int(capture.get(cv2.CAP_PROP_FRAME_HEIGHT)))
    writer = cv2.VideoWriter(target, cv2.VideoWriter.fourcc(*"mp4v"), capture.get(cv2.CAP_PROP_FPS), size)

    frames = 0
    while max_frames is None or frames < max_frames:
        ok, frame = capture.read()  # (H, W, 3) uint8 BGR
        if not ok:
            break
        small = cv2.resize(frame, (network.width, network.height))
        rgb = cv2.cvtColor(small, cv2.COLOR_BGR2RGB).astype(np.float32) / 255
        tensor = ((rgb - np.float32(network.mean)) / np.float32(network.std)).transpose(2, 0, 1)[np.newaxis]
        mask = cv2.resize(network.run(tensor), size)[..., np.newaxis]  # (H, W, 1) float32 in 0..1
        blurred = cv2.GaussianBlur(frame, (31, 31), 0)
        blended = frame * mask + blurred * (1 - mask)
        writer.write(blended.astype(np.uint8))
        frames += 1

    capture.release()
    writer.release()
    return frames


def main() -> None:
    parser = argparse.ArgumentParser(description="Blurs the background of a video in the usual way.")
    parser.add_argument("input")
    parser.add_argument("output", help="an .mp4 file")
    parser.add_argument("--model", default="person", help="an ONNX file (default: the built-in network)")
    parser.add_argument("--device", default="cpu", help="cpu: ONNX Runtime (default); cuda: PyTorch")
    options = parser.parse_args()
    if options.device == "cpu":
        network = on_cpu(load_model(Config(model=options.model), probe(options.input)))
    else:
        network = on_gpu(options.model, options.input, options.device)
    print(f"{blur_background(options.input, options.output, network)} frames")


if __name__ == "__main__":
    main()
