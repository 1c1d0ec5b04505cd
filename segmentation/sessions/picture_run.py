"""One run of a still picture: read, segmented as `Segmenter.apply` does, and written with each effect."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segmentation.errors import ConfigError, OutputError, Stopped
from segmentation.frames.picture_names import PICTURES
from segmentation.frames.sinks import FinishedBatch
from segmentation.media.pictures.still import Pixels, Still, encode_still, read_still
from segmentation.options.config import OPTIONS, Config
from segmentation.options.keywords import PictureOptions, Quality
from segmentation.options.table import Of, Option
from segmentation.pipeline.found import nothing_found
from segmentation.pipeline.report import Report
from segmentation.pipeline.request import RunRequest
from segmentation.pipeline.result_files.results import Results
from segmentation.sessions.pictures import Applied, Pictures
from segmentation.system.access import Access
from segmentation.system.atomic_file import PendingFile

log = logging.getLogger(__name__)

_REFUSED = {
    "video": "a picture is always written; leave out --no-video",
    "results_format": "has instances of a video; pictures have lines",
    "save_masks": "the masks of pictures are pictures; write --also mask:FILE.png",
    "verify": "compares videos; leave it out for pictures",
    "audit": "is of tracks in a video; leave it out for pictures",
    "track": "follows people through a video; leave it out for pictures",
    "then": "follows things through videos; leave it out for pictures",
    "keep": "chooses people by their ids in a video; leave it out for pictures",
    "pick": "chooses a person of a video; leave it out for pictures",
    "except_": "chooses faces by their ids in a video; leave it out for pictures",
    "review": "corrects a video; leave it out for pictures",
    "only": "chooses faces by their ids in a video; leave it out for pictures",
    "count": "counts people in a video; leave it out for pictures",
    "trace": "is of the stages of videos; leave it out for pictures",
}


class PictureRun:
    """Takes one picture through the network, once."""

    def __init__(self, pictures: Pictures, target: Path, access: Access, request: RunRequest) -> None:
        """`target` is that of `request`, and `access` has its limits."""
        self._pictures, self._request = pictures, request
        self._source, self._target, self._access = request.source, target, access
        paths = (target, *(Path(path) for _, path in request.config.also))
        self._outputs = list(zip(request.config.effects, paths, strict=True))

    def __call__(self) -> Report:
        """Runs. Raises as `segment` does."""
        begin = time.perf_counter()
        config = self._checked(self._request.config)
        options = {name: getattr(config, name) for name in PictureOptions.__annotations__}
        of_picture = self._pictures.config(**options)
        with ExitStack() as exits:
            files = [self._pending(path, "--also" if i else "-o", exits) for i, (_, path) in enumerate(self._outputs)]
            still = read_still(self._source, self._access)
            read = time.perf_counter()
            self._tell(still)
            effects, name = [effect for effect, _ in self._outputs], self._source.label
            applied = self._pictures.apply(still.rgb, of_picture, effects, name)
            masked = time.perf_counter()
            for file, made, (effect, _) in zip(files, applied.pictures, self._outputs, strict=True):
                _write(file, _with_alpha(made, still, effect.kind), config.quality, still.profile)
            if self._request.progress is not None:
                self._request.progress(1, 1)  # here, so that its exception leaves no file
            if config.results is not None:
                _write_results(applied, config)
            for file in files:
                with file.reporting():
                    file.commit()
        end = time.perf_counter()
        found = applied.shown.found is not None and bool(applied.shown.found.any())  # by the network, not by regions
        if not found:
            log.warning("%s: %s", self._source.label, nothing_found(applied.classes, 1))
        return Report(
            input=self._source.label,
            output=str(self._target),
            also=tuple(str(path) for _, path in self._outputs[1:]),
            frames=1,
            damaged=0,
            inferred=1,
            found=int(found),
            received=1,
            seconds=round(end - begin, 3),
            fps=round(1 / (end - begin), 2),
            plan=applied.plan.names() | {"decode": "opencv", "encode": "opencv"},
            stages={
                stage: round(seconds, 3)
                for stage, seconds in (applied.seconds | {"decode": read - begin, "encode": end - masked}).items()
            },
        )

    def _checked(self, config: Config) -> Config:
        """Returns the options without those of videos alone, which a line names. Raises `ConfigError`, `OutputError`.

        Saved masks are refused by `Pictures.config`.
        """
        if self._request.stop.is_set():
            raise Stopped(f"{self._source.text}: stopped before the first frame; nothing was written")
        if why := refused_for_pictures(config):
            raise ConfigError(why)
        if useless := config.given(Of.VIDEO):
            log.warning("pictures are written without %s", ", ".join(row.flag for row in useless))
            config = replace(config, codec=None, preset=None)
        for effect, path in self._outputs:
            suffix = path.suffix.lower()
            if suffix not in PICTURES:
                raise OutputError(f"{path}: outputs of a picture are pictures too: {', '.join(PICTURES)}")
            if effect.kind == "cutout" and suffix in (".jpg", ".jpeg"):
                raise OutputError(f"{path}: can't hold a cutout's alpha; name a .png or .webp")
            if suffix != ".png" and (fault := config.misfit("webp" if suffix == ".webp" else "jpeg")):
                raise ConfigError(f"{path}: {fault}")
        return config

    def _pending(self, path: Path, option: str, exits: ExitStack) -> PendingFile:
        file = exits.enter_context(PendingFile(path, overwrite=self._request.config.overwrite))
        file.check(option)
        return file

    def _tell(self, still: Still) -> None:
        """Says what of the picture the outputs lack."""
        if still.metadata:
            log.warning("%s: is written without its %s", self._source.text, still.metadata)
        if still.bits > 8:
            log.warning("%s: %d bits a sample become 8", self._source.text, still.bits)
        if still.alpha is not None:
            for effect, path in self._outputs:
                if path.suffix.lower() in (".jpg", ".jpeg") and effect.kind != "mask":
                    log.warning("%s: %s files have no alpha; transparent parts become white", path, path.suffix)


def refused_for_pictures(config: Config) -> str:
    """Returns why a picture can't be made with these options, as they are of videos alone; "" where it can."""
    if (row := of_videos_alone(config)) is None:
        return ""
    value = getattr(config, row.name)
    return f"{row.title}{f' {value}' if isinstance(value, str) else ''}: {_REFUSED[row.name]}"


def of_videos_alone(config: Config) -> Option | None:
    """Returns an option that was given and that pictures can't have, if there is one."""
    return next((row for name in _REFUSED if getattr(config, name) != (row := OPTIONS[name]).default), None)


def _with_alpha(made: Pixels, still: Still, kind: str) -> Pixels:
    """Returns the picture with the alpha of the input: as it was, or times that of a cut-out. Masks have none."""
    if still.alpha is None or kind == "mask":
        return made
    alpha = still.alpha
    if made.shape[2] == 4:
        alpha = np.rint(made[..., 3] * (alpha / np.float32(255))).astype(np.uint8)
    rgb = made[..., :3].copy()
    if kind == "cutout":
        rgb[alpha == 0] = 0
    return np.dstack([rgb, alpha])


def _write(file: PendingFile, pixels: Pixels, quality: Quality | None, profile: bytes | None) -> None:
    """Writes a picture to its temporary file. JPEG has no alpha: transparent parts become white."""
    if pixels.shape[2] == 4 and file.target.suffix.lower() in (".jpg", ".jpeg"):
        alpha = pixels[..., 3:] / np.float32(255)
        pixels = np.rint(pixels[..., :3] * alpha + 255 * (1 - alpha)).astype(np.uint8)
    data = encode_still(pixels, file.target, quality, profile)
    with file.reporting():
        file.create()
        file.write(data)


def _write_results(applied: Applied, config: Config) -> None:
    shown = applied.shown
    with Results(lambda pts: Fraction(0), applied.info, applied.classes, config) as results:
        results.write(
            FinishedBatch(frames=shown.frames, masks=np.asarray(shown.masks), class_map=_array(shown.class_map))
        )
        results.finish(None)


def _array(class_map: object) -> NDArray[np.uint8] | None:
    return None if class_map is None else np.asarray(class_map, np.uint8)
