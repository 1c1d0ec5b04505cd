"""Labels pictures and frames of clips with what four teachers say, and keeps their masks in a cache.

    python tools/lab/training/label.py --shared ../shared --cache .train/labels

The teachers are those of `teachers.py`. The cache holds one `.npz` a picture: `rgb` (H, W, 3) uint8, at most 512 pixels
on the longer side; `masks` (4, H, W) uint8, 255 is certainly a person; `joints` (people, 33, 3) as parts of width and
height, and how surely each can be seen. A picture that is in the cache is not labelled again.
"""

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import cv2
import numpy as np
from split import split
from teachers import Teachers

SIDE = 512  # pixels of the longer side, at most
SHARE = 20  # files that a process labels at a time
# Every n-th frame of the clips: neighbours are nearly the same picture.
STEPS = {
    "people/clips": 4,
    "people/clips/asl-hand.mp4": 8, "people/clips/google-paris.mp4": 3, "people/clips/his-girl-friday.mp4": 2,
    "people/clips/people-passing.mp4": 1, "people/clips/person-bicycle-car.mp4": 2, "people/clips/squat-dance.mp4": 1,
    "people/clips/squats.mp4": 1, "people/clips/walking-group.mp4": 1, "people/clips/webcam-man.mp4": 2,
    "clips": 12, "clips/person-walking.mp4": 6,
    "corpus": 15, "corpus/04_coffee.mp4": 25, "corpus/nasa_13013.mp4": 10, "corpus/bottle-detection.mp4": 12,
}  # fmt: skip
# Clips of the corpus that show a picture which can be judged. The rest are test patterns, tiny, or damaged.
CORPUS = """04_coffee.mp4 05_default_juggle.mp4 bbb_1920x1080_60fps_vp8.webm bear-vp9-odd-dimensions.webm
    bottle-detection.mp4 bt709_full_range.mp4 dog_eating_854132.mp4
    fixture-raw.mts h264_10bits.mp4 hdr10-av1.mp4 hlg10-color-test.mp4
    nasa_13013.mp4 portrait_4k60.mp4 roadtrip-vp92-10bit.webm sample_fragmented.mp4 selfie_segmentation_web.mp4
    test_res_change.h264 video_90.mov water_180_mvhevc_5frames.mov""".split()

Item = tuple[str, int]  # path below the shared folder, number of the frame


def fitted(picture: np.ndarray, side: int) -> np.ndarray:
    """`picture` (H, W[, C]), shrunk so that its longer side has at most `side` pixels."""
    scale = side / max(picture.shape[:2])
    if scale >= 1:
        return np.ascontiguousarray(picture)
    size = (max(1, round(picture.shape[1] * scale)), max(1, round(picture.shape[0] * scale)))
    return cv2.resize(picture, size, interpolation=cv2.INTER_AREA)


def step(name: str) -> int:
    """Every how manyth frame of a clip is labelled."""
    return STEPS.get(name) or STEPS[str(Path(name).parent)]


def cached(cache: Path, item: Item) -> Path:
    """Where the labels of a picture or frame are."""
    name, number = item
    return cache / f"{name.replace('/', '__')}__{number:05d}.npz"


def sources(shared: Path) -> list[str]:
    """All pictures and clips, as paths below the shared folder; first those that are held out."""
    index = (shared / "people" / "INDEX.tsv").read_text(encoding="utf-8").splitlines()[1:]
    people = ["people/" + line.split("\t")[0] for line in index]
    clips = [f"clips/{path.name}" for path in sorted((shared / "clips").glob("*.m*")) if path.suffix != ".md"]
    return sorted([*people, *clips, *(f"corpus/{name}" for name in CORPUS)], key=lambda name: split(name) == "train")


def pictures(shared: Path, name: str) -> list[tuple[int, np.ndarray]]:
    """(number, RGB picture (H, W, 3) uint8) of a still, or of the clip's frames that are labelled."""
    if "/stills/" in name:
        picture = cv2.imread(str(shared / name), cv2.IMREAD_COLOR_RGB)
        return [(0, fitted(picture, SIDE))]
    import av  # only here: those who train on what is packed already need none

    found = []
    with av.open(str(shared / name)) as container:
        for number, frame in enumerate(container.decode(video=0)):
            if number % step(name) == 0:
                picture = np.rot90(frame.to_ndarray(format="rgb24"), getattr(frame, "rotation", 0) // 90)
                found.append((number, fitted(np.ascontiguousarray(picture), SIDE)))
    return found


def label(shared: Path, names: list[str], cache: Path, heavy: Path, former: Path) -> int:
    """Labels what is not in the cache yet. Returns how many pictures that were."""
    teachers = None
    count = 0
    for name in names:
        if "/stills/" in name and cached(cache, (name, 0)).exists():
            continue
        for number, rgb in pictures(shared, name):
            target = cached(cache, (name, number))
            if target.exists():
                continue
            teachers = teachers or Teachers(shared, heavy, former)
            masks, joints = teachers(rgb)
            part = target.with_suffix(".part.npz")
            np.savez_compressed(part, rgb=rgb, masks=masks, joints=joints)
            part.replace(target)
            count += 1
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--cache", type=Path, default=Path(".train/labels"))
    parser.add_argument("--heavy", type=Path, default=Path(".train/pose_landmark_heavy.tflite"))
    parser.add_argument("--former", type=Path, default=Path(".train/person-hq.onnx"), help="person-hq of before")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    os.environ["THREADS"] = "1"  # read by vote.py: a process for each core
    options.cache.mkdir(parents=True, exist_ok=True)
    names = sources(options.shared)
    with ProcessPoolExecutor(options.processes) as pool:
        shares = [
            pool.submit(label, options.shared, part, options.cache, options.heavy, options.former)
            for part in (names[i : i + SHARE] for i in range(0, len(names), SHARE))
        ]
        for i, share in enumerate(shares):
            print(f"{i + 1} of {len(shares)}: {share.result()} labelled", flush=True)


if __name__ == "__main__":
    main()
