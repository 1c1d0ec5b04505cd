"""Reads the options that correct what `--anonymize` covers: `--except`, `--only` and `--review`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from segmentation.errors import ConfigError
from segmentation.options.anonymize import Region, span_of
from segmentation.options.instances import Pick, ids_of

_ACTIONS = ("cover", "leave")
_AT = "at "


@dataclass(frozen=True, slots=True)
class Named:
    """Things by their ids, or the one that is at a point at a time."""

    ids: frozenset[int] = frozenset()
    pick: Pick | None = None

    @staticmethod
    def parse(text: str) -> Named:
        """Reads `id:3,7` or `at X,Y@TIME`. Raises `ConfigError`."""
        what = f"--except or --only {text!r}"
        if text.startswith(_AT):
            return Named(pick=Pick.parse(text.removeprefix(_AT), "--except or --only: at"))
        if not text.startswith("id:"):
            raise ConfigError(f"{what}: write id:N,N,... or 'at X,Y@TIME', such as 'at 50%,50%@2.5'")
        return Named(ids_of(text.removeprefix("id:"), what))


def named_ids(texts: Sequence[str]) -> frozenset[int]:
    """Returns the ids in values of `--except` or `--only`. Raises `ConfigError`."""
    return frozenset[int]().union(*(Named.parse(text).ids for text in texts))


@dataclass(frozen=True, slots=True)
class Correction:
    """A line of a review: things by their ids, or a place, are covered or left for a while."""

    cover: bool
    ids: frozenset[int] = frozenset()
    region: Region | None = None  # in place of ids; with its times
    begin: float = 0.0  # seconds from the video's beginning
    end: float = math.inf

    @staticmethod
    def parse(text: str) -> Correction:
        """Reads `cover|leave id:N,N,...|REGION[@FROM-TO]`. Raises `ConfigError`."""
        action, _, place = text.strip().partition(" ")
        place = place.strip()
        if action not in _ACTIONS or not place:
            raise ConfigError(
                f"{text.strip()!r}: write cover or leave, then id:N or X,Y,W,H, then @FROM-TO if not always"
            )
        cover = action == "cover"
        if not place.startswith("id:"):
            region = Region.parse(place)
            return Correction(cover, region=region, begin=region.begin, end=region.end)
        listed, at, times = place.removeprefix("id:").partition("@")
        what = repr(text.strip())
        return Correction(cover, ids_of(listed, what), None, *(span_of(times, what) if at else (0.0, math.inf)))

    def __contains__(self, time: float) -> bool:
        """Returns whether the correction is for this time, in seconds from the video's beginning."""
        return self.begin <= time < self.end


def read_corrections(path: str | Path | None) -> tuple[Correction, ...]:
    """Returns the lines of a review; empty ones and those that begin with # are none. Raises `ConfigError`."""
    if path is None:
        return ()
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()  # Windows' editors begin with a mark
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "is no text in UTF-8"
        raise ConfigError(f"review {path}: {reason}") from exc
    made = []
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                made.append(Correction.parse(line))
            except ConfigError as exc:
                raise ConfigError(f"review {path}, line {number}: {exc}") from exc
    return tuple(made)


def corrected_ids(excepted: Sequence[str], only: Sequence[str], review: str | Path | None) -> frozenset[int]:
    """Returns all ids that the values of the three options name. Raises `ConfigError`."""
    lines = (line.ids for line in read_corrections(review))
    return (named_ids(excepted) | named_ids(only)).union(*lines)
