"""Tags, chapters and names of a source's streams, for an output."""

from __future__ import annotations

import logging
from fractions import Fraction
from typing import TYPE_CHECKING

from av.container import InputContainer
from av.stream import Disposition, Stream

if TYPE_CHECKING:
    from av.container.core import Chapter

log = logging.getLogger(__name__)

_NAMELESS = {"language", "handler_name", "vendor_id", "timecode"}  # tags that say nothing of what is shown
MP4 = ("mp4", "mov")  # FFmpeg's muxers
_CHAPTERS = {*MP4, "ipod", "f4v", "3gp", "3g2", "matroska", "webm", "nut", "asf"}  # the formats that hold them
_TAGS = _CHAPTERS | {"flv"}  # likewise any tag of a file
# What a RIFF file has names for, in FFmpeg's riff.c.
_IN_AVI = {
    *("album", "artist", "comment", "copyright", "date", "encoded_by", "genre", "language", "software", "timecode"),
    *("title", "track"),
}
# `alpha_mode` belongs to VP8 and VP9 with alpha, which outputs of such a source have not.
_OWN_TAGS = {"alpha_mode", "encoder", "major_brand", "minor_version", "compatible_brands", "duration"}
_MATROSKA_STATISTICS = ("BPS", "NUMBER_OF_", "_STATISTICS", "DURATION")


def lasting_tags(metadata: dict[str, str]) -> dict[str, str]:
    """Returns the metadata that is true of the output too."""
    return {k: v for k, v in metadata.items() if k.lower() not in _OWN_TAGS and not k.startswith(_MATROSKA_STATISTICS)}


def tags_of(stream: Stream, *, discreet: bool) -> dict[str, str]:
    """Returns the tags that the stream's counterpart gets; if `discreet`, those that name nobody."""
    tags = lasting_tags(stream.metadata)
    if "name" in tags:  # as FFmpeg reads the title of an MP4's track, and writes none
        tags.setdefault("title", tags.pop("name"))
    return {name: tags[name] for name in tags if name.lower() in _NAMELESS} if discreet else tags


def name_left_out(source: InputContainer, path: str) -> None:
    """Says which chapters and tags the output lacks, since they may name people and places."""
    tags = dict.fromkeys(name for one in (source, *source.streams) for name in lasting_tags(one.metadata))
    chapters = [f"{len(source.chapters())} chapters"] if source.chapters() else []
    if what := [*chapters, *(name for name in tags if name.lower() not in _NAMELESS)]:
        log.warning("%s: left out, since they may name people: %s (--keep-metadata)", path, ", ".join(what))


def name_not_held(source: InputContainer, form: str, path: str, output: str) -> None:
    """Says which chapters and tags of a file the output's format does not hold."""
    holds = lasting_tags(source.metadata) if form in _TAGS else _IN_AVI if form == "avi" else ()
    lost = [name for name in lasting_tags(source.metadata) if name not in holds and name.lower() not in holds]
    chapters = [f"{len(source.chapters())} chapters"] if source.chapters() and form not in _CHAPTERS else []
    if chapters or lost:
        log.warning("%s: left out, since %s can't hold them: %s", path, output, ", ".join([*chapters, *lost]))


def kind_of(stream: Stream) -> str:
    """Names the stream's type and codec, such as "audio mp3", whose decoder FFmpeg calls mp3float."""
    codec = stream.codec_context.codec.canonical_name if stream.codec_context else None
    cover = "cover picture" if stream.disposition & Disposition.attached_pic else stream.type
    return f"{cover} {codec}" if codec else cover


def is_made_anew(stream: Stream, source: InputContainer, form: str) -> bool:
    """Returns whether FFmpeg writes this track anew in `form`: the titles of an MP4's chapters, or a timecode.

    A copy of a timecode's track would fail at the end, beside the one of the video's metadata.
    """
    if stream.type == "data" and "timecode" in stream.metadata and form in MP4:
        return True
    name = getattr(stream, "name", None)  # streams of unknown kinds have none
    return name == "bin_data" and "mp4" in source.format.name and bool(source.chapters())


def cut_chapters(source: InputContainer, shift: Fraction, end: Fraction | None) -> list[Chapter]:
    """Returns the source's chapters on the output's clock, cut to the part that the output has."""
    kept = []
    for chapter in source.chapters():
        unit = chapter["time_base"] or Fraction(1)
        begin = max(Fraction(0), chapter["start"] * unit - shift)
        finish = chapter["end"] * unit - shift if end is None else min(chapter["end"] * unit, end) - shift
        if begin < finish:
            chapter["start"], chapter["end"] = round(begin / unit), round(finish / unit)
            kept.append(chapter)
    return kept
