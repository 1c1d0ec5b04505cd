"""From the teachers' masks to what a network is taught: one file with all pictures and targets.

    python tools/lab/training/data.py --labels .train/labels -o .train/pictures.npz

A target is 8-bit: 0 to 250 is the probability of a person in 250ths, 255 is doubt, which the loss leaves out.
"""

import argparse
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import cv2
import numpy as np
from label import SIDE, cached, sources
from split import split
from teachers import ENDS, vote
from truth import PERSON, UNSURE, path_of

CERTAIN, DOUBT = 250, 255
VISIBLE = 0.8  # a joint's least certainty to be seen
SMALL = 0.02  # of the picture: people who are smaller are left to the former network
LIMB = 0.25  # of a person, what the end of a limb is at most
# Left out: drawings and statues of people, masks, screens, a twin of a held-out picture, hands that no teacher knows.
LEFT_OUT = re.compile(
    r"george-floyd|listen-to-black|pic[14]-|drawPix|toMask|toColored|toMulti|two-people-|-mask-|im(9|10)-"
    r"|imageio-banner|gray-shirt|business-suit|painted-hand|photos-mdn/hand-|dog-2467149|eda445ea|156d855a"
    r"|18f\.gsa\.gov-(799ed29f|521303de|f0d4f20f|74eaebcb|b14db9ae)|cdaa11ab|e805c750|sub-rect|purse-1031547|drawMask"
)
# Where people are for certain: what DeepLab overlooks there is doubt, not nobody.
PEOPLE = re.compile(
    r"portraits-|scenes-|hands-|more-(?!nobody)|^clips/|people/clips/(?!.*nobody)|04_coffee|bottle-detection|nasa_|selfie"
    r"|juggle|fragmented"
)
# Nobody for certain, found by looking.
NOBODY = re.compile(
    r"-nobody\.mp4|more-nobody|dog_eating|bbb_|bear-|hdr10|hlg10|portrait_4k60|roadtrip|fork-|hemlock|japanese-cherry|scissors"
    r"|favorite-bird-|snail-|balloon-(small|9f10)|balloons1-|resized-cat|cat-720p|kodim03|plumeria|pug-690566|bird-7bd5"
    r"|beetle|cut-sweater|horses-2904536|horse-60153|favicon-192|pets-22fc|bird-segmentation|dog-d0cb|dog-3277416"
    r"|harbour-crane|pic3-cedf|leopard-2d24|Ankylosaurus"
)
# Decided by looking at the most doubtful pictures. What a hand holds belongs to the person; furniture, what lies on a
# table, flags and dogs never do. In these all doubt is nobody:
DOUBT_IS_NOBODY = re.compile(
    r"andrew-clyde|adrian-smith|david-cicilline|deborah-ross|tim-scott|ed-case|ron-johnson|bill-pascrell|karen-bass"
    r"|derek-kilmer|donald-norcross|eric-swalwell|alejandro-padilla|lucille-roybal|im4-d9c7|7bacc808|saskia-95e13624"
    r"|mike-gintz|dog-human-aa90a3c0|natalie-kurz|dogbones|allhands-4cfa29d2|b39e7e33|ribbon-cutting|jobstatus|execs-legos"
    r"|roweb2-c1-|ruiz-nicolini|renrosario|d3204de6|092b1607|b22a-e314930bc13e"
)
# In these it is the person whom it touches: suits and helmets, shirts with patterns, wigs, people close together.
DOUBT_IS_PERSON = re.compile(
    r"0ef49b57|b2a9edb8|9a03-1740e78224ef|astronaut-9db8b5c6|8191-58d764f591b8|homecoming-cropped|pif-reunion-19|9b67ac52"
    r"|team-18691d1e|698ffc2b"
)

# One person near the camera, and nobody behind whom DeepLab overlooks.
ALONE = re.compile(r"portraits-|astronaut|webcam-|signing-")


@dataclass
class Sample:
    """A picture (H, W, 3) uint8 with its target (h, w) uint8, from a file below the shared folder, and `heads`."""

    name: str
    frame: int
    rgb: np.ndarray
    target: np.ndarray
    heads: np.ndarray


def target(name: str, masks: np.ndarray, joints: np.ndarray) -> np.ndarray:
    """Returns a picture's target (h, w) uint8 from the teachers' masks (4, h, w) uint8 and joints (people, 33, 3)."""
    human, deeplab, heavy, former = masks.astype(np.float32) / 255
    value = vote(masks)
    both = (human > 0.8) & (heavy > 0.8)
    seen = deeplab > 0.4  # as it is, or mirrored
    if NOBODY.search(name) or (not PEOPLE.search(name) and seen.mean() < 0.003 and both.mean() < 0.01):
        return np.zeros(value.shape, np.uint8)
    value = np.where(small(former), former, value)
    value = np.maximum(value, 0.8 * limbs(value, heavy, joints))
    # Sharper than a mean, which is only sure where all are.
    found = np.clip((value - 0.1) / 0.65, 0, 1)
    result = (found * CERTAIN).round().astype(np.uint8)
    result[(value > 0.25) & (value < 0.6)] = DOUBT
    for x, y in lost(value, joints):  # an end of a limb that is not in the mask: nobody can say how far it goes
        radius = round(0.03 * math.hypot(*value.shape))
        around = cv2.circle(np.zeros(value.shape, np.uint8), (x, y), radius, 1, -1) > 0
        result[around & (value < 0.6)] = DOUBT
    if ALONE.search(name) and seen.mean() > 0.05:  # flags and walls, which would be doubt in many portraits
        side = max(3, round(max(value.shape) * 0.03) | 1)
        far = cv2.dilate(seen.astype(np.uint8), np.ones((side, side), np.uint8)) == 0
        result[far & (former < 0.2) & (deeplab < 0.1)] = 0
    return decided(name, result)


def decided(name: str, found: np.ndarray) -> np.ndarray:
    """Returns the target (h, w) uint8 `found` without doubt where a look at the picture ended it."""
    doubt = found == DOUBT
    if DOUBT_IS_PERSON.search(name):
        near = cv2.dilate((~doubt & (found > CERTAIN / 2)).astype(np.uint8), np.ones((5, 5), np.uint8)) > 0
        _, labels = cv2.connectedComponents(doubt.astype(np.uint8))
        touching = doubt & np.isin(labels, np.unique(labels[near & doubt]))
        return np.where(touching, np.uint8(CERTAIN), np.where(doubt, np.uint8(0), found))
    return np.where(doubt, np.uint8(0), found) if DOUBT_IS_NOBODY.search(name) else found


def small(former: np.ndarray) -> np.ndarray:
    """Where (h, w) bool the former network finds people who are too small for the other teachers."""
    _, labels, stats, _ = cv2.connectedComponentsWithStats((former > 0.3).astype(np.uint8))
    areas = stats[:, cv2.CC_STAT_AREA].copy()
    areas[0] = former.size  # what is not a person
    found: np.ndarray = (areas < SMALL * former.size)[labels]
    return found


def heads(joints: np.ndarray, target: np.ndarray) -> np.ndarray:
    """(heads, 5) float32 in pixels of a picture of the target's shape (h, w): middle x, y; half the width; up x, y."""
    height, width = target.shape
    found = []
    for person in joints:
        if person[[0, 7, 8, 11, 12], 2].min() < VISIBLE:  # nose, ears, shoulders
            continue
        points = person[:, :2] * (width, height)
        middle, neck = points[[0, 7, 8]].mean(0), points[[11, 12]].mean(0)
        x, y = middle.astype(int)
        upright = middle - neck
        length = float(np.hypot(*upright))
        inside = 0 <= x < width and 0 <= y < height and 0.8 * CERTAIN < target[y, x] <= CERTAIN
        if inside and length > 8:
            half = max(0.55 * float(np.hypot(*(points[7] - points[8]))), 0.4 * length)
            found.append((*middle, half, *(upright / length)))
    return np.array(found, np.float32).reshape(-1, 5)


def ends(joints: np.ndarray, shape: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Where in a mask of `shape` (h, w) wrists, fingers, ankles, heels and toes are that can be seen."""
    for person in joints:
        for x, y, seen in person[[number for numbers in ENDS.values() for number in numbers]]:
            if seen > VISIBLE and 0 <= x < 1 and 0 <= y < 1:
                yield int(x * shape[1]), int(y * shape[0])


def lost(value: np.ndarray, joints: np.ndarray) -> Iterator[tuple[int, int]]:
    """The ends of limbs that the vote `value` (h, w) does not call person."""
    return ((x, y) for x, y in ends(joints, value.shape) if value[y, x] < 0.6)


def limbs(value: np.ndarray, heavy: np.ndarray, joints: np.ndarray) -> np.ndarray:
    """Where (h, w) bool BlazePose heavy is sure of a piece with the end of a limb, which touches who is found."""
    person = value > 0.6
    _, labels = cv2.connectedComponents(((heavy > 0.8) & ~person).astype(np.uint8))
    near = cv2.dilate(person.astype(np.uint8), np.ones((5, 5), np.uint8)) > 0
    with_ends = {int(labels[y, x]) for x, y in ends(joints, value.shape)} - {0}
    found = np.zeros(value.shape, bool)
    for piece in with_ends:
        inside = labels == piece
        if (inside & near).any() and inside.sum() < LIMB * person.sum():
            found |= inside
    return found


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
                rgb, masks, joints = content["rgb"], content["masks"], content["joints"]
            if rgb.mean() < 4 and rgb.max() < 40:
                continue  # black: nothing to be learned
            mask = checked((name, number)) if split(name) != "train" else None
            mask = target(name, masks, joints) if mask is None else mask
            # Pictures are trained with 512 pixels on the longer side.
            scale = np.float32([SIDE / max(mask.shape)] * 3 + [1, 1])
            found.append(Sample(name, number, rgb, mask, heads(joints, mask) * scale))
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
        heads=np.concatenate([s.heads for s in found]),
        head_counts=np.array([len(s.heads) for s in found]),
        checked=np.array([path_of((s.name, s.frame)).exists() for s in found]),
    )


def read(path: Path) -> list[dict[str, Any]]:
    """What `write` wrote, pictures and targets still compressed.

    A row has `name`, `frame`, `checked`, `heads`, `picture` and `target`.
    """
    with np.load(path) as content:
        blob, ends = content["bytes"], content["sizes"].ravel().cumsum()
        begins = np.concatenate([[0], ends[:-1]])
        parts = np.split(content["heads"], content["head_counts"].cumsum()[:-1])
        rows = zip(content["names"], content["frames"], content["checked"], parts, strict=True)
        return [
            {"name": str(name), "frame": int(frame), "checked": bool(known), "heads": part}
            | {key: blob[begins[j] : ends[j]] for key, j in (("picture", 2 * i), ("target", 2 * i + 1))}
            for i, (name, frame, known, part) in enumerate(rows)
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
