"""Results with a file for each frame: YOLO's labels, and pictures of ids."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from types import TracebackType

import cv2
import numpy as np

from segmentation.errors import ConfigError, OutputError
from segmentation.frames import VideoInfo
from segmentation.frames.instances import FrameInstances
from segmentation.frames.picture_names import NUMBER
from segmentation.frames.sinks import FinishedBatch, Sink
from segmentation.media.pictures.picture_sequence import PendingSequence
from segmentation.options.config import Config
from segmentation.pipeline.result_files.shapes import Size, masks_of, outline
from segmentation.system.atomic_file import PendingFile

SUFFIXES = {"yolo": ".txt", "png": ".png"}
_LARGEST = (1 << 16) - 1  # id that a sample of 16 bits holds


class NumberedResults(Sink):
    """Writes the files, numbered from 1. They appear together at the end. Use as a context manager.

    YOLO has numbers for classes: their names are the lines of `classes.txt`, in the same folder.
    """

    def __init__(self, info: VideoInfo, labels: Sequence[str], config: Config) -> None:
        """`labels` are all that instances can have. Raises `ConfigError` and `OutputError`."""
        form, given = config.results_format, config.results
        suffix = SUFFIXES[form]
        pattern = Path(given) if isinstance(given, str | Path) else None
        if pattern is None or len(NUMBER.findall(pattern.name)) != 1 or pattern.suffix.lower() != suffix:
            where = "the file object" if pattern is None else str(pattern)
            raise ConfigError(f"results {where}: {form} has a file for each frame; name them, as in ids/%06d{suffix}")
        self._size = info.upright_size
        self._files = PendingSequence(pattern, overwrite=config.overwrite)
        self._names = None
        if form == "yolo":
            self._names = PendingFile(pattern.with_name("classes.txt"), overwrite=config.overwrite)
        self._classes = {label: number for number, label in enumerate(dict.fromkeys(labels))}
        self._exits = ExitStack()

    def __enter__(self) -> NumberedResults:
        with ExitStack() as opening:
            for file in (self._files, self._names):
                if file is not None:
                    opening.enter_context(file)
                    file.check("--results")
            with self._files.reporting():
                self._files.create()
            self._exits = opening.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._exits.close()

    def write(self, batch: FinishedBatch) -> None:
        """Writes the files of one batch. Repeated frames have none."""
        if batch.frames.repeated:
            return
        for number, found in enumerate(batch.instances, batch.frames.index + 1):
            data = self._ids(found) if self._names is None else yolo_labels(found, self._size, self._classes).encode()
            with self._files.reporting():
                self._files.add(number, data)

    def finish(self, end: Fraction | None, *, fragment: bool = False) -> None:
        """Puts the files in their places."""
        with self._files.reporting():
            if self._names is not None:
                self._names.create()
                self._names.write("".join(f"{label}\n" for label in self._classes).encode())
                self._names.commit(fragment=fragment)
            self._files.commit(fragment=fragment)

    def _ids(self, found: FrameInstances) -> bytes:
        """Returns a gray PNG of 16 bits: the id of whoever is there, 0 for nobody and for those without an id."""
        width, height = self._size
        picture = np.zeros((height, width), np.uint16)
        for one, mask in masks_of(found, self._size):
            if one.id > _LARGEST:
                raise OutputError(f"{self._files.target}: PNG holds ids up to {_LARGEST}; cut the video")
            picture[mask] = one.id
        return cv2.imencode(".png", picture)[1].tobytes()


def yolo_labels(found: FrameInstances, size: Size, classes: dict[str, int]) -> str:
    """Returns a line for each instance: class, and x and y of its outline as shares of the picture.

    https://docs.ultralytics.com/datasets/segment/. A label that `classes` lacks is added.
    """
    lines = []
    for one, mask in masks_of(found, size):
        number = classes.setdefault(one.label, len(classes))
        points = " ".join(f"{share:.6f}" for share in outline(mask, one.box).ravel())
        lines.append(f"{number} {points}\n")
    return "".join(lines)
