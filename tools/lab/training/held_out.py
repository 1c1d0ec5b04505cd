"""Held-out pictures with their true masks, what finds masks in them, and how these are measured.

Networks get single pictures of at most 512 pixels by the pipeline's own stages, without smoothing over time. Their
probabilities are resized to the mask bilinearly; above 0.5 is a person. Pixels of 128 in the mask count for nothing.

IoU: intersection over union of a picture, mean over the pictures that show people. Boundary F: of DAVIS
(Perazzi et al., CVPR 2016), see `boundary_f` in tools/support/measures.py: the harmonic mean of the shares of either
outline's pixels that lie within 0.8 % of the diagonal of the other outline. Rim and lost: how wide a rim of background
a mask keeps along the true outline, and how much of the person it loses there, see `rim` of the same file. Called
person: the share of pixels above 0.5 in a picture that shows nobody. A picture of people counts in each of its kinds,
one without people as nobody or animal.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any

import segmentation  # noqa: F401 - before onnxruntime: switches its telemetry off

# isort: split
import av
import cv2
import numpy as np
from av.video.reformatter import Colorspace
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))  # the tools are programs, not a package

import measures
from label import cached, pictures
from limbs import Ends, Joints, ends_found, shares
from split import split
from teachers import TEACHERS, vote
from truth import HERE, KINDS, PERSON, THRESHOLD, UNSURE, read_table

from segmentation.frames import LIMITED, Color, Frame, FrameBatch, VideoInfo
from segmentation.frames.source import Source
from segmentation.media.planes import EXACT, plane_view
from segmentation.models.input_size import nearest_size, sizes_of
from segmentation.models.model import Model, load_model, open_session
from segmentation.options.config import Config
from segmentation.stages.inference.onnxruntime import OnnxRuntimeInference
from segmentation.stages.masks.refinement import Refiner
from segmentation.stages.preprocess.opencv import OpenCVPreprocessor

PIX_FMT = "yuv444p"  # of the pictures, as the pipeline gets them
PORTRAIT = "models/prisma-portrait.onnx"  # below the shared folder
WITHOUT_PEOPLE = ("nobody", "animal")  # kinds whose pictures are measured by false alarms

Picture = NDArray[np.uint8]  # (H, W, 3) RGB
Truth = NDArray[np.uint8]  # (h, w): 255 is a person, 0 is not, 128 counts for nothing
Map = NDArray[np.float32]  # (h, w): probability of a person
Mask = NDArray[np.bool_]  # (h, w)
Figures = dict[str, Any]


@dataclass(frozen=True)
class Item:
    """A held-out picture with its mask."""

    name: str
    file: str  # below the shared folder
    frame: int
    kinds: tuple[str, ...]
    truth: Truth = field(compare=False, repr=False)

    @property
    def shows_people(self) -> bool:
        return bool((self.truth == PERSON).any())

    def rows(self) -> list[str]:
        """The rows of the tables that this picture counts in."""
        if self.shows_people:
            return ["all", *(kind for kind in self.kinds if kind not in WITHOUT_PEOPLE)]
        return ["animal" if "animal" in self.kinds else "nobody"]


def read_items(part: str = "all") -> list[Item]:
    """The pictures of a split ("held", "reserve", or "all" for both)."""
    found = []
    for row in read_table():
        if part in ("all", split(row["file"])):
            mask = cv2.imread(str(HERE / f"{row['item']}.png"), cv2.IMREAD_GRAYSCALE)
            kinds = tuple(row["kinds"].split(",")) if row["kinds"] else ()
            found.append(Item(row["item"], row["file"], int(row["frame"]), kinds, mask))
    return found


def read_picture(item: Item, shared: Path, cache: Path | None) -> Picture:
    """The picture of an item from the cache, or from the shared folder where it is not there; both are the same."""
    if cache is not None and (labels := cached(cache, (item.file, item.frame))).exists():
        with np.load(labels) as stored:
            return stored["rgb"]
    return _frames(shared, item.file)[item.frame]


@lru_cache(maxsize=1)  # frames of one clip follow each other
def _frames(shared: Path, file: str) -> dict[int, Picture]:
    return dict(pictures(shared, file))


# Candidates: whatever gives a mask.


class Network:
    """An ONNX network, run on single pictures by the pipeline's own stages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.models = {(model.height, model.width): model for model in load_models(path)}
        self._config = Config(model=path)
        self._infer = {size: OnnxRuntimeInference(model, self._config, None) for size, model in self.models.items()}

    def __call__(self, rgb: Picture) -> Map:
        """The probability of a person (h, w), at the size that the network puts out."""
        info, batch = as_video(rgb)
        size = nearest_size(list(self.models), info)
        preprocess = OpenCVPreprocessor(info, PIX_FMT, self.models[size], self._config, None)
        mask: Map = self._infer[size](preprocess(batch)).masks[0]
        return mask


def load_models(path: Path) -> list[Model]:
    """The network at each input size that it names in its metadata; one of a fixed size has that alone."""
    session = open_session(path)
    said = session.get_modelmeta().custom_metadata_map.get("input_size")
    if said is None or all(isinstance(side, int) for side in session.get_inputs()[0].shape[2:]):
        return [load_model(Config(model=path))]
    return [load_model(Config(model=path, input_size=size)) for size in sizes_of(json.loads(said), path)]


def as_video(rgb: Picture) -> tuple[VideoInfo, FrameBatch]:
    """The picture as the only frame of a video: 8-bit YUV without subsampling, BT.601 in limited range."""
    height, width = rgb.shape[:2]
    yuv = av.VideoFrame.from_ndarray(np.ascontiguousarray(rgb), format="rgb24")
    yuv = yuv.reformat(format=PIX_FMT, dst_colorspace=Colorspace.ITU601, dst_color_range=LIMITED, interpolation=EXACT)
    y, u, v = (plane_view(yuv, i, np.uint8) for i in range(3))
    info = VideoInfo(
        source=Source.parse(""), stream_index=0, width=width, height=height, pix_fmt=PIX_FMT, codec="",
        color=Color(range=LIMITED),
        time_base=Fraction(1, 25), rate=Fraction(25), start=Fraction(0), frames=1, frames_exact=True, end=None,
        sample_aspect_ratio=None, display_matrix=None, rotation=0, interlaced=False,
    )  # fmt: skip
    return info, FrameBatch(frames=(Frame(planes=(y, u, v), pts=0, duration=1),), index=0)


def refine(probability: Map, rgb: Picture) -> Map:
    """The mask with its edges drawn along the picture's, as the pipeline does it by default."""
    info, batch = as_video(rgb)
    return Refiner(info, PIX_FMT)(batch, probability[None])[0]


def above(probability: Map, shape: tuple[int, ...], threshold: float = 0.5) -> Mask:
    """The mask of `shape` (h, w): where a probability, resized bilinearly, exceeds the threshold."""
    return cv2.resize(probability, (shape[1], shape[0]), interpolation=cv2.INTER_LINEAR) > threshold


def teachers_masks(item: Item, cache: Path) -> dict[str, Mask]:
    """What each teacher and their vote call person; both are means over the picture and its mirror image."""
    with np.load(cached(cache, (item.file, item.frame))) as labels:
        masks = labels["masks"]
    found = {
        name: above(mask.astype(np.float32) / 255, item.truth.shape) for name, mask in zip(TEACHERS, masks, strict=True)
    }
    return found | {"vote": above(vote(masks), item.truth.shape, THRESHOLD)}


@dataclass(frozen=True)
class Candidates:
    """All that give masks: networks by name, with and without refinement, and the teachers where there is a cache."""

    networks: dict[str, Network]
    shared: Path
    cache: Path | None = None
    refine: bool = False
    teachers: bool = False

    def masks(self, item: Item, rgb: Picture) -> dict[str, Mask]:
        """The mask of each candidate (h, w), at the size of the truth."""
        found = {}
        for name, network in self.networks.items():
            probability = network(rgb)
            found[name] = above(probability, item.truth.shape)
            if self.refine:
                found[f"{name}, refined"] = above(refine(probability, rgb), item.truth.shape)
        if self.teachers:
            assert self.cache is not None
            found |= teachers_masks(item, self.cache)
        return found

    def picture(self, item: Item) -> Picture:
        return read_picture(item, self.shared, self.cache)

    def joints(self, item: Item) -> Joints | None:
        """BlazePose heavy's joints of the people in a picture, see `label.py`; `None` without a cache of them."""
        if self.cache is None or not (labels := cached(self.cache, (item.file, item.frame))).exists():
            return None
        with np.load(labels) as stored:
            return stored["joints"]


# Measures.


def iou(found: Mask, truth: Truth) -> float:
    """Intersection over union where the truth is known; 1 if both are empty."""
    known, person = truth != UNSURE, truth == PERSON
    union = np.count_nonzero((found | person) & known)
    return float(np.count_nonzero(found & person) / union) if union else 1.0


def boundary_f(found: Mask, truth: Truth) -> float:
    """The boundary F of tools/support/measures.py, with doubtful pixels outside both masks."""
    return measures.boundary_f(found & (truth != UNSURE), truth == PERSON)


def rim(found: Mask, truth: Truth) -> tuple[float, float]:
    """The rim of background and of the person lost of tools/support/measures.py, where the truth is known."""
    wanted = (truth == PERSON).astype(np.float32)
    return measures.rim(np.where(truth == UNSURE, wanted, found), wanted)


def called_person(found: Mask, truth: Truth) -> float:
    """The share in 0..1 of pixels found among those that are certainly not a person; 0 if there are none."""
    nobody = truth == 0
    return float(found[nobody].mean()) if nobody.any() else 0.0


def score(found: Mask, item: Item) -> dict[str, float]:
    """The measures of one picture: `iou`, `boundary_f`, `rim`, `lost` if it shows people, else `called_person`."""
    if item.shows_people:
        kept, lost = rim(found, item.truth)
        return {
            "iou": iou(found, item.truth), "boundary_f": boundary_f(found, item.truth), "rim": kept, "lost": lost,
        }  # fmt: skip
    return {"called_person": called_person(found, item.truth)}


def measure(items: Sequence[Item], candidates: Candidates) -> Figures:
    """The figures of each candidate by row of the tables, see `summary`, and of `limbs` where joints are known."""
    scores: dict[str, list[dict[str, float]]] = {}
    limbs: dict[str, list[Ends]] = {}
    for item in items:
        joints = candidates.joints(item)
        for name, mask in candidates.masks(item, candidates.picture(item)).items():
            scores.setdefault(name, []).append(score(mask, item))
            if joints is not None:
                limbs.setdefault(name, []).append(ends_found(mask, item.truth == PERSON, joints))
    return {
        name: summary(items, found) | ({"limbs": shares(limbs[name])} if name in limbs else {})
        for name, found in scores.items()
    }


def summary(items: Sequence[Item], scores: Sequence[dict[str, float]]) -> Figures:
    """By row: the number of `pictures`, the mean of each measure, and the `worst` picture with its value.

    `scores` are those of `items`, in their order. Rows without pictures are missing.
    """
    figures = {}
    for row in ("all", *KINDS):
        found = [(item, score) for item, score in zip(items, scores, strict=True) if row in item.rows()]
        if not found:
            continue
        values = {name: round(fmean(score[name] for _, score in found), 5) for name in found[0][1]}
        key, worst = ("called_person", max) if "called_person" in values else ("iou", min)
        item, value = worst(((item, score[key]) for item, score in found), key=lambda pair: pair[1])
        figures[row] = {"pictures": len(found), **values, "worst": {"picture": item.name, key: round(value, 5)}}
    return figures
