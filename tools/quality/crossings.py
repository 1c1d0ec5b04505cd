"""Makes clips of people on crossing paths, with the exact mask and id of everybody in each frame.

    python tools/quality/crossings.py SEED -o clip.mkv          # the video, and clip.npz with its ids

People are cut out of real videos in `../shared`, and move while they walk. Paths, sizes, speeds, stops and turns come
from the seed. Who stands lower in the picture is nearer: larger, and before the others.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path

import av
import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation import Segmenter

SHARED = Path(__file__).resolve().parents[3] / "shared"
SIZE = (640, 360)  # width, height
RATE = 25
SECONDS = 8
APART = 20  # frames
TRIES = 200
VISIBLE = 0.25  # share of somebody's pixels in the picture that must be seen, or the frame does not count for them
FULL_BODY = (
    "people/clips/pose.mp4",
    "people/clips/squats.mp4",
    "people/clips/squat-dance.mp4",
    "corpus/05_default_juggle.mp4",
)
CUT_BY_FRAME = ("clips/signing-eat.mkv", "clips/signing-book.mkv", "clips/signing-no.mkv")
ROOMS = ("clips/person-walking.mp4", "people/clips/people-passing.mp4")

Picture = NDArray[np.uint8]  # (h, w, 3) RGB
CutOut = tuple[Picture, NDArray[np.bool_]]


@dataclass(frozen=True)
class Walk:
    """One person's way through a clip."""

    actor: str
    hue: int  # added to that of the clothes, in OpenCV's half degrees
    height: int  # pixels
    feet: int  # row of the lowest pixel
    speed: float  # pixels a frame, to the right
    begin: float  # column of the center at frame 0
    stop: tuple[int, int]  # frames in which the person stands still
    turn: int  # frame from which the person walks back; beyond the clip for one who does not

    @property
    def width(self) -> float:
        """The width in pixels, with the arms."""
        return (0.9 if self.actor in CUT_BY_FRAME else 0.65) * self.height

    def column(self, frame: int) -> float:
        """Returns the column of the center in a frame."""
        walked = sum((1 if k < self.turn else -1) for k in range(frame) if not self.stop[0] <= k < self.stop[1])
        return self.begin + self.speed * walked


@cache
def actor(name: str) -> list[CutOut]:
    """Returns the frames of a video's person, cut to the same box."""
    pictures, masks = [], []
    with Segmenter() as segmenter:
        for frame in segmenter.frames(SHARED / name, max_frames=45):
            count, labels, stats, _ = cv2.connectedComponentsWithStats((frame.mask > 0.5).astype(np.uint8))
            largest = 1 + int(np.argmax(stats[1:, cv2.CC_STAT_AREA])) if count > 1 else 0
            closed = cv2.morphologyEx((labels == largest).astype(np.uint8), cv2.MORPH_CLOSE, np.ones((9, 9)))
            pictures.append(frame.image)
            masks.append(closed > 0)
    ever = np.any(masks, axis=0)
    rows, columns = np.flatnonzero(ever.any(1)), np.flatnonzero(ever.any(0))
    box = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return [(picture[box], mask[box]) for picture, mask in zip(pictures, masks, strict=True)]


@cache
def room(name: str) -> Picture:
    with av.open(str(SHARED / name)) as container:
        first = next(container.decode(video=0)).to_ndarray(format="rgb24")
    return cv2.resize(first, SIZE, interpolation=cv2.INTER_AREA)


def walks(seed: int, *, crowded: bool = False) -> list[Walk]:
    """Returns the ways of 2 to 6 people, the farthest first.

    Everybody is apart from the others for `APART` frames at first, as otherwise nobody could tell from a mask that they
    are two. In `crowded` clips they need not be.
    """
    random = np.random.default_rng(seed)
    made: list[Walk] = []
    for k in range(2 + seed % 5):
        for _ in range(TRIES):
            walk = _walk(random, [walk.actor for walk in made], right=k % 2 == 0)
            if crowded or _apart([*made, walk]):
                made.append(walk)
                break
    return sorted(made, key=lambda walk: walk.feet)


def _walk(random: np.random.Generator, taken: list[str], *, right: bool) -> Walk:
    frames = RATE * SECONDS
    cut = random.random() < 0.3
    near = 1.0 if cut else float(random.uniform(0, 1))
    height = int(SIZE[1] * (random.uniform(0.6, 0.8) if cut else 0.45 + 0.4 * near))
    feet = SIZE[1] if cut else int(SIZE[1] * (0.72 + 0.26 * near))
    speed = float(random.uniform(0.012, 0.03)) * height * (1 if right else -1)
    outside = random.random() < 0.7
    edge = -0.4 * height - abs(speed) * random.uniform(0, 90) if outside else random.uniform(0.05, 0.3) * SIZE[0]
    begin = float(edge if right else SIZE[0] - edge)
    stop = int(random.integers(30, frames - 50)) if random.random() < 0.35 else frames
    # Within the picture: somebody who has left it for a while would be somebody else to any tracker.
    turn = round((random.uniform(0.25, 0.75) * SIZE[0] - begin) / speed) if random.random() < 0.2 else frames
    name = str(random.choice(CUT_BY_FRAME if cut else FULL_BODY))
    hue = 0 if name not in taken else int(random.integers(30, 150))
    return Walk(name, hue, height, feet, speed, begin, (stop, stop + 25), turn if turn > 0 else frames)


def _apart(ways: list[Walk]) -> bool:
    """Returns whether each person is apart from all others in the first frames in which most of them is seen."""
    columns = np.array([[walk.column(frame) for frame in range(RATE * SECONDS)] for walk in ways])
    halves = np.array([walk.width / 2 for walk in ways])
    for k in range(len(ways)):
        inside = np.flatnonzero((columns[k] > 0) & (columns[k] < SIZE[0]))[:APART]
        gaps = np.abs(columns[:, inside] - columns[k, inside]) - (halves + halves[k])[:, None]
        gaps[k] = 1
        if len(inside) < APART or (gaps <= 0).any():
            return False
    return True


def clip(seed: int, *, crowded: bool = False) -> Iterator[tuple[Picture, NDArray[np.uint8], list[int]]]:
    """Yields each frame with the id of the person at each pixel (0: none), and the ids that are seen too little."""
    ways = walks(seed, crowded=crowded)
    background = room(ROOMS[seed % len(ROOMS)])
    looks = [scaled(actor(walk.actor), walk) for walk in ways]
    for number in range(RATE * SECONDS):
        picture, ids = background.copy(), np.zeros(SIZE[::-1], np.uint8)
        areas = []
        for id, (walk, frames) in enumerate(zip(ways, looks, strict=True), 1):
            turned = number % (2 * len(frames) - 2)
            image, mask = frames[min(turned, 2 * len(frames) - 2 - turned)]
            areas.append(paste(picture, ids, image, mask, walk, number, id))
        seen = np.bincount(ids.ravel(), minlength=len(ways) + 1)
        yield picture, ids, [id for id, area in enumerate(areas, 1) if area > 0 and seen[id] < VISIBLE * area]


def scaled(frames: list[CutOut], walk: Walk) -> list[CutOut]:
    """Returns the frames of a person at the size and in the colors of a walk."""
    made = []
    for image, mask in frames:
        size = (max(1, round(image.shape[1] * walk.height / image.shape[0])), walk.height)
        small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
        if walk.hue:
            hsv = cv2.cvtColor(small, cv2.COLOR_RGB2HSV)
            hsv[..., 0] = (hsv[..., 0].astype(int) + walk.hue) % 180
            small = cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)
        made.append((small, cv2.resize(mask.astype(np.float32), size, interpolation=cv2.INTER_AREA) > 0.5))
    return made


def paste(
    picture: Picture, ids: NDArray[np.uint8], image: Picture, mask: NDArray[np.bool_], walk: Walk, frame: int, id: int
) -> int:
    """Puts a person into a frame. Returns the number of the person's pixels in it."""
    height, width = mask.shape
    left, top = round(walk.column(frame) - width / 2), walk.feet - height
    inside = np.s_[max(0, -top) : SIZE[1] - top, max(0, -left) : max(0, SIZE[0] - left)]
    mask, image = mask[inside], image[inside]
    there = np.s_[max(0, top) : max(0, top) + mask.shape[0], max(0, left) : max(0, left) + mask.shape[1]]
    picture[there][mask] = image[mask]
    ids[there][mask] = id
    return int(mask.sum())


def write(seed: int, path: Path, *, crowded: bool = False) -> tuple[NDArray[np.uint8], list[list[int]]]:
    """Writes a clip losslessly. Returns the ids (N, h, w) and, of each frame, those that are seen too little."""
    ids, hardly = [], []
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=RATE)
        stream.width, stream.height, stream.pix_fmt = *SIZE, "yuv420p"
        stream.time_base = Fraction(1, RATE)
        for picture, labels, few in clip(seed, crowded=crowded):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            ids.append(labels)
            hardly.append(few)
        container.mux(stream.encode(None))
    return np.stack(ids), hardly


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes a clip of people on crossing paths, with their ids.")
    parser.add_argument("seed", type=int)
    parser.add_argument("--crowded", action="store_true", help="people may be together from the first frame on")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the video, .mkv")
    options = parser.parse_args()
    ids, hardly = write(options.seed, options.output, crowded=options.crowded)
    np.savez_compressed(options.output.with_suffix(".npz"), ids=ids, hardly=np.array(hardly, object))
    print(f"{options.output}: {len(ids)} frames, {len(walks(options.seed, crowded=options.crowded))} people")


if __name__ == "__main__":
    main()
