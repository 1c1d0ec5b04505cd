"""Further networks on what others have found: `--then`.

A network looks at crops of the instances with its parent's label, several of a batch at once. Its answer is kept for
the instance's id, and asked for again when the instance's box has grown, or of a detector after a while: things move
within others. In between, what was found moves as far as both edges of the instance's box have moved: the box of
somebody who lifts an arm grows, and the face stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from segmentation.frames import FORMATS, FrameBatch, MaskedBatch, Memory, VideoInfo
from segmentation.frames.instances import MOST, Box, FrameInstances, Instance
from segmentation.gpu.errors import gpu_errors
from segmentation.models.detections import Outputs
from segmentation.models.input_size import shape_shown
from segmentation.models.secondary import CropFinding, SecondaryNetwork
from segmentation.options.config import Config
from segmentation.stages.preprocess.crops import AT_ONCE, Crop, CropPreprocessor, crop_of
from segmentation.stages.preprocess.opencv_crops import OpenCVCrops
from segmentation.tracking.motion import box_iou

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu
    from segmentation.stages.inference.crop_network import CropNetwork

# Returns the network's outputs for crops of a batch.
_Look: TypeAlias = Callable[[FrameBatch, Sequence[Crop]], Iterable[Outputs]]

GROWTH = 1.2  # of a box's area, from which on the network looks again
FRESH = 0.1  # seconds for which a detector's answer is kept
FORGET = 5.0  # seconds after which the answer about an instance that is not seen is dropped
MARGIN = 0.5  # of a box's shorter side: what a detector sees around it, as in the pictures that it was trained with
LEAST = 12  # pixels of a box's shorter side: in less nothing can be told
_SAME = 0.3  # IoU from which what is found again has the id that it had


@dataclass(eq=False, slots=True)
class _CachedResult:
    """The findings within an instance at a time. Boxes are shares of the picture."""

    box: Box  # of the instance
    time: float
    seen: float  # when the instance was last there
    found: list[tuple[CropFinding, int]] = field(default_factory=list)  # with its id

    def holds(self, box: Box, time: float, *, forever: bool) -> bool:
        return _area(box) <= GROWTH * _area(self.box) and (forever or abs(time - self.time) < FRESH)


class _CropRequest(NamedTuple):
    place: int  # of the frame in its batch
    instance: Instance
    answer: _CachedResult  # to be filled
    before: _CachedResult | None  # about the same instance


class SecondaryInference:
    """Finds instances within the instances of a run, with one network."""

    def __init__(
        self,
        network: SecondaryNetwork,
        info: VideoInfo,
        pix_fmt: str,
        config: Config,
        ids: Iterator[int],
        gpu: Gpu | None = None,
        on_gpu: CropNetwork | None = None,
    ) -> None:
        """`ids` are those that no instance of the run has yet.

        Batches may lie on `gpu`. There `on_gpu` runs the network; without it, the crops come to the host.
        """
        self._network, self._info, self._pix_fmt, self._config = network, info, pix_fmt, config
        self._gpu, self._on_gpu, self._ids = gpu, on_gpu, ids
        self._look: _Look | None = None
        self._at_once = AT_ONCE
        self._known: dict[int, _CachedResult] = {}  # by the id of the instance that was looked at

    def __call__(self, batches: Iterator[MaskedBatch]) -> Iterator[MaskedBatch]:
        if self._gpu is not None:
            self._gpu.enter()
        for batch in batches:
            times = [float(frame.pts * self._info.time_base) for frame in batch.frames.frames]
            answers = self._answers(batch.frames, batch.instances, times)
            yield replace(batch, instances=tuple(map(_with_children, batch.instances, answers)))
            self._known = {id: one for id, one in self._known.items() if times[-1] - one.seen < FORGET}

    def _answers(
        self, batch: FrameBatch, frames: Sequence[FrameInstances], times: Sequence[float]
    ) -> list[dict[int, _CachedResult]]:
        """Returns what is known of each instance that the network looks at: of each frame, by the instance's number."""
        answers: list[dict[int, _CachedResult]] = [{} for _ in frames]
        questions = []
        for place, (frame, time) in enumerate(zip(frames, times, strict=True)):
            for number, one in enumerate(frame.instances, 1):
                if not self._network.then.looks_at(one.label) or self._shorter_side(one.box) < LEAST:
                    continue
                known = answer = self._known.get(one.id) if one.id else None
                if answer is None or not answer.holds(one.box, time, forever=self._network.classifies):
                    answer = _CachedResult(one.box, time, time)
                    questions.append(_CropRequest(place, one, answer, known))
                    if one.id:
                        self._known[one.id] = answer
                answer.seen = time
                answers[place][number] = answer
        if not questions:
            return answers
        look = self._look = self._look or self._looks(batch.memory)  # the first batch shows where the frames are
        for begin in range(0, len(questions), self._at_once):
            self._ask(look, batch, questions[begin : begin + self._at_once])
        return answers

    def _ask(self, look: _Look, batch: FrameBatch, questions: Sequence[_CropRequest]) -> None:
        """Answers some questions about a batch, with one call of the network."""
        info, layout, model = self._info, FORMATS[self._pix_fmt], self._network.model
        crops = [crop_of(one.place, self._seen(one.instance.box), info, layout) for one in questions]
        with gpu_errors():
            outputs = look(batch, crops)
        answers = self._network.read(outputs, [crop.place(info, model) for crop in crops])
        for question, crop, found in zip(questions, crops, answers, strict=True):
            shown = crop.shown(info)
            box = question.instance.box
            placed = (replace(one, box=box if self._network.classifies else _placed(one.box, shown)) for one in found)
            within = [one for one in placed if _is_centered(one.box, box)]
            question.answer.found = (
                self._identified(within, question) if question.instance.id else [(one, 0) for one in within]
            )

    def _looks(self, memory: Memory) -> _Look:
        """Returns a function without a reference to this object, which keeps it: a cycle would keep networks too."""
        outputs = self._network.outputs
        preprocess: CropPreprocessor
        if self._gpu is None or memory == "host":
            preprocess = OpenCVCrops(self._info, self._pix_fmt, self._network.model, self._config)
        else:
            from segmentation.stages.preprocess.cuda_crops import CudaCrops  # needs PyTorch

            with gpu_errors():
                preprocess = crops_there = CudaCrops(self._info, self._pix_fmt, self._network.model, self._gpu)
            if (network := self._on_gpu) is not None:
                self._at_once = network.at_once
                return lambda batch, crops: network(len(crops), lambda target: crops_there.write(batch, crops, target))
        return lambda batch, crops: outputs(preprocess(batch, crops))

    def _seen(self, box: Box) -> Box:
        """Returns what the network sees of the picture to find something in `box`."""
        if self._network.classifies:
            return box
        width, height = shape_shown(self._info, self._info.width, self._info.height)
        margin = MARGIN * self._shorter_side(box)
        return box[0] - margin / width, box[1] - margin / height, box[2] + margin / width, box[3] + margin / height

    def _shorter_side(self, box: Box) -> float:
        """Returns the shorter side of a box in pixels of the picture."""
        width, height = shape_shown(self._info, self._info.width, self._info.height)
        return min((box[2] - box[0]) * width, (box[3] - box[1]) * height)

    def _identified(self, found: Sequence[CropFinding], question: _CropRequest) -> list[tuple[CropFinding, int]]:
        """Returns what was found with ids: those that it had when the network looked at the instance before."""
        left = [] if question.before is None else list(question.before.found)
        expected = [_at(question.instance.box, question.before, other) for other, _ in left if question.before]
        known = []
        for one in found:
            overlaps = [box_iou(np.array(box), np.array(one.box)) for box in expected]
            if max(overlaps, default=0.0) > _SAME:
                best = int(np.argmax(overlaps))
                known.append((one, left.pop(best)[1]))
                expected.pop(best)
            else:
                known.append((one, next(self._ids)))
        return known


def _with_children(frame: FrameInstances, answers: Mapping[int, _CachedResult]) -> FrameInstances:
    """Returns a frame with what was found within its instances."""
    instances = list(frame.instances)
    for number, answer in answers.items():
        parent = frame.instances[number - 1]
        for finding, id in answer.found:
            left, top, right, bottom = (min(max(side, 0.0), 1.0) for side in _at(parent.box, answer, finding))
            if left >= right or top >= bottom or len(instances) == MOST:
                continue
            instances.append(
                Instance(
                    label=finding.label,
                    score=finding.score,
                    box=(left, top, right, bottom),
                    id=id,
                    parent=parent.id,
                    within=number,
                )
            )
    return replace(frame, instances=tuple(instances))


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _is_centered(box: Box, outer: Box) -> bool:
    """Returns whether a box has its center in the instance's, and not in a neighbor."""
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    return outer[0] <= x <= outer[2] and outer[1] <= y <= outer[3]


def _at(box: Box, answer: _CachedResult, finding: CropFinding) -> Box:
    """Returns where a finding of an earlier answer is while the instance's box is `box`."""
    return box if finding.box == answer.box else _moved(finding.box, answer.box, box)


def _moved(box: Box, before: Box, now: Box) -> Box:
    """Returns where a box is that lies in another, of which `before` and `now` are known."""
    x, y = (_common(now[edge] - before[edge], now[edge + 2] - before[edge + 2]) for edge in (0, 1))
    return box[0] + x, box[1] + y, box[2] + x, box[3] + y


def _common(one: float, other: float) -> float:
    """Returns the motion that two edges have in common."""
    return min(one, other, key=abs) if one * other > 0 else 0.0


def _placed(box: Box, outer: Box) -> Box:
    """Returns in shares of the picture what `box` is in shares of `outer`."""
    width, height = outer[2] - outer[0], outer[3] - outer[1]
    left, top = outer[:2]
    return left + box[0] * width, top + box[1] * height, left + box[2] * width, top + box[3] * height
