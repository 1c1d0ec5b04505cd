"""Finds out who is at a point at a time: `--pick`, and `at` of `--except` and `--only`."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

from segmentation.errors import ConfigError, InputError, Stopped
from segmentation.frames.source import Source
from segmentation.options.config import Config
from segmentation.options.instances import Pick
from segmentation.options.review import Named
from segmentation.pipeline.mask_stages import without_outputs
from segmentation.pipeline.resources import Resources
from segmentation.sessions.frame_iterator import MaskedFrame, masked_frames

_LISTS = "--results FILE --results-format mot lists"
_LATER = 0.5  # seconds after the time in which the person may get an id


def with_picked(resources: Resources, source: Source, config: Config, stop: threading.Event) -> Config:
    """Returns the options with ids in place of points, for a run that sees the same frames from the first on.

    The stretch up to the last of the times is followed once more for that, without an output, since the ids have to be
    known at the first frame. Raises `ConfigError` for a source that can be read once only, and `InputError` if nobody
    is at a point. Setting `stop` ends it with `Stopped`.
    """
    named = (*config.except_, *config.only)
    picks = {text: pick for text in named if (pick := Named.parse(text).pick) is not None}
    if config.pick is not None:
        picks[config.pick] = Pick.parse(config.pick)
    if not picks:
        return config
    if source.stream is not None or source.is_live:
        raise ConfigError(f"pick {next(iter(picks))}: the input is read twice, so it must be a file; name an id, id:N")
    for text, pick in picks.items():
        _check(config, text, pick)
    length = max(pick.time for pick in picks.values()) - float(config.start) + _LATER
    first_pass = replace(
        without_outputs(config), track=config.tracker, duration=length, refine=False, except_=(), only=(), review=None
    )
    if config.anonymize is None:
        first_pass = replace(first_pass, invert=False)
    found = _found_ids(resources, source, first_pass, picks, stop)
    for text, pick in picks.items():
        if not found[text]:
            shows = _LISTS if config.anonymize else "--effect overlay --track balanced shows"
            raise InputError(f"{source.label}: nobody is at {pick}; {shows} who is where")
    if config.pick is not None:
        return replace(config, track=config.tracker, pick=None, keep=f"id:{found[config.pick]}")
    ids = {text: f"id:{id}" for text, id in found.items()}
    excepted, only = (tuple(ids.get(text, text) for text in texts) for texts in (config.except_, config.only))
    return replace(config, except_=excepted, only=only)


def _check(config: Config, text: str, pick: Pick) -> None:
    """Raises `ConfigError` where a point can't be looked up before the run."""
    option = "pick" if config.anonymize is None else "--except or --only"
    if config.masks is not None:
        raise ConfigError(f"{option} {text}: can't be used with saved masks; use --keep id:N")
    if pick.time < config.start or (config.duration is not None and pick.time >= config.start + config.duration):
        raise ConfigError(f"{option} {text}: its time is not in the stretch that is processed")


def _found_ids(
    resources: Resources, source: Source, config: Config, picks: Mapping[str, Pick], stop: threading.Event
) -> dict[str, int]:
    """Returns the ids of the instances at the points in the frames that are shown at the times, or soon after.

    That is 0 for none. Raises `InputError` for a time behind the last frame, and `Stopped`.
    """
    found = dict.fromkeys(picks, 0)
    before: MaskedFrame | None = None
    shown_for = _LATER  # seconds: the last frame, of which there may be no word
    with closing(masked_frames(resources, source, config, stop)) as frames:
        for frame in frames:
            if stop.is_set():
                raise Stopped(f"{source.label}: stopped before the first frame; nothing was written")
            for text, pick in picks.items():
                if not found[text] and pick.time < frame.seconds <= pick.time + _LATER:
                    shown = (one.id_at(pick.place(one.size)) for one in (before, frame) if one is not None)
                    found[text] = next(filter(None, shown), 0)
            if before is not None:
                shown_for = max(_LATER, frame.seconds - before.seconds)
            before = frame
    if before is not None:
        for pick in picks.values():
            if pick.time > before.seconds + shown_for:
                raise InputError(f"{source.label}: its last frame is at {before.seconds:.2f} s, before {pick}")
        late = {text: pick for text, pick in picks.items() if not found[text] and pick.time >= before.seconds}
        found |= {text: before.id_at(pick.place(before.size)) for text, pick in late.items()}
    return found
