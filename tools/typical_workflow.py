"""Background blur as it is usually written, with OpenCV and ONNX Runtime: what `benchmark.py` compares with.

    python tools/typical_workflow.py INPUT OUTPUT

One loop, one frame at a time, as in most tutorials; nothing in it is slowed down on purpose. What it does not keep:
sound, timestamps and colour tags.
"""

import argparse
from pathlib import Path

import cv2
import numpy as np
import onnxruntime as ort

PERSON = Path(__file__).parent.parent / "segmentation" / "models" / "person.onnx"


def blur_background(
    source: str,
    target: str,
    model: str,
    mean: tuple[float, ...] = (0.5, 0.5, 0.5),
    std: tuple[float, ...] = (0.25, 0.25, 0.25),
    max_frames: int | None = None,
) -> int:
    """Writes `source` with its background blurred to `target`; returns the number of frames.

    `model` takes (1, 3, H, W) float32 `(rgb - mean) / std` with rgb in 0..1 and puts out (1, 1, h, w) probabilities.
    """
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    network_input = session.get_inputs()[0]
    height, width = network_input.shape[2:]
    capture = cv2.VideoCapture(source)
    size = (int(capture.get(cv2.CAP_PROP_FRAME_WIDTH)), int(capture.get(cv2.CAP_PROP_FRAME_HEIGHT)))
    writer = cv2.VideoWriter(target, cv2.VideoWriter.fourcc(*"mp4v"), capture.get(cv2.CAP_PROP_FPS), size)

    frames = 0
    while max_frames is None or frames < max_frames:
        ok, frame = capture.read()  # (H, W, 3) uint8 BGR
        if not ok:
            break
        small = cv2.resize(frame, (width, height))
        rgb = cv2.cvtColor(small, cv2.COLOR_BGR2RGB).astype(np.float32) / 255
        tensor = ((rgb - np.float32(mean)) / np.float32(std)).transpose(2, 0, 1)[np.newaxis]
        mask = session.run(None, {network_input.name: tensor})[0][0, 0]
        mask = cv2.resize(mask, size)[..., np.newaxis]  # (H, W, 1) float32 in 0..1
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
    parser.add_argument("--model", default=str(PERSON), help="default: the built-in one")
    options = parser.parse_args()
    print(f"{blur_background(options.input, options.output, options.model)} frames")


if __name__ == "__main__":
    main()
