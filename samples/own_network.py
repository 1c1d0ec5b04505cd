"""Segments with a network of one's own, a Python function: python samples/own_network.py [VIDEO [OUTPUT]]

This one asks the built-in network twice, about the picture and about its mirror image, and takes the mean.
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort

import segmentation

folder = Path(segmentation.__file__).parent
session = ort.InferenceSession(folder / "models" / "person.onnx")


def both_ways(pictures: np.ndarray) -> np.ndarray:
    """Takes pictures (N, 3, H, W) float32, returns probabilities (N, 1, H, W)."""
    mirrored = np.ascontiguousarray(pictures[..., ::-1])
    (found,), (other,) = session.run(None, {"input": pictures}), session.run(None, {"input": mirrored})
    return (found + other[..., ::-1]) / 2


video = sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).parent / "astronaut.mp4")
target = sys.argv[2] if len(sys.argv) > 2 else "astronaut.segmented.mp4"
normalized = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}  # what `pictures` are, from RGB in 0..1
report = segmentation.segment(video, target, model=both_ways, input_size=(192, 336), overwrite=True, **normalized)
print(f"{report.output}: {report.frames} frames, {report.plan['infer']}")
