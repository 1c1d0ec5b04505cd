"""Clips whose alpha is known exactly: a person with a soft outline, moved over real frames that show nobody.

The person is NASA's portrait that samples/ and the built-in model come with, cut out once: GrabCut between two outlines
drawn by hand, and a guided filter (He, Sun and Tang, ECCV 2010) that lets the edge follow the hair. Whether that is
where a careful hand would put the edge does not matter: the clip is composed with it, `a * person + (1 - a) *
background`, so it is the truth of the clip.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import av
import cv2
import numpy as np
from av.video.reformatter import ColorRange, Colorspace
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
PORTRAIT = ROOT / "segmentation" / "models" / "astronaut.jpg"
SIZE = (1280, 720)  # width, height
RATE = 30
# Outlines in pixels of the portrait (640x360): all of her lies inside the outer one, nothing else inside the inner one.
_OUTER = [(110, 360), (125, 325), (155, 300), (165, 270), (190, 235), (250, 220), (245, 185), (225, 150), (222, 80)]
_OUTER += [
    (280, 35),
    (350, 5),
    (420, 12),
    (470, 60),
    (485, 120),
    (475, 180),
    (440, 215),
    (430, 260),
    (480, 330),
    (480, 360),
]
_INNER = [(160, 360), (185, 320), (195, 260), (220, 240), (280, 235), (275, 200), (245, 160), (245, 80), (300, 50)]
_INNER += [(360, 25), (420, 35), (455, 80), (465, 130), (450, 180), (420, 205), (405, 265), (445, 310), (460, 360)]


@dataclass(frozen=True)
class Move:
    """How the person moves: the amplitudes, in pixels, of a swing sideways and of a bob, and the swing's period."""

    across: float
    down: float
    period: float  # frames

    def at(self, frame: int) -> tuple[float, float]:
        """Pixels right of and below the middle. A triangle wave: the same speed until it turns."""
        phase = frame / self.period
        triangle = 4 * abs(phase - math.floor(phase + 0.5)) - 1
        return self.across * triangle, self.down * (1 + math.sin(2 * math.pi * phase * 1.7)) / 2


@dataclass(frozen=True)
class Synthetic:
    """One frame: the picture, what is behind the person, both (H, W, 3) uint8 RGB, and alpha (H, W) float32."""

    picture: NDArray[np.uint8]
    background: NDArray[np.uint8]
    alpha: NDArray[np.float32]


def portrait() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The person's own colors, (H, W, 3) float32 RGB continued beyond her outline, and her alpha, (H, W) float32."""
    bgr = cv2.imread(str(PORTRAIT))
    area = np.full(bgr.shape[:2], cv2.GC_BGD, np.uint8)
    cv2.fillPoly(area, [np.array(_OUTER)], cv2.GC_PR_FGD)
    cv2.fillPoly(area, [np.array(_INNER)], cv2.GC_FGD)
    cv2.setRNGSeed(0)
    cv2.grabCut(bgr, area, None, np.zeros((1, 65)), np.zeros((1, 65)), 8, cv2.GC_INIT_WITH_MASK)
    inside = ((area == cv2.GC_FGD) | (area == cv2.GC_PR_FGD)).astype(np.uint8)
    count, labels, stats, _ = cv2.connectedComponentsWithStats(inside)
    inside = (labels == 1 + int(np.argmax(stats[1:count, cv2.CC_STAT_AREA]))).astype(np.uint8)
    soft = _guided(inside.astype(np.float32), cv2.cvtColor(bgr, cv2.COLOR_BGR2GRAY).astype(np.float32) / 255)
    near = np.ones((9, 9), np.uint8)
    alpha = np.where(cv2.erode(inside, near) > 0, 1, np.where(cv2.dilate(inside, near) == 0, 0, soft))
    # In the soft edge the photograph's own background shines through: her colors go on from where she is solid.
    solid = cv2.erode((alpha > 0.98).astype(np.float32), np.ones((3, 3)))
    rgb = cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB).astype(np.float32)
    weight = cv2.GaussianBlur(solid, (0, 0), 4)[..., None] + 1e-6
    continued = cv2.GaussianBlur(rgb * solid[..., None], (0, 0), 4) / weight
    return np.where(solid[..., None] > 0, rgb, continued), alpha.astype(np.float32)


def _guided(
    mask: NDArray[np.float32], guide: NDArray[np.float32], radius: int = 3, eps: float = 1e-4
) -> NDArray[np.float32]:
    def mean(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return cv2.blur(x, (2 * radius + 1, 2 * radius + 1))

    slope = (mean(guide * mask) - mean(guide) * mean(mask)) / (mean(guide * guide) - mean(guide) ** 2 + eps)
    return np.clip(mean(slope) * guide + mean(mean(mask) - slope * mean(guide)), 0, 1)


def frames(background: Path, move: Move, count: int, noise: float = 0) -> Iterator[Synthetic]:
    """`count` frames over those of `background`, back and forth where it is shorter.

    `noise` is the standard deviation, in levels, of a sensor's noise in the picture; what is behind has none.
    """
    width, height = SIZE
    person, matte = portrait()
    person_and_matte = np.dstack([person, matte * 255])
    scale = 0.9 * height / person.shape[0]  # and an eighth down: the cut below her is never seen
    behind = _scaled(background, count)
    generator = np.random.default_rng(1)
    for number in range(count):
        across, down = move.at(number)
        left, top = (width - scale * person.shape[1]) / 2 + across, height / 8 + down
        where = np.array([[scale, 0, left], [0, scale, top]])
        moved = cv2.warpAffine(person_and_matte, where, SIZE, flags=cv2.INTER_LINEAR)
        alpha = moved[..., 3:] / 255
        turn = number % max(1, 2 * len(behind) - 2)
        ground = behind[min(turn, 2 * len(behind) - 2 - turn) if len(behind) > 1 else 0]
        picture = moved[..., :3] * alpha + ground * (1 - alpha)
        if noise:
            picture += generator.normal(0, noise, picture.shape).astype(np.float32)
        yield Synthetic(np.clip(picture + 0.5, 0, 255).astype(np.uint8), ground, np.ascontiguousarray(alpha[..., 0]))


def _scaled(path: Path, count: int) -> list[NDArray[np.uint8]]:
    with av.open(str(path)) as container:
        return [
            cv2.resize(frame.to_ndarray(format="rgb24"), SIZE, interpolation=cv2.INTER_AREA)
            for frame in islice(container.decode(video=0), count)
        ]


def write(pictures: Iterator[NDArray[np.uint8]], path: Path) -> Path:
    """A lossless video of (H, W, 3) uint8 RGB pictures: FFV1, 4:2:0, BT.709, limited range."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=RATE)
        stream.width, stream.height, stream.pix_fmt = *SIZE, "yuv420p"
        context = stream.codec_context
        context.colorspace, context.color_range = Colorspace.ITU709, ColorRange.MPEG
        context.color_primaries = context.color_trc = Colorspace.ITU709
        for picture in pictures:
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            container.mux(
                stream.encode(
                    frame.reformat(format="yuv420p", dst_colorspace=Colorspace.ITU709, dst_color_range=ColorRange.MPEG)
                )
            )
        container.mux(stream.encode())
    return path
