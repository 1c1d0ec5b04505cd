"""Counts the frames in which a run finds what it keeps, and says where it finds nothing."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction

from segmentation.frames.instances import FrameInstances
from segmentation.frames.sinks import FinishedBatch, Sink
from segmentation.options.anonymize import REGIONS
from segmentation.options.config import Config
from segmentation.options.instances import Keep
from segmentation.options.review import corrected_ids
from segmentation.options.then import is_called, parse_all

log = logging.getLogger(__name__)

_NAMED = 20  # ids in a line
_CLASSES = 3  # likewise


class FoundSink(Sink):
    """Counts the frames of a run in which something is found.

    That is a value of the mask above `threshold`. With `keep` it is somebody who is kept, and with an effect on a label
    an instance of that label. Frames that are repeated while a live source is lost don't count.
    """

    def __init__(self, source: str, classes: Sequence[str], config: Config) -> None:
        """`source` is the input's name in messages, `classes` are those of the mask."""
        self._source, self._classes, self._network = source, classes, config.model_name
        self.unknown = 0  # frames for which the network returned no numbers
        self._keep = None if config.keep is None else Keep.parse(config.keep)
        self._boxes = config.covers_boxes
        self._corrected = corrected_ids(config.except_, config.only, config.review)
        self._label, *others = (effect.label for effect in config.effects)
        labels = [self._label, *others, *(then.name for then in parse_all(config.then))]
        self._labels = tuple(dict.fromkeys(filter(None, labels)))
        self._frames = self._above = self._kept = 0
        self._shown: Counter[str] = Counter()  # frames in which an instance has the label
        self._ids: set[int] = set()

    @property
    def frames(self) -> int:
        """Returns the number of frames in which something was found."""
        if self._label:
            return self._shown[self._label]
        return self._above if self._keep is None else self._kept

    def write(self, batch: FinishedBatch) -> None:
        if batch.found is None:  # frames that are repeated
            return
        self._frames += len(batch.frames)
        self._above += int(batch.found.sum())
        self.unknown += 0 if batch.unknown is None else int(batch.unknown.sum())
        if self._keep is not None or self._labels or self._boxes:
            for frame in batch.instances:
                self._look_at(frame)

    def finish(self, end: Fraction | None, *, fragment: bool = False) -> None:
        """Says what was never found."""
        for line in self._lines():
            log.warning("%s: %s", self._source, line)

    def _look_at(self, frame: FrameInstances) -> None:
        instances = frame.instances
        self._shown.update(name for name in self._labels if any(is_called(one.label, name) for one in instances))
        self._kept += any(one.kept for one in instances)
        self._ids.update(one.id for one in instances if one.id)

    def _lines(self) -> Iterable[str]:
        if self.unknown:
            yield no_numbers(self._network, covered_frames(self.unknown, self._frames))
        if missing := sorted(self._corrected - self._ids):
            yield self._never(missing)
        if not self._above:  # so nothing else was found either
            if self._boxes and self._ids:
                yield f"nothing that was found is covered in {_all(self._frames)}: all of it is to be left"
            elif self.unknown < self._frames:
                yield nothing_found(self._classes, self._frames)
            return
        for label in self._labels:
            if not self._shown[label]:
                yield nothing_found([label], self._frames)
        if self._keep is not None and (missing := sorted(self._keep.ids - self._ids)):
            yield self._never(missing)
        elif self._keep is not None and not self._kept:
            yield f"nobody was kept in {_all(self._frames)}"

    def _never(self, missing: Sequence[int]) -> str:
        return f"id{'s' * (len(missing) > 1)} {_listed(missing)} never appeared (there were {_listed(self._ids)})"


def nothing_found(classes: Sequence[str], frames: int) -> str:
    """Returns the line about a run that has found none of these classes in all of its frames."""
    if tuple(classes) == (REGIONS,):
        return f"nothing was covered in {_all(frames)}: no region has a time among them"
    names = f"no {' or '.join(classes)}" if len(classes) <= _CLASSES else f"none of {len(classes)} classes"
    missing = "nobody" if tuple(classes) == ("person",) else names
    return f"{missing} was found in {_all(frames)}"


def no_numbers(network: str, pictures: str) -> str:
    """Returns the line about a network that gave no mask for these `pictures`."""
    return f"the network {network} returned NaN or infinite scores for {pictures}; check its file and its activation"


def covered_frames(unknown: int, frames: int) -> str:
    """Returns the words for frames without a mask in a video."""
    return f"{unknown} of {frames} frames, which the effect covers whole"


def _all(frames: int) -> str:
    return f"{frames} of {frames} frames"


def _listed(ids: Iterable[int]) -> str:
    """Returns `1, 2` of ids, or `none`."""
    known = sorted(ids)
    more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
    return ", ".join(map(str, known[:_NAMED])) + more if known else "none"
