"""Cuts a video into pieces that workers make apart, and describes the work so that any process can do it.

The plan depends on the video and the options alone, never on the workers: so their number does not show in the output.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmentation._version import __version__
from segmentation.errors import InputError
from segmentation.frames import VideoInfo
from segmentation.frames.source import is_url
from segmentation.media.cuts import Cuts
from segmentation.options.config import OPTIONS, Config
from segmentation.stages.decode.packet_index import frames_and_keys
from segmentation.stages.decode.timestamps import Timeline
from segmentation.stages.masks.smoothing import REACH

SEGMENT = 2  # seconds of an encoder's segment
SHORTEST = 4  # seconds of a piece, but for the last one's and those of short videos
GOPS = 8  # of the input, after which a piece ends
LONGEST = 20  # seconds after which a piece ends at the next keyframe, however few groups that is
_NOT_IN_PIECES = ("overwrite", "trace")  # options that don't change what a piece holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stretch of a video between two keyframes. Times are pts of the input, `None` where there is no limit."""

    frames: int = 0  # as the packets tell, 0 where they don't
    begin: int | None = None  # of the first frame
    end: int | None = None  # of the first frame behind
    decode: int | None = None  # of the keyframe at which decoding begins
    lead: int | None = None  # of the first frame before `begin` that smoothing needs
    tail: int | None = None  # of the first frame behind `end` that smoothing does not need
    cuts: tuple[int, ...] | None = None  # at which the encoder begins segments; `None`: by their number of frames


@dataclass(frozen=True, kw_only=True)
class VideoPlan:
    """The work on one video."""

    source: str
    target: str
    options: dict[str, Any]  # of `Config`: those that are not the default, as JSON has them
    identity: tuple[int, int]  # size and time of change of the source, so that pieces of another file are not taken
    version: str = __version__
    segment: int  # frames of an encoder's segment
    pieces: tuple[Piece, ...]
    uncut: str = ""  # why there is one piece

    @property
    def config(self) -> Config:
        """Returns the options."""
        return config_of(self.options)

    @property
    def frames(self) -> int:
        """Returns the number of frames, 0 if unknown."""
        return sum(piece.frames for piece in self.pieces)

    @property
    def cuts(self) -> Cuts:
        """Returns where the encoders begin segments."""
        times = [piece.cuts for piece in self.pieces if piece.cuts is not None]
        return Cuts(self.segment, tuple(pts for cuts in times for pts in cuts) if times else None)

    def begins(self) -> tuple[int, ...]:
        """Returns the pts at which a piece begins, but for the first one."""
        return tuple(piece.begin for piece in self.pieces[1:] if piece.begin is not None)

    def is_same_work(self, other: VideoPlan) -> bool:
        """Returns whether the pieces of one plan serve the other."""
        return replace(self, pieces=(), uncut="") == replace(other, pieces=(), uncut="")

    def as_json(self) -> str:
        """Returns the plan as text."""
        return json.dumps(asdict(self))

    @cached_property  # each piece asks for it, and it takes as long as the plan has pieces
    def digest(self) -> str:
        """Returns a digest that no other plan has."""
        return hashlib.sha256(self.as_json().encode()).hexdigest()

    @staticmethod
    def from_json(text: str) -> VideoPlan:
        """Returns the plan that `as_json` wrote. Raises `ValueError`, `KeyError` or `TypeError`."""
        given = json.loads(text)
        pieces = [
            Piece(**piece | {"cuts": None if piece["cuts"] is None else tuple(piece["cuts"])})
            for piece in given["pieces"]
        ]
        return VideoPlan(**given | {"identity": tuple(given["identity"]), "pieces": tuple(pieces)})


def plan_video(info: VideoInfo, target: Path, config: Config, *, recurrent: bool) -> VideoPlan:
    """Returns the plan for a file or an address. `recurrent`: the network carries states from frame to frame.

    Raises `InputError`.
    """
    segment = max(8, round(info.rate * SEGMENT))
    source = info.path if info.source.is_url else os.path.abspath(info.path)
    plan = VideoPlan(
        source=source,
        target=str(target.absolute()),
        options=options_of(config),
        identity=_identity(source),
        segment=segment,
        pieces=(Piece(),),
    )
    reason = _why_whole(info, config, recurrent=recurrent)
    if reason or (info.end is not None and info.end - info.start < 2 * SHORTEST):
        return replace(plan, uncut=reason)
    found = frames_and_keys(info)
    if found is None:
        return replace(plan, uncut="its packets don't tell the times of all frames for certain")
    times, keys = found
    first, last = _stretch(times, info, config)
    if last - first < 2:
        return plan
    return replace(plan, pieces=tuple(cut(times, keys, info.time_base, range(first, last), segment)))


def cut(
    times: NDArray[np.int64], keys: NDArray[np.int64], time_base: Fraction, wanted: range, segment: int
) -> Iterator[Piece]:
    """Yields the pieces of the frames `wanted`, of all that there are.

    `times` and `keys` are those of `frames_and_keys`, and `segment` is the number of frames of a segment.
    """
    begins = np.flatnonzero(np.diff(keys, prepend=keys[0] - 1))  # frames at which a group of pictures begins
    frames = [wanted.start, *_boundaries(times, begins, time_base, wanted), wanted.stop]

    def time(frame: int) -> int | None:
        return int(times[frame]) if frame < len(times) else None

    for first, last in pairwise(frames):
        lead = max(wanted.start, first - REACH)
        key = int(begins[np.searchsorted(begins, lead, side="right") - 1])
        inner = first > wanted.start
        count = max(1, round((last - first) / segment))
        yield Piece(
            frames=last - first,
            begin=time(first) if inner else None,
            end=time(last),
            decode=time(key) if inner and key else None,
            lead=time(lead) if inner else None,
            tail=time(min(wanted.stop, last + REACH)),
            cuts=tuple(int(times[first + part * (last - first) // count]) for part in range(count)),
        )


def _boundaries(
    times: NDArray[np.int64], begins: NDArray[np.int64], time_base: Fraction, wanted: range
) -> Iterator[int]:
    """Yields the frames, keyframes all, with which pieces but the first begin."""
    begin, groups = wanted.start, 0
    for key in begins[(begins > wanted.start) & (begins < wanted.stop)].tolist():
        groups += 1
        length = int(times[key] - times[begin]) * time_base
        left = int(times[wanted.stop - 1] - times[key]) * time_base
        if length >= SHORTEST and left >= SHORTEST and (groups >= GOPS or length >= LONGEST):
            yield key
            begin, groups = key, 0


def _stretch(times: NDArray[np.int64], info: VideoInfo, config: Config) -> tuple[int, int]:
    """Returns the first wanted frame, and the one behind the last."""
    timeline = Timeline(info, config)
    first = 0 if timeline.first is None else int(np.searchsorted(times, timeline.first))
    last = len(times) if timeline.end is None else int(np.searchsorted(times, timeline.end))
    return first, last if config.max_frames is None else min(last, first + config.max_frames)


def _why_whole(info: VideoInfo, config: Config, *, recurrent: bool) -> str:
    """Returns why a video is made in one piece, if that shows without reading it."""
    if recurrent:
        return "the network carries states from frame to frame"
    if config.interval:
        return "--interval chooses its keys from the first frame on"
    if info.source.is_url:
        return "it is an address, and would be read once for each piece"
    if info.interlaced:
        return "it may be interlaced"
    if not info.timed or info.decoding_times:
        return "its container does not say when frames are shown"
    return ""


def options_of(config: Config) -> dict[str, Any]:
    """Returns the options that are not the default and matter to pieces, as JSON has them."""
    found = {}
    for name, row in OPTIONS.items():
        value = getattr(config, name)
        if value != row.default and name not in _NOT_IN_PIECES:
            found[name] = str(value) if isinstance(value, Fraction) else value
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def config_of(options: dict[str, Any]) -> Config:
    """Returns the `Config` of `options_of`. Raises `ConfigError`."""
    times = {
        name: Fraction(value)
        for name, value in options.items()
        if isinstance(value, str) and OPTIONS[name].unit == "seconds"
    }
    return Config(**options | times)


def _identity(source: str) -> tuple[int, int]:
    if is_url(source):
        return 0, 0
    try:
        about = os.stat(source)
    except OSError as exc:
        raise InputError(f"{source}: can't be read ({exc.strerror})") from exc
    return about.st_size, about.st_mtime_ns
