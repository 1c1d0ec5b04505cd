"""From the teachers' masks to what a network is taught: one file with all pictures and targets.

    python tools/lab/training/data.py --labels .train/labels -o .train/pictures.npz

A target is 8-bit: 0 to 250 is the probability of a person in 250ths, 255 is doubt, which the loss leaves out.
"""

import argparse
import re
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import cv2
import numpy as np
from label import cached, sources
from split import split
from truth import PERSON, UNSURE, path_of

CERTAIN, DOUBT = 250, 255
# Left out: drawings and statues of people, masks, screens, a twin of a held-out picture, hands that no teacher knows.
LEFT_OUT = re.compile(
    r"george-floyd|listen-to-black|pic[14]-|drawPix|toMask|toColored|toMulti|two-people-|-mask-|im(9|10)-"
    r"|imageio-banner|gray-shirt|business-suit|painted-hand|photos-mdn/hand-|dog-2467149|eda445ea|156d855a"
    r"|18f\.gsa\.gov-(799ed29f|521303de|f0d4f20f|74eaebcb|b14db9ae)|cdaa11ab|e805c750|sub-rect|purse-1031547|drawMask"
)
# Where people are for certain: what DeepLab overlooks there is doubt, not nobody.
PEOPLE = re.compile(
    r"portraits-|scenes-|hands-|^clips/|people/clips/(?!.*nobody)|04_coffee|bottle-detection|nasa_|selfie"
    r"|juggle|fragmented"
)
# Nobody for certain, found by looking.
NOBODY = re.compile(
    r"-nobody\.mp4|dog_eating|bbb_|bear-|hdr10|hlg10|portrait_4k60|roadtrip|fork-|hemlock|japanese-cherry|scissors"
)

# One person near the camera, and nobody behind whom DeepLab overlooks.
ALONE = re.compile(r"portraits-|astronaut|webcam-|signing-")


@dataclass
class Sample:
    """A picture (H, W, 3) uint8 with its target (h, w) uint8, from a file below the shared folder."""

    name: str
    frame: int
    rgb: np.ndarray
    target: np.ndarray


def target(name: str, masks: np.ndarray) -> np.ndarray:
    """What four teachers' masks (4, h, w) uint8 of a picture make its target, (h, w) uint8."""
    human, selfie, deeplab, pose = masks.astype(np.float32) / 255
    mean = (human + selfie + deeplab + pose) / 4
    both = (human > 0.8) & (pose > 0.8)
    seen = deeplab > 0.4  # as it is, or mirrored
    if NOBODY.search(name) or (not PEOPLE.search(name) and seen.mean() < 0.003 and both.mean() < 0.01):
        return np.zeros(mean.shape, np.uint8)
    # The two that are best at bodies and scenes agree: that is a person, whatever the other two overlook.
    agreed = (deeplab > 0.9) & ((human > 0.5) | (pose > 0.5))
    value = np.where(agreed, np.maximum(mean, 0.8), mean)
    # Sharper than a mean of four, which is only sure where all are.
    found = np.clip((value - 0.1) / 0.65, 0, 1)
    result = (found * CERTAIN).round().astype(np.uint8)
    result[(value > 0.25) & (value < 0.6)] = DOUBT
    side = max(3, round(max(mean.shape) * 0.03) | 1)
    far = cv2.dilate(seen.astype(np.uint8), np.ones((side, side), np.uint8)) == 0
    alarms = far & ~both  # of the three others
    result[alarms & (np.maximum(human, np.maximum(selfie, pose)) > 0.5)] = DOUBT
    if ALONE.search(name) and seen.mean() > 0.05:  # flags and walls, which would be doubt in half of the portraits
        result[alarms & (deeplab < 0.1)] = 0
    return result


def checked(item: tuple[str, int]) -> np.ndarray | None:
    """A mask that was checked by eye, as a target; `None` where there is none."""
    mask = cv2.imread(str(path_of(item)), cv2.IMREAD_GRAYSCALE) if path_of(item).exists() else None
    return None if mask is None else np.select([mask == PERSON, mask == UNSURE], [CERTAIN, DOUBT], 0).astype(np.uint8)


def samples(shared: Path, labels: Path) -> list[Sample]:
    """Everything that is labelled and not left out."""
    found = []
    for name in sources(shared):
        if LEFT_OUT.search(name):
            continue
        for path in sorted(labels.glob(f"{cached(labels, (name, 0)).name[:-9]}*.npz")):
            if ".part." in path.name:
                continue
            number = int(path.stem[-5:])
            with np.load(path) as content:
                rgb, masks = content["rgb"], content["masks"]
            if rgb.mean() < 4 and rgb.max() < 40:
                continue  # black: nothing to be learned
            mask = checked((name, number)) if split(name) != "train" else None
            found.append(Sample(name, number, rgb, target(name, masks) if mask is None else mask))
    return found


def write(path: Path, found: list[Sample]) -> None:
    """All samples in one file: pictures as WebP, targets as PNG, one after the other in `bytes`."""
    parts, sizes = [], []
    for sample in found:
        small = sample.rgb
        picture = cv2.imencode(".webp", small[..., ::-1], [cv2.IMWRITE_WEBP_QUALITY, 84])[1]
        # 26 levels are enough, and half the bytes.
        coarse = np.where(sample.target == DOUBT, DOUBT, (sample.target.astype(int) + 5) // 10 * 10).astype(np.uint8)
        mask = cv2.imencode(".png", coarse, [cv2.IMWRITE_PNG_COMPRESSION, 9])[1]
        parts += [picture, mask]
        sizes.append((len(picture), len(mask)))
    np.savez(
        path,
        bytes=np.concatenate(parts),
        sizes=np.array(sizes, np.int64),
        names=np.array([sample.name for sample in found]),
        frames=np.array([sample.frame for sample in found]),
        checked=np.array([path_of((s.name, s.frame)).exists() for s in found]),
    )


def read(path: Path) -> list[dict[str, Any]]:
    """What `write` wrote, pictures and targets still compressed: `name`, `frame`, `checked`, `picture`, `target`."""
    with np.load(path) as content:
        blob, ends = content["bytes"], content["sizes"].ravel().cumsum()
        begins = np.concatenate([[0], ends[:-1]])
        rows = zip(content["names"], content["frames"], content["checked"], strict=True)
        return [
            {"name": str(name), "frame": int(frame), "checked": bool(known)}
            | {key: blob[begins[j] : ends[j]] for key, j in (("picture", 2 * i), ("target", 2 * i + 1))}
            for i, (name, frame, known) in enumerate(rows)
        ]


def group(name: str) -> str:
    """The folder of a still, the file of a clip."""
    return PurePath(name).parent.name if "/stills/" in name else PurePath(name).name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--labels", type=Path, default=Path(".train/labels"))
    parser.add_argument("-o", "--output", type=Path, default=Path(".train/pictures.npz"))
    options = parser.parse_args()
    found = samples(options.shared, options.labels)
    write(options.output, found)
    nobody = sum(not sample.target.any() for sample in found)
    print(f"{len(found)} pictures, {nobody} of nobody, {options.output.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
