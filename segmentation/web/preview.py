"""Any frame of an input with the options of a request, at once: networks stay loaded, and their masks are kept."""

from __future__ import annotations

import time
from collections import OrderedDict
from contextlib import closing
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.errors import ConfigError, InputError
from segmentation.frames.instances import FrameInstances
from segmentation.interval.carried_corrections import PackedMap, corrected
from segmentation.media.pictures.still import gray_png, is_still, read_still
from segmentation.options.access import access_of
from segmentation.options.anonymize import REGIONS, Region
from segmentation.options.config import Config
from segmentation.options.instances import Pick
from segmentation.options.keywords import FrameOptions, Options, Track
from segmentation.options.project import parse_project
from segmentation.options.review import Named
from segmentation.sessions.open_video import Moment, OpenVideo
from segmentation.sessions.session import Segmenter
from segmentation.stages.masks.smoothing import REACH
from segmentation.system.file_state import FileState, file_state
from segmentation.tracking.anonymize.regions import drawn
from segmentation.web.preview_corrections import PreviewCorrections, as_png

View = Literal["input", "mask", "result", "correction"]

_FOLLOWED = 5  # frames before the one that is shown, from which people are followed, and covers last
_MOST_OPEN, _OPEN_FOR = 2, 60.0  # videos, and seconds without a request
_KEPT = 256 << 20  # bytes of frames
_QUALITY = 88  # of JPEG
_SQUARE = 16  # pixels of the board behind a cutout


@dataclass(frozen=True, slots=True)
class InputFacts:
    """An input as the page shows it."""

    width: int  # upright
    height: int
    seconds: float  # 0 for a picture, or where the length is unknown
    rate: float  # frames a second, 0 for a picture


@dataclass(frozen=True, slots=True)
class _SeenFrame:
    """A frame and what the network has found in it."""

    image: NDArray[np.uint8]  # (H, W, 3) RGB
    mask: NDArray[np.float32]  # (h, w), smoothed, not refined
    instances: FrameInstances | None
    seconds: float

    def shows(self, pick: Pick) -> bool:
        """Returns whether a pick is in this frame."""
        return abs(pick.time - self.seconds) < 0.001

    def of(self, pick: Pick) -> NDArray[np.bool_]:
        """Returns the pixels of the one at a point, as large as the mask. Raises `InputError` if nobody is there."""
        if self.instances is None:
            raise InputError("people are told apart in videos alone")
        labels = self.instances.label_map
        height, width = self.image.shape[:2]
        x, y = pick.place((width, height))
        row, column = int(y * labels.shape[0] / height), int(x * labels.shape[1] / width)
        inside = 0 <= row < labels.shape[0] and 0 <= column < labels.shape[1]
        number = int(labels[row, column]) if inside else 0
        if not number:
            raise InputError(f"nobody is at {pick}; choose a point on someone")
        size = (self.mask.shape[1], self.mask.shape[0])
        chosen = cv2.resize((labels == number).astype(np.uint8), size, interpolation=cv2.INTER_NEAREST)
        return np.asarray(chosen, bool)

    def chosen(self, config: Config) -> NDArray[np.float32]:
        """Returns the mask as `pick`, `except_` and `only` choose in this frame. Raises `InputError`."""
        if config.pick is not None and self.shows(pick := Pick.parse(config.pick)):
            return np.asarray(self.mask * self.of(pick), np.float32)
        named = (Named.parse(text).pick for text in (*config.except_, *config.only))
        if not (here := [self.of(pick) for pick in named if pick is not None and self.shows(pick)]):
            return self.mask
        inside = np.logical_or.reduce(here)
        return np.asarray(self.mask * (~inside if config.except_ else inside), np.float32)


class Previews:
    """Renders frames. One thread at a time may call."""

    def __init__(self, limits: FrameOptions) -> None:
        """`limits` are options that hold for all inputs."""
        self._access = access_of(Config(**limits))
        self._sessions: dict[object, Segmenter] = {}
        self._seen: OrderedDict[tuple[object, ...], _SeenFrame] = OrderedDict()
        self._about: OrderedDict[FileState, tuple[InputFacts, Fraction]] = OrderedDict()
        self._corrections = PreviewCorrections()
        self._open: OrderedDict[FileState, tuple[OpenVideo, float]] = OrderedDict()  # with the time of its last use

    def close(self) -> None:
        """Frees the networks, and closes all files."""
        self.close_idle(0.0)
        for session in self._sessions.values():
            session.close()

    def close_idle(self, age: float = _OPEN_FOR) -> None:
        """Closes the videos that nobody has asked for in so many seconds."""
        old = [state for state, (_, used) in self._open.items() if time.monotonic() - used >= age]
        for state in old:
            self._open.pop(state)[0].close()

    def about(self, path: str) -> InputFacts:
        """Returns size and length of an input. Raises `InputError`."""
        return self._probed(file_state(path))[0]

    def frame(self, path: str, seconds: float, view: View, options: Options, width: int, project: str = "") -> bytes:
        """Returns the frame that is shown at that time as JPEG, at most `width` pixels wide; a correction as PNG.

        Where `pick`, `except_` or `only` names a point at a time, the frame of that time alone shows the choice. The
        masks are corrected by the text of a `project` file. Raises as `Segmenter.frames`, `InputError` for a project
        that does not fit, and `ConfigError` for a time behind the end.
        """
        config = Config(**options)
        seen = self._find(path, seconds, config)
        correction = self._correction(path, seen, project) if project else None
        if view == "correction":
            return as_png(correction)
        if correction is not None:
            seen = replace(seen, mask=corrected(seen.mask, correction))
        if view == "input":
            return _jpeg(seen.image, width)
        mask = seen.chosen(config)
        if config.region:
            mask = _with_regions(mask, seen, config)
        shown = self._session(Config()).apply(
            seen.image,
            mask=mask,
            effect="mask" if view == "mask" else config.effect,
            invert=config.invert,
            threshold=config.threshold,
            feather=config.feather,
            refine=config.refine,
        )
        return _jpeg(_on_board(shown), width)

    def mask(self, path: str, options: Options) -> bytes:
        """Returns the mask of a picture's file as a gray PNG. Raises as `Segmenter.masks`, and for a video."""
        config = Config(**options)
        try:
            still = is_still(path, self._access)
        except InputError as exc:
            raise InputError(f"{path}: is no picture that can be read") from exc
        if not still:
            raise InputError(f"{path}: is no single picture; /api/frames has the masks of videos, as view=mask")
        picture = read_still(path, self._access).rgb
        mask = self._session(config).masks(picture, refine=config.refine)
        return gray_png(np.asarray(cv2.convertScaleAbs(mask, alpha=255), np.uint8))

    def _correction(self, path: str, seen: _SeenFrame, project: str) -> PackedMap | None:
        state = file_state(path)
        if not self._probed(state)[0].rate:
            raise InputError("project: corrections are of videos")
        return self._corrections.at(self._opened(state).info, state, parse_project(project, "project"), seen.seconds)

    def _session(self, config: Config) -> Segmenter:
        key = (config.model, config.anonymize)
        if key not in self._sessions:
            covers = config.anonymize not in (None, REGIONS)
            self._sessions[key] = (
                Segmenter(anonymize=config.anonymize) if covers else Segmenter(model=config.model, labels=config.labels)
            )
        return self._sessions[key]

    def _find(self, path: str, seconds: float, config: Config) -> _SeenFrame:
        state = file_state(path)
        about, frame_length = self._probed(state)
        index = round(seconds * about.rate)
        if about.rate and about.seconds:
            count = max(1, round(about.seconds * about.rate))
            if index > count:
                raise ConfigError(f"time {seconds:g}: the video ends at {about.seconds:g} s")
            index = min(index, count - 1)  # at the end itself the last frame is shown
        picked = config.pick is not None
        key = (state, index, config.model, config.anonymize, config.smoothing_strength, picked)
        for found in (key, (*key[:-1], True)):
            if found in self._seen:
                self._seen.move_to_end(found)
                return self._seen[found]
        seen = self._video(state, index * frame_length, config, picked) if about.rate else self._picture(path, config)
        self._seen[key] = seen
        while len(self._seen) > 1 and sum(one.image.nbytes for one in self._seen.values()) > _KEPT:
            self._seen.popitem(last=False)
        return seen

    def _picture(self, path: str, config: Config) -> _SeenFrame:
        image = read_still(path, self._access).rgb
        return _SeenFrame(image, self._session(config).masks(image, refine=False), None, 0.0)

    def _video(self, state: FileState, begin: Fraction, config: Config, picked: bool) -> _SeenFrame:
        """Returns the frame that is shown for half of the time or more that begins then, or the last one before."""
        reach = REACH if config.smoothing_strength else 0
        shown_at = begin + self._probed(state)[1] / 2
        before = _FOLLOWED if picked or config.covers_boxes else reach
        moment = Moment(self._opened(state), shown_at, before, reach)
        track: Track | None = "balanced" if picked else None
        frames = self._session(config).frames(moment, smooth=config.smooth, track=track, refine=False)
        with closing(frames):
            last = next(frames)
            for frame in frames:
                if frame.seconds > shown_at:
                    break
                last = frame
        return _SeenFrame(last.image, last.small_mask, last.instances, last.seconds)

    def _opened(self, state: FileState) -> OpenVideo:
        """Returns a video that stays open, as it was in that state. Raises `InputError`."""
        video = self._open.pop(state)[0] if state in self._open else OpenVideo(state.path, self._access)
        self._open[state] = video, time.monotonic()
        for other in [one for one in self._open if one.path == state.path and one != state]:  # it has changed since
            self._open.pop(other)[0].close()
        while len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)[1][0].close()
        return video

    def _probed(self, state: FileState) -> tuple[InputFacts, Fraction]:
        """Returns what an input is, and the length of a frame in seconds."""
        if state not in self._about:
            if is_still(state.path, self._access):
                height, width = read_still(state.path, self._access).rgb.shape[:2]
                probed = InputFacts(width, height, 0.0, 0.0), Fraction(0)
            else:
                info = self._opened(state).info
                width, height = info.upright_size
                seconds = float(info.end - info.start) if info.end is not None else (info.frames or 0) / info.rate
                probed = InputFacts(width, height, float(seconds), float(info.rate)), 1 / info.rate
            self._about[state] = probed
            if len(self._about) > 1000:
                self._about.popitem(last=False)
        return self._about[state]


def _with_regions(mask: NDArray[np.float32], seen: _SeenFrame, config: Config) -> NDArray[np.float32]:
    """Returns the mask with the regions of the frame's time. Raises `ConfigError` for one outside of the picture."""
    height, width = seen.image.shape[:2]
    regions = [Region.parse(text) for text in config.region]
    return np.maximum(mask, drawn(regions, (width, height), seen.seconds, (mask.shape[0], mask.shape[1])))


def _on_board(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Returns a picture with alpha (H, W, 4) on a board of gray squares, one without as it is."""
    if picture.shape[2] == 3:
        return picture
    rows, columns = np.indices(picture.shape[:2]) // _SQUARE
    board = np.where((rows + columns) % 2, 200, 240)[..., None]
    alpha = picture[..., 3:] / np.float32(255)
    return np.asarray(picture[..., :3] * alpha + board * (1 - alpha), np.uint8)


def _jpeg(picture: NDArray[np.uint8], width: int) -> bytes:
    if picture.shape[1] > width:
        size = (width, max(1, round(picture.shape[0] * width / picture.shape[1])))
        picture = np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), np.uint8)
    written = cv2.imencode(".jpg", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
    return written[1].tobytes()
