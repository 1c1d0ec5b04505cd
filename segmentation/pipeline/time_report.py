"""Lines about an input's damage, its clock, packets whose times were wrong, and streams that begin on the way."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from segmentation.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from segmentation.media.muxer import Muxer
    from segmentation.media.source_packets import SourcePackets
    from segmentation.options.config import Config

log = logging.getLogger(__name__)


def retimed_packets(video: int, pictures: int, muxer: Muxer | None) -> dict[int, int]:
    """Returns the packets, by stream, that got another time than they stated: so many `pictures` of stream `video`."""
    found = Counter({video: pictures}) + (Counter() if muxer is None else muxer.retimed)
    return dict(sorted(found.items()))


def missing_streams(late: Mapping[int, str], config: Config) -> dict[int, str]:
    """Returns those streams that begin on the way, such as "audio aac" by number, that were not to be left out."""
    others = ("audio",) if config.anonymize is not None and not config.keep_metadata else ("audio", "subtitle", "data")
    wanted = {"video", *others} - ({"audio"} if config.mute else set()) if config.video else {"video"}
    return {stream: kind for stream, kind in late.items() if kind.split()[0] in wanted}


def late_words(missing: Mapping[int, str]) -> str:
    """Returns the streams of `missing_streams` in words."""
    return ", ".join(f"{stream} ({kind})" for stream, kind in missing.items())


def report_damage(path: str, damaged: int, written: int, config: Config) -> None:
    """Says how many frames are damaged, if any. With `strict`, raises `InputError`."""
    if not damaged:
        return
    text = f"{path}: {'1 frame is' if damaged == 1 else f'{damaged} frames are'} damaged or missing"
    if config.strict:
        raise InputError(f"{text}; without --strict, what can be decoded is written")
    log.warning("%s, %d were written", text, written)


def report_late(path: str, missing: Mapping[int, str], config: Config, named: Collection[int] = ()) -> None:
    """Says which streams are left out as they begin on the way. With `strict`, raises `InputError`.

    Earlier lines say of the streams `named` that they are left out.
    """
    if not missing:
        return
    text = f"{path}: stream {late_words(missing)} begins on the way, and is left out"
    if config.strict:
        raise InputError(f"{text}; without --strict, the rest is written")
    if set(missing) <= set(named):
        text = f"{path}: what is left out begins on the way"
    chosen, hint = "-map 0", "remux it"
    if any(kind.startswith("video") for kind in missing.values()):
        chosen, hint = " ".join(f"-map 0:{stream}" for stream in missing), "process that by itself"
    log.warning("%s; %s: ffmpeg -probesize 2G -analyzeduration 2G -i INPUT %s -c copy OUTPUT.mkv", text, hint, chosen)


def warn_of_times(path: str, source: SourcePackets | None, retimed: Mapping[int, int]) -> None:
    """Says when an input's clock has stepped, and which packets stated wrong times. `source` has been read."""
    steps = () if source is None else source.steps
    if steps:
        at, by = steps[0]
        more = f" (steps in all: {len(steps)})" if len(steps) > 1 else ""
        text = "%s: its clock steps by %+.1f s at %.1f s%s; picture and sound go on together from there"
        log.warning(text, path, float(by), float(at), more)
    for stream, count in retimed.items():
        packets = "1 packet" if count == 1 else f"{count} packets"
        log.warning(
            "%s: %s of stream %d had wrong times, and got others between their neighbors'", path, packets, stream
        )
