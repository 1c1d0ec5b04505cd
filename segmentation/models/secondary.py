"""Networks that look at what other networks have found: detectors and classifiers, on crops."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from segmentation.errors import ConfigError, did_you_mean
from segmentation.frames.instances import Box
from segmentation.models.detection import Place, without_masks
from segmentation.models.detections import Outputs, read
from segmentation.models.model import Model, load_model, open_session
from segmentation.models.output_reader import OutputReader
from segmentation.options.config import Config
from segmentation.options.model_types import BACKGROUNDS
from segmentation.options.then import Then
from segmentation.system.cores import core_count

log = logging.getLogger(__name__)

CROP_SIZE = (320, 320)  # height, width at which networks of several sizes see crops


@dataclass(frozen=True, slots=True)
class CropFinding:
    """One thing in a crop."""

    label: str
    score: float  # 0..1
    box: Box  # shares of the crop


class SecondaryNetwork:
    """A network on crops, on all cores of the CPU."""

    def __init__(self, then: Then) -> None:
        """Loads the network. Raises `ModelError`, and `ConfigError` for one that finds no single things."""
        self.then = then
        model = load_model(Config(model=then.file))
        if model.detection is None:
            raise ConfigError(f"then {then.name}: {then.file} gives masks of classes; boxes or a class are needed")
        keep = tuple(number for number, label in enumerate(model.labels) if label not in BACKGROUNDS)
        size = CROP_SIZE if model.sizes else (model.height, model.width)
        self.detection = detection = without_masks(model.detection)
        self.model: Model = replace(model, detection=detection, keep=keep, height=size[0], width=size[1], sizes=())
        log.info("then %s: %s, %s at %dx%d", then.name, then.file, detection.task, *size)
        options = ort.SessionOptions()
        options.intra_op_num_threads = core_count()
        session = open_session(model.path, options)
        self.classifies = detection.task == "classifier"
        self.outputs = OutputReader(session, model.input_name, detection.outputs, model.form, model.batch)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that things get."""
        return tuple(map(self._label, self.model.keep))

    def read(self, outputs: Iterable[Outputs], places: Sequence[Place]) -> list[list[CropFinding]]:
        """Returns what is found in each picture, by its outputs. A picture shows its crop at its place."""
        if self.classifies:
            return [[self._classified(scores)] for scores, *_ in outputs]
        return [self._found(one, place) for one, place in zip(outputs, places, strict=True)]

    def _found(self, outputs: Outputs, place: Place) -> list[CropFinding]:
        model = self.model
        found = read(outputs, self.detection, (model.height, model.width), model.keep).within(place)
        return [
            CropFinding(
                self._label(int(number)),
                float(score),
                (left / place.width, top / place.height, right / place.width, bottom / place.height),
            )
            for (left, top, right, bottom), score, number in zip(
                found.boxes.tolist(), found.scores, found.classes, strict=True
            )
        ]

    def _classified(self, scores: NDArray[np.float32]) -> CropFinding:
        """Returns the likeliest class of a picture, as one thing all over it."""
        if self.model.activation == "softmax":
            powers = np.exp(scores - scores.max())
            scores = powers / powers.sum()
        elif self.model.activation == "sigmoid":
            scores = np.asarray(1 / (1 + np.exp(-scores)), np.float32)
        best = max(self.model.keep, key=lambda number: float(scores[number]))
        return CropFinding(self._label(best), float(scores[best]), (0.0, 0.0, 1.0, 1.0))

    def _label(self, number: int) -> str:
        return self.then.label(self.model.labels[number], alone=len(self.model.keep) == 1)


def check_labels(config: Config, kept: Sequence[str], networks: Sequence[SecondaryNetwork]) -> None:
    """Raises `ConfigError` for an effect on a label that neither the `kept` classes nor these networks give."""
    named = ((network.then.name, *network.labels) for network in networks)
    known = tuple(dict.fromkeys((*kept, *chain.from_iterable(named))))
    for effect in config.effects:
        if effect.label and effect.label not in known:
            text = f"effect {effect.text}: nothing is called {effect.label!r}"
            raise ConfigError(f"{text}; choose from {', '.join(known)}{did_you_mean(effect.label, known)}")
