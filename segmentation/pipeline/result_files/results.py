"""Results of each frame, as a file of JSON lines, or as lines that are posted to an address: `--results`.

One line a frame, in order. Pixels are those of the upright picture at full size.

- `index`, and `pts` in seconds of the output
- `classes`: the kept classes that are in the frame
- `area` (share of the picture), `pixels` and `box` ([x, y, width, height] or null) of all kept classes together, and
  with an effect on a label of its instances
- `by_class`: the same of each class, where several are kept
- `rle`: the mask as COCO writes it, with `--rle`
- `instances` and `counts` where a run has them, see `instance_results.py` and `counting.py`

`--results-format` writes the instances alone, as other programs read them: in one file, or `numbered_results.py`.

A place counts where the network's mask is above `--threshold`, with or without `--invert`. It belongs to the likeliest
class there.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.errors import OutputError, ReaderGone, one_line
from segmentation.frames import VideoInfo
from segmentation.frames.byte_source import is_fifo, name_of, pipe_opener
from segmentation.frames.sinks import FinishedBatch, Sink
from segmentation.frames.source import is_url
from segmentation.options.config import Config
from segmentation.pipeline.result_files.annotation_tools import Cvat, LabelStudio
from segmentation.pipeline.result_files.instance_results import Coco, Mot, in_line
from segmentation.pipeline.result_files.numbered_results import SUFFIXES, NumberedResults
from segmentation.pipeline.result_files.posted_lines import PostedLines
from segmentation.pipeline.result_files.run_lengths import rle
from segmentation.system.atomic_file import PendingFile
from segmentation.tracking.counts import CountSink
from segmentation.tracking.selected_masks import SHOWING

Mask = NDArray[np.bool_]  # (h, w), upright
FrameResult = dict[str, Any]  # of one frame, by the names above


class ResultLines:
    """Calling it with a batch returns the results of its frames, with `pts` in ticks of the input's time base."""

    def __init__(
        self, info: VideoInfo, classes: Sequence[str], config: Config, counts: CountSink | None = None
    ) -> None:
        """`counts` takes each batch before this."""
        self._size = info.upright_size
        self._classes = tuple(classes)
        self._rle = config.rle
        self._counts = counts
        self._threshold = config.threshold
        effect = config.effects[0]
        self._others = bool(effect.label) and effect.kind not in SHOWING  # whether masks show all but the instances

    def __call__(self, batch: FinishedBatch) -> list[FrameResult]:
        frames, masks, class_map = batch.frames, batch.masks, batch.class_map
        lines = []
        for number, (frame, mask) in enumerate(zip(frames.frames, masks, strict=True), frames.index):
            found = (1 - mask if self._others else mask) > self._threshold
            everything = measured(found, *self._size)
            line: FrameResult = {"index": number, "pts": frame.pts}
            if class_map is None:
                line |= {"classes": list(self._classes) if everything["box"] else [], **everything}
            else:
                areas = self._areas(found, class_map[number - frames.index])
                by_class = {name: measured(area, *self._size) for name, area in areas.items() if area.any()}
                line |= {"classes": list(by_class), **everything, "by_class": by_class}
            if self._rle:
                line["rle"] = {"size": list(found.shape), "counts": rle(found)}
            if batch.instances:
                of_frame = batch.instances[number - frames.index]
                line["instances"] = in_line(of_frame, self._size, with_masks=self._rle)
            if self._counts is not None:
                line["counts"] = self._counts.latest[number - frames.index]
            lines.append(line)
        return lines

    def _areas(self, found: Mask, class_map: NDArray[np.uint8]) -> dict[str, Mask]:
        """Returns the pixels of each class by the `class_map` (h, w) of a frame."""
        height, width = found.shape  # larger than `class_map` where edges were refined
        large = cv2.resize(class_map, (width, height), interpolation=cv2.INTER_NEAREST)
        return {name: found & (large == i) for i, name in enumerate(self._classes)}


class Results(Sink):
    """Writes the file. Use as a context manager: leaving it without `finish` removes the file.

    Raises `OutputError` for whatever is wrong with the file.
    """

    def __init__(
        self,
        seconds: Callable[[int], Fraction],
        info: VideoInfo,
        classes: Sequence[str],
        config: Config,
        counts: CountSink | None = None,
    ) -> None:
        """`seconds` returns when the output shows the frame of a pts. `classes` are those of masks, or all labels of
        instances if the format has these alone. `counts` takes each batch before this sink.
        """
        given = config.results
        assert given is not None
        self._name = given if isinstance(given, str | Path) else name_of(given)
        self._pending: PendingFile | None = None  # of a file that appears when it is complete
        self._posted: PostedLines | None = None
        if isinstance(given, str) and is_url(given):
            self._posted = PostedLines(given, config.pauses, info.live)
        elif isinstance(given, str | Path) and not is_fifo(given):
            self._pending = PendingFile(Path(given), overwrite=config.overwrite)
            self._pending.check("--results")
        self._own = isinstance(given, str | Path)
        self._lines = ResultLines(info, classes, config, counts)
        self._seconds = seconds
        size = info.upright_size
        forms: dict[str, Coco | Mot | Cvat | LabelStudio] = {
            "coco": Coco(size),
            "mot": Mot(size),
            "cvat": Cvat(size, classes),
            "label-studio": LabelStudio(size),
        }
        self._instances = forms.get(config.results_format)
        self._finished = False
        self._file: TextIO | PostedLines
        try:
            if not isinstance(given, str | Path):
                self._file = given
            elif self._posted is not None:
                self._posted.open()
                self._file = self._posted
            elif self._pending is None:
                self._file = open(given, "w", encoding="utf-8", opener=pipe_opener)  # noqa: SIM115
            else:
                self._pending.create()
                self._file = open(self._pending.address, "w", encoding="utf-8")  # noqa: SIM115
        except BaseException as exc:  # an interrupt too: `__exit__` is not called without an object
            self._discard()
            if isinstance(exc, OSError):
                raise self._error(exc) from exc
            raise

    def __enter__(self) -> "Results":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self._finished:
            self._discard()
            with suppress(OSError):  # what was still to be written is not wanted any more
                self._close()

    def write(self, batch: FinishedBatch) -> None:
        """Writes the lines of one batch. Repeated frames have none: they show no more than the frame before them."""
        if batch.frames.repeated:
            return
        if self._instances is None:
            self.write_lines(self._lines(batch))
            return
        for row, (frame, found) in enumerate(zip(batch.frames.frames, batch.instances, strict=True)):
            seconds = float(self._seconds(frame.pts))
            self._write(list(self._instances.frame(batch.frames.index + row, seconds, found)))

    def write_lines(self, lines: Sequence[FrameResult]) -> None:
        """Writes the results of the next frames. Their `pts` are in ticks."""
        self._write([json.dumps(line | {"pts": float(self._seconds(line["pts"]))}) + "\n" for line in lines])

    def _write(self, texts: list[str]) -> None:
        try:
            if isinstance(self._file, PostedLines):
                self._file.writelines(texts)
                return
            self._file.write("".join(texts))
            # For the program that reads it. A caller's object need not have more than `write`.
            if self._pending is None and (flush := getattr(self._file, "flush", None)) is not None:
                flush()
        except OSError as exc:
            raise self._error(exc) from exc

    def finish(self, end: Fraction | None, *, fragment: bool = False) -> None:
        """Puts the file in its place."""
        if self._instances is not None:
            self._write(list(self._instances.end()))
        try:
            self._close()
            if self._pending is not None:
                self._pending.commit(fragment=fragment)
        except OSError as exc:
            raise self._error(exc) from exc
        self._finished = True

    def _close(self) -> None:
        """Closes the file, unless it is the caller's."""
        if self._own:
            self._file.close()

    def _discard(self) -> None:
        if self._pending is not None:
            self._pending.discard()
        if self._posted is not None:
            self._posted.abandon()

    def _error(self, exc: BaseException) -> OutputError:
        if isinstance(exc, BrokenPipeError):
            return ReaderGone(f"{self._name}: its reader has closed it")
        what = "cannot be written" if self._posted is None else "takes no results"
        return OutputError(f"{self._name}: {what} ({one_line(exc)})")


def make_results(
    seconds: Callable[[int], Fraction], info: VideoInfo, labels: Sequence[str], config: Config, counts: CountSink | None
) -> Results | NumberedResults:
    """Returns the sink of the wanted format, to be entered. Arguments and errors are those of `Results`."""
    if config.results_format in SUFFIXES:
        return NumberedResults(info, labels, config)
    return Results(seconds, info, labels, config, counts)


def measured(found: Mask, width: int, height: int) -> dict[str, object]:
    """Returns area, pixels and box of a mask (h, w) of any size, in a picture of `width` x `height` pixels."""
    pixels = found.view(np.uint8)  # OpenCV takes an eighth of NumPy's time, and each live frame comes here
    share = cv2.countNonZero(pixels) / found.size
    box = None
    if share:
        x, y, across, down = cv2.boundingRect(pixels)
        # The pixels that the mask's own touch, however little.
        left, right = x * width // found.shape[1], -(-(x + across) * width // found.shape[1])
        top, bottom = y * height // found.shape[0], -(-(y + down) * height // found.shape[0])
        box = [left, top, right - left, bottom - top]
    return {"area": round(share, 6), "pixels": round(share * width * height), "box": box}
