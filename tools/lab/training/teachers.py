"""The teachers whose vote labels pictures: two of `people/vote.py` in the shared folder, BlazePose heavy, `person-hq`.

BlazePose heavy (Bazarevsky et al., 2020, https://arxiv.org/abs/2006.10204; Apache-2.0) comes from npm: `npm pack
@mediapipe/pose@0.5.1675469404`, `package/pose_landmark_heavy.tflite`. It runs on a crop for each person that
BlazePose's detector finds. The built-in `person-hq` is the one before the network that is trained.
"""

import importlib.util
import json
import math
from pathlib import Path
from types import ModuleType

import cv2
import numpy as np
import onnxruntime as ort

TEACHERS = ("humanseg", "deeplab", "blazepose-heavy", "person-hq")
WEIGHTS = np.array([1, 1, 1, 2], np.float32) / 5
SCALES = 1, 1.5  # of the input sizes of `person-hq`
JOINTS = 33
# Numbers of joints at the ends of limbs, by name; left and right.
ENDS = {"wrist": (15, 16), "fingers": (17, 18, 19, 20, 21, 22), "ankle": (27, 28), "heel": (29, 30), "toes": (31, 32)}


def vote(masks: np.ndarray) -> np.ndarray:
    """(4, h, w) uint8 of the teachers to their weighted mean, float32 in 0..1."""
    return np.tensordot(WEIGHTS, masks.astype(np.float32), 1) / 255


def shared_teachers(shared: Path) -> ModuleType:
    """`people/vote.py` as a module."""
    spec = importlib.util.spec_from_file_location("vote", shared / "people" / "vote.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class BuiltIn:
    """A built-in network at two sizes, and mirrored: the mean of four."""

    def __init__(self, path: Path, threads: int) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.shapes = json.loads(self.session.get_modelmeta().custom_metadata_map["input_size"])

    def __call__(self, rgb: np.ndarray) -> np.ndarray:
        """The probability of a person, float32 of the shape of `rgb` (H, W, 3) uint8."""
        height, width = rgb.shape[:2]
        shape = min(self.shapes, key=lambda shape: abs(math.log(shape[1] / shape[0] * height / width)))
        total = np.zeros((height, width), np.float32)
        for scale in SCALES:
            size = tuple(round(side * scale / 16) * 16 for side in reversed(shape))
            small = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA if size[0] < width else cv2.INTER_LINEAR)
            x = (small.astype(np.float32) / 127.5 - 1).transpose(2, 0, 1)
            for mirrored in (x, x[..., ::-1]):
                total += cv2.resize(self._run(mirrored, flip=mirrored is not x), (width, height)) / (2 * len(SCALES))
        return total

    def _run(self, x: np.ndarray, flip: bool) -> np.ndarray:
        mask = self.session.run(None, {"input": np.ascontiguousarray(x[None])})[0][0, 0]
        return np.ascontiguousarray(mask[:, ::-1]) if flip else mask


class Heavy:
    """BlazePose heavy on a crop of each person."""

    def __init__(self, module: ModuleType, path: Path) -> None:
        self.pose = module.BlazePose()
        self.network = module.Lite(str(path.resolve()))

    def __call__(self, rgb: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The probability of a person (H, W), and joints (people, 33, 3): x, y in pixels, whether it can be seen."""
        height, width = rgb.shape[:2]
        total, joints = np.zeros((height, width), np.float32), []
        for x0, y0, x1, y1 in self.pose.everywhere(rgb):
            scale = 2 * np.hypot(x1 - x0, y1 - y0) * 1.25 / 256
            angle = np.arctan2(y1 - y0, x1 - x0) + np.pi / 2
            c, s = scale * np.cos(angle), scale * np.sin(angle)
            place = np.float32([[c, -s, x0 - 128 * (c - s)], [s, c, y0 - 128 * (s + c)]])
            crop = cv2.warpAffine(rgb, place, (256, 256), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)
            outputs = {o.shape: o[0] for o in self.network((crop.astype(np.float32) / 255)[None])}
            if outputs[1, 1][0] < 0.5:  # no person
                continue
            mask = _sigmoid(outputs[1, 256, 256, 1][..., 0])
            total = np.maximum(total, cv2.warpAffine(mask, place, (width, height), flags=cv2.INTER_LINEAR))
            points = outputs[1, 195].reshape(-1, 5)[:JOINTS]
            at = np.c_[points[:, :2], np.ones(JOINTS)] @ place.T
            joints.append(np.c_[at, _sigmoid(points[:, 3])])
        return total, np.array(joints, np.float32).reshape(-1, JOINTS, 3)


class Teachers:
    """All teachers. `heavy` and `former` are the files of BlazePose heavy and of the former `person-hq`."""

    def __init__(self, shared: Path, heavy: Path, former: Path, threads: int = 1) -> None:
        module = shared_teachers(shared)
        self.human, self.deeplab = module.HumanSeg(), module.DeepLab()
        self.heavy, self.former = Heavy(module, heavy), BuiltIn(former, threads)

    def __call__(self, rgb: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Masks (4, H, W) uint8 in the order of `TEACHERS`, and the joints as parts of width and height."""
        height, width = rgb.shape[:2]
        mirrored = np.ascontiguousarray(rgb[:, ::-1])
        pose, joints = self.heavy(rgb)
        deeplab = (self.deeplab(rgb) + self.deeplab(mirrored)[:, ::-1]) / 2
        found = [cv2.resize(mask, (width, height)) for mask in (self.human(rgb), deeplab, pose, self.former(rgb))]
        return (np.clip(found, 0, 1) * 255).round().astype(np.uint8), joints / np.float32([width, height, 1])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(x, -60, 60)))
