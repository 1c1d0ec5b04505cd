"""Finds out who is at a point at a time: `--pick`."""

from __future__ import annotations

from dataclasses import replace

from segmentation.errors import ConfigError, InputError
from segmentation.frames.byte_source import ByteSource
from segmentation.live.address import is_live, source_label
from segmentation.options.config import Config
from segmentation.options.instances import Pick
from segmentation.pipeline.mask_stages import without_outputs
from segmentation.pipeline.resources import Resources
from segmentation.sessions.frame_iterator import MaskedFrame, masked_frames

_LATER = 0.5  # seconds after the time in which the person may get an id


def with_picked(resources: Resources, source: str | ByteSource, config: Config) -> Config:
    """Returns the options with `keep` in place of `pick`, for a run that sees the same frames from the first on.

    The stretch up to the picked time is followed once more for that, without an output, since the id has to be known at
    the first frame. Raises `ConfigError` for a source that can be read once only, and `InputError` if nobody is there.
    """
    if config.pick is None:
        return config
    pick = Pick.parse(config.pick)
    if isinstance(source, ByteSource) or is_live(source):
        raise ConfigError(f"pick {config.pick}: the input is read twice, so it must be a file; use --keep id:N")
    if config.masks is not None:
        raise ConfigError(f"pick {config.pick}: can't be used with saved masks; use --keep id:N")
    if pick.time < config.start or (config.duration is not None and pick.time >= config.start + config.duration):
        raise ConfigError(f"pick {config.pick}: its time is not in the stretch that is processed")
    length = pick.time - float(config.start) + _LATER
    first_pass = replace(
        without_outputs(config), track=config.tracker, duration=length, effect="blur", invert=False, refine=False
    )
    found = _found_id(resources, source, first_pass, pick)
    if not found:
        raise InputError(
            f"{source_label(source)}: nobody is at {pick.point[0]:g},{pick.point[1]:g} at {pick.time:g} s; "
            "--effect overlay --track balanced shows who is where"
        )
    return replace(config, track=config.tracker, pick=None, keep=f"id:{found}")


def _found_id(resources: Resources, source: str, config: Config, pick: Pick) -> int:
    """Returns the id of the instance at the point in the frame that is shown at the time, or soon after; 0 for none."""
    before: MaskedFrame | None = None
    for frame in masked_frames(resources, source, config):
        if frame.seconds > pick.time:
            for shown in (before, frame):
                if shown is not None and (found := shown.id_at(pick.point)):
                    return found
        before = frame
    return 0 if before is None else before.id_at(pick.point)
