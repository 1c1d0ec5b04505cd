"""Measure a person model against the teacher it was distilled from, on people and rooms it was not trained on.

    python tools/evaluate.py segmentation/models/person.onnx

Agreement is the IoU of two masks at the network's size, frame by frame: the student's (one pass, above 0.5) and the
teacher's (the mean over the picture and its mirror image, above 0.5). Two empty masks agree fully (1); a mask where
the other is empty counts 0. False alarms are the pixels above 0.5 in frames that show nobody; the teacher has no say
there. The teacher is another model, not the truth: agreement says how well it was copied, not how good it is.
"""

import argparse
import datetime
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import onnxruntime

SIZE = 256  # both networks' input, pixels a side
TEACHER = Path("models/prisma-portrait.onnx")  # below the shared folder

# Held out from training, with the stride at which frames are taken: neighbours differ little, and the teacher is slow.
HELD_OUT_PERSON = {"clips/signing-eat.mkv": 1, "clips/signing-night.mkv": 1, "clips/signing-sister.mkv": 1}
HELD_OUT_CLIPS = {
    "corpus/05_default_juggle.mp4": 4,
    "corpus/selfie_segmentation_web.mp4": 4,
    "corpus/sample_fragmented.mp4": 1,
}
WALKING, BOTTLES = "clips/person-walking.mp4", "corpus/bottle-detection.mp4"
# First and last frame of each stretch that shows no part of a person, found by looking at the frames.
EMPTY_WALKING = [(0, 59), (205, 225), (455, 500), (706, 742), (876, 919), (1209, 1232), (1369, 1391)]
HANDS_IN_BOTTLES = [(168, 212), (343, 406), (472, 532), (664, 734), (818, 868), (921, 953), (1046, 1101)]
EMPTY_STRIDE = 5
# Frames of nobody before these indices are trained on as such (tools/train.py); those after them are not.
BOTTLES_HALF, WALKING_HALF = 595, 696


@dataclass(frozen=True)
class Network:
    """An ONNX model with what turns RGB into its input."""

    session: onnxruntime.InferenceSession
    mean: np.ndarray  # (3,) float32, of RGB in 0..1
    std: np.ndarray  # (3,) float32

    @classmethod
    def load(cls, path: Path, threads: int) -> "Network":
        """Read a model; one without `mean` and `std` in its metadata takes RGB in 0..1 as it is."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        metadata = session.get_modelmeta().custom_metadata_map
        mean, std = (
            np.array(json.loads(metadata.get(key, default)), np.float32)
            for key, default in (("mean", "[0, 0, 0]"), ("std", "[1, 1, 1]"))
        )
        return cls(session, mean, std)

    def tensor(self, rgb: np.ndarray) -> np.ndarray:
        """(256, 256, 3) uint8 -> (1, 3, 256, 256) float32 as the network wants it."""
        return ((rgb.astype(np.float32) / 255 - self.mean) / self.std).transpose(2, 0, 1)[None]

    def run(self, batch: np.ndarray) -> np.ndarray:
        """(1, 3, 256, 256) float32 -> (256, 256) probability of a person."""
        return self.session.run(None, {self.session.get_inputs()[0].name: batch})[0][0, 0]


def frames(path: Path, stride: int) -> Iterator[tuple[int, np.ndarray]]:
    """Every `stride`-th frame's index and picture: RGB by the stream's own matrix and range, (256, 256, 3) uint8."""
    with av.open(path) as container:
        for index, frame in enumerate(container.decode(video=0)):
            if index % stride == 0:
                rgb = frame.to_ndarray(format="rgb24")
                yield index, cv2.resize(rgb, (SIZE, SIZE), interpolation=cv2.INTER_AREA)


def iou(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union of two boolean masks; 1 if both are empty."""
    union = np.count_nonzero(a | b)
    return np.count_nonzero(a & b) / union if union else 1.0


def agreement(student: Network, teacher: Network, path: Path, stride: int) -> dict[str, float | int]:
    """How well the student's masks of one clip match the teacher's: IoU over frames, mean and least."""
    scores, nobody = [], 0
    for _, rgb in frames(path, stride):
        batch = teacher.tensor(rgb)
        mirrored = teacher.run(np.ascontiguousarray(batch[..., ::-1]))[:, ::-1]
        wanted = (teacher.run(batch) + mirrored) / 2 > 0.5
        nobody += not wanted.any()
        scores.append(iou(student.run(student.tensor(rgb)) > 0.5, wanted))
    return {
        "frames": len(scores),
        "stride": stride,
        "iou_mean": float(np.mean(scores)),
        "iou_min": float(np.min(scores)),
        "frames_where_teacher_sees_nobody": nobody,
    }


def false_alarms(student: Network, path: Path, ranges: list[tuple[int, int]], stride: int) -> dict[str, float | int]:
    """Share of pixels called person in frames within `ranges` (first and last included): mean, and the worst frame."""
    shares = [
        float((student.run(student.tensor(rgb)) > 0.5).mean())
        for index, rgb in frames(path, stride)
        if any(first <= index <= last for first, last in ranges)
    ]
    return {
        "frames": len(shares),
        "stride": stride,
        "person_mean": float(np.mean(shares)),
        "person_max": float(np.max(shares)),
    }


def outside(ranges: list[tuple[int, int]], end: int = 10**9) -> list[tuple[int, int]]:
    """The stretches between sorted `ranges`, from frame 0 to `end`."""
    firsts, lasts = [0] + [last + 1 for _, last in ranges], [first - 1 for first, _ in ranges] + [end]
    return [(first, last) for first, last in zip(firsts, lasts, strict=True) if first <= last]


def between(ranges: list[tuple[int, int]], begin: int, end: int) -> list[tuple[int, int]]:
    """The parts of `ranges` from frame `begin` up to, not including, frame `end`."""
    cut = [(max(first, begin), min(last, end - 1)) for first, last in ranges]
    return [(first, last) for first, last in cut if first <= last]


def milliseconds(student: Path, threads: int, runs: int = 200) -> dict[str, float]:
    """Time of one frame through the network alone: least and median over `runs`, after a warm-up."""
    network = Network.load(student, threads)
    batch = network.tensor(np.random.default_rng(0).integers(0, 256, (SIZE, SIZE, 3), np.uint8))
    times = []
    for _ in range(runs + 20):
        begin = time.perf_counter()
        network.run(batch)
        times.append(1000 * (time.perf_counter() - begin))
    return {"least": min(times[20:]), "median": float(np.median(times[20:]))}


def evaluate(student: Path, teacher: Path, shared: Path, threads: int = 2) -> dict[str, Any]:
    """All figures of one student model.

    `shared` holds `clips/` and `corpus/`. Returns nested dicts, ready for JSON: `held_out_person` and
    `held_out_clips` (each `mean` over all frames or clips and `clips` by name), `nobody` (pixels wrongly called
    person, as a share of 1; the first halves were trained on), and `milliseconds` a frame by number of threads.
    """
    pupil, master = Network.load(student, threads), Network.load(teacher, threads)
    person = {name: agreement(pupil, master, shared / name, stride) for name, stride in HELD_OUT_PERSON.items()}
    others = {name: agreement(pupil, master, shared / name, stride) for name, stride in HELD_OUT_CLIPS.items()}
    everything, bottles = [(0, 10**9)], outside(HANDS_IN_BOTTLES)

    def nobody(name: str, ranges: list[tuple[int, int]]) -> dict[str, float | int]:
        return false_alarms(pupil, shared / name, ranges, EMPTY_STRIDE)

    count = sum(clip["frames"] for clip in person.values())
    return {
        "held_out_person": {"mean": sum(c["iou_mean"] * c["frames"] for c in person.values()) / count, "clips": person},
        "held_out_clips": {"mean": float(np.mean([c["iou_mean"] for c in others.values()])), "clips": others},
        "nobody": {
            "bottles": nobody(BOTTLES, everything),
            "bottles_without_hands": nobody(BOTTLES, bottles),
            "bottles_without_hands_first_half": nobody(BOTTLES, between(bottles, 0, BOTTLES_HALF)),
            "bottles_without_hands_second_half": nobody(BOTTLES, between(bottles, BOTTLES_HALF, 10**9)),
            "empty_room": nobody(WALKING, EMPTY_WALKING),
            "empty_room_first_half": nobody(WALKING, between(EMPTY_WALKING, 0, WALKING_HALF)),
            "empty_room_second_half": nobody(WALKING, between(EMPTY_WALKING, WALKING_HALF, 10**9)),
        },
        "milliseconds": {str(n): milliseconds(student, n) for n in (1, 2)},
    }


def processor() -> str:
    """The processor's name, where the system tells."""
    info = Path("/proc/cpuinfo")
    names = (
        [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.exists()
        else []
    )
    return names[0] if names else platform.processor() or platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("student", type=Path, nargs="?", default=Path("segmentation/models/person.onnx"))
    parser.add_argument("--shared", type=Path, default=Path("../shared"), help="folder with clips/, corpus/, models/")
    parser.add_argument("--teacher", type=Path, help=f"default: {TEACHER} below --shared")
    parser.add_argument("--json", type=Path, default=Path("tools/results/person-model.json"), help="where to write")
    options = parser.parse_args()
    figures = evaluate(options.student, options.teacher or options.shared / TEACHER, options.shared)
    report = {
        "date": datetime.date.today().isoformat(),
        "command": shlex.join(["python", *sys.argv]),
        "hardware": {"processor": processor(), "cores": os.cpu_count()},
        "versions": {
            "python": platform.python_version(),
            "onnxruntime": onnxruntime.__version__,
            "av": av.__version__,
            "opencv": cv2.__version__,
            "numpy": np.__version__,
        },
        **figures,
    }
    for group in ("held_out_person", "held_out_clips"):
        print(f"{group}: mean IoU {figures[group]['mean']:.4f}")
        for name, clip in figures[group]["clips"].items():
            print(f"  {name}: {clip['iou_mean']:.4f} (least {clip['iou_min']:.4f}, {clip['frames']} frames)")
    for name, alarms in figures["nobody"].items():
        print(f"nobody, {name}: {alarms['person_mean']:.3%} of pixels (worst frame {alarms['person_max']:.2%})")
    for threads, took in figures["milliseconds"].items():
        print(f"{threads} thread(s): {took['least']:.2f} ms least, {took['median']:.2f} ms median")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
