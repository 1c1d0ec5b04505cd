"""Writes an output file: the new video, and the source's other streams, chapters and metadata as they were."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import io
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Protocol

import av
import av.error
from av.audio.stream import AudioStream
from av.container import InputContainer, OutputContainer
from av.packet import Packet
from av.stream import Disposition, Stream
from av.video.stream import VideoStream

from segmentation.errors import OutputError, ReaderGone, one_line
from segmentation.frames import VideoInfo
from segmentation.frames.live_sound import LiveSound
from segmentation.media.bitstream.sei import CARRIERS
from segmentation.media.containers import (
    EXACT,
    LIP_SYNC,
    codec_for,
    format_options,
    has_rate,
    has_type,
    open_for_writing,
)
from segmentation.media.cuts import Cuts
from segmentation.media.opening.open_input import OPEN_OPTIONS, open_input
from segmentation.media.output_clock import beginning, shown_at
from segmentation.media.output_stream import OutputDevice, Target
from segmentation.media.pitch_shift import PitchShift
from segmentation.media.sound_copy import SoundCopy, name_channels
from segmentation.media.source_copy import SourceCopy, adts_of
from segmentation.media.source_packets import SourcePackets
from segmentation.media.video_packet import base_of
from segmentation.options.config import Config
from segmentation.options.times import exact
from segmentation.system.atomic_file import PendingFile

if TYPE_CHECKING:
    from av.container.core import Chapter


log = logging.getLogger(__name__)

_LATENESS = Fraction(1)  # seconds by which MPEG-TS has sound behind the video that is shown at the same time
_USUAL = Fraction(2)  # seconds at which clocks may begin without a word: MPEG-TS leaves its first packets time
_TOGETHER = ("matroska", "webm")  # formats that take packets of sound with equal dts
_LONGEST_MP4 = (1 << 31) - 1  # ticks from one packet to the next, in FFmpeg's movenc.c
_NAMELESS = {"language", "handler_name", "vendor_id", "timecode"}  # tags that say nothing of what is shown
_OWN_TAGS = {"encoder", "major_brand", "minor_version", "compatible_brands", "duration"}
_MP4 = ("mp4", "mov")  # FFmpeg's muxers
_MATROSKA_STATISTICS = ("BPS", "NUMBER_OF_", "_STATISTICS", "DURATION")


class PacketSink(Protocol):
    """Takes packets as they come: a container of FFmpeg's, or a process that sends them."""

    def mux_one(self, packet: Packet[VideoStream] | Packet[Stream]) -> None:
        """Writes one packet. Raises `OSError`, or an error of FFmpeg's."""


class Muxer:
    """Writes one file. Use it as a context manager: without `finish` the file is removed at the end.

    A file's audio, subtitles, data and attachments come from a second reading of the file, so decoders need not pass
    them on; a live source hands its sound on. Packets are copied untouched. All methods raise `OutputError` if the
    output can't be written.
    """

    # What to name for FFmpeg's formats, where streams have to be left out.
    _proposals: ClassVar[dict[str, str]] = {".mkv files": "matroska", ".mov files": "mov", ".avi files": "avi"}
    _file: PendingFile
    parts: tuple[str, ...] = ()  # files that follow each other in the place of `target`
    cuts: Cuts | None = None  # at which the encoder has to begin segments, whatever this machine has of cores

    def __init__(self, target: Target, info: VideoInfo, config: Config, option: str = "-o") -> None:
        """Creates a temporary file beside `target`. `option` is the one that names the target."""
        self.target = target
        self.codec: str = config.codec or codec_for(target, config)
        self._info = info
        self.shift = beginning(info, config)  # seconds on the source's clock that become 0 in the output
        # Seconds on the source's clock before which packets are left out, where a stretch is asked for.
        self.start = info.start + exact(config.start) if config.start else None
        # Whatever names people or places may be in other streams and in tags.
        self._discreet, self._mute = config.anonymize is not None and not config.keep_metadata, config.mute
        self._says_beginning = option == "-o" and not config.start  # once for all outputs
        self._source: InputContainer | None = None
        self._others: dict[int, Stream] = {}
        self.other_videos: list[int] = []  # the numbers of the source's further videos, which lines have named
        self.copied: dict[int, int] = {}  # the numbers of the source's other streams, and of their counterparts
        self._packets: Iterator[tuple[Fraction, Packet[Stream]]] = iter(())  # of the other streams, after their dts
        self._next: tuple[Fraction, Packet[Stream]] | None = None
        self._copy: SourceCopy | None = None
        self._last_ticks: dict[int, int] = {}  # dts by stream
        self._stated: dict[int, tuple[int, int]] = {}  # by stream, what its packets state, see `adts_of`
        self._heard: dict[int, Fraction] = {}  # seconds of sound by stream, in AVI, whose sound has no times
        self.wrong_sound = False  # the format moves sound, or plays it otherwise
        self._sound: SoundCopy | None = None  # of a live source
        self._semitones = config.pitch_shift
        self._shifted: dict[int, PitchShift] = {}  # streams of sound that get another pitch
        self._finished = False
        self._prepare(config.overwrite, option)
        try:
            self.container = self._begin()
        except BaseException as exc:  # an interrupt too: `__exit__` is not called without an object
            self._discard()
            if isinstance(exc, (av.error.FFmpegError, OSError, ValueError)):
                raise self._error(exc) from exc
            raise

    @property
    def place(self) -> Path:
        """The file, as an absolute path: the current folder may change before the end."""
        return self._file.place

    def _prepare(self, overwrite: bool, option: str) -> None:
        """Tests before any work whether the target may and can be written."""
        self._file = self._pending_file(overwrite)
        self._file.check(option)

    def _pending_file(self, overwrite: bool) -> PendingFile:
        """Returns the file that `finish` commits."""
        assert isinstance(self.target, Path)
        return PendingFile(self.target, overwrite=overwrite)

    def _begin(self) -> OutputContainer:
        """Creates the temporary file and opens it for writing."""
        self._file.create()
        assert isinstance(self.target, Path)
        suffix, hint = self.target.suffix, f"name a file such as {self.target.stem}.mp4"
        if not suffix:  # FFmpeg would take the name .mp4 for one
            raise OutputError(f"{self.target}: has no suffix; {hint}, or a folder, {self.target.stem}/")
        try:
            options = format_options(self.target, self._info)
            container = open_for_writing(self._file.address, self.target.name, options)
        except ValueError as exc:
            raise OutputError(f"{self.target}: FFmpeg knows no container for {suffix}; {hint}") from exc
        if container.format.no_file:  # such as HLS
            raise OutputError(f"{self.target}: a {suffix} comes with further files, which are not written; {hint}")
        return container

    def _commit(self, *, fragment: bool) -> None:
        """Gives the complete file its name."""
        self.target = self._file.commit(fragment=fragment)

    def _discard(self) -> None:
        """Removes the file that is not complete."""
        self._file.discard()

    def __enter__(self) -> Muxer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._finished:
            # Removed before it is closed: closing may move the index of a large file to its beginning.
            self._discard()
            try:
                self.container.close()
            except (av.error.FFmpegError, OSError, ValueError) as exc:
                log.debug("closing %s: %s", self.target, exc)
        self._close_source()

    def _close_source(self) -> None:
        if self._source is not None:
            self._source.close()
        self._source, self._packets = None, iter(())  # a pipe keeps its bytes for all who still refer to them

    def add_video(self, codec: str, info: VideoInfo, options: dict[str, str]) -> VideoStream:
        """Adds the stream for the encoder's packets. The caller sets size, format and color on its codec context."""
        try:
            if not has_type(self.container.format.name, self.target.suffix, self.codec):
                raise ValueError(self.codec)
            stream = self.container.add_stream(codec, rate=info.rate, options=options)
        except ValueError as exc:
            known = "mkv holds it" if self.codec == "ffv1" else "mp4 and mkv hold it"
            raise OutputError(f"{self.target}: {self.target.suffix} files can't hold {self.codec}; {known}") from exc
        assert isinstance(stream, VideoStream)
        if info.display_matrix is not None:
            stream.set_display_matrix(info.display_matrix)
        return stream

    def copy_streams(self, *, end: Fraction | None) -> None:
        """Takes over the source's other streams, chapters and metadata, up to `end` seconds on the source's clock."""
        if self.target.suffix.lower() not in EXACT and not isinstance(self.target, OutputDevice):
            log.warning("%s: %s files don't keep all timestamps and rotations", self.target, self.target.suffix)
        for what in self._info.left_out:
            log.warning("%s: its %s is not read, and left out", self._info.path, what)
        if self._info.light and self.codec not in (*CARRIERS, "av1"):
            text = "%s: its HDR10 metadata (mastering display, light levels) is left out, since %s is written without"
            log.warning(text, self._info.path, self.codec)
        if self._info.live is not None:  # cameras refuse a second connection
            if self._info.live.sound is not None and not self._mute:
                self._add_sound(self._info.live.sound)
            return
        source = self._source = open_input(self._info.source, self._info.access)
        if self._says_beginning and abs(self.shift) > _USUAL:
            text = "%s: its clock begins at %.1f s; the output begins at 0 (--keep-start keeps its time)"
            log.warning(text, self._info.path, float(self.shift))
        for stream in source.streams:
            self._add_copy(stream, source)
        if self._discreet:
            self._leave_out_names(source)
        else:
            self._copy_tags(source)
            self.container.set_chapters(_chapters(source, self.shift, end))
        streams = [s for s in source.streams if s.index in self._others and s.type != "attachment"]
        if not streams:
            self._close_source()
        else:
            if self._info.source.is_read_once:
                streams.append(source.streams[self._info.stream_index])
            together = self.container.format.name in _TOGETHER
            self._copy = SourceCopy(source, streams, self._info, start=self.start, end=end, together=together)
            self._packets = iter(self._copy)
            self._next = next(self._packets, None)

    def _leave_out_names(self, source: InputContainer) -> None:
        """Says which chapters and tags the output lacks, since they may name people and places."""
        tags = dict.fromkeys(name for one in (source, *source.streams) for name in _tags(one.metadata))
        chapters = [f"{len(source.chapters())} chapters"] if source.chapters() else []
        if what := [*chapters, *(name for name in tags if name.lower() not in _NAMELESS)]:
            text = "%s: left out, since they may name people: %s (--keep-metadata)"
            log.warning(text, self._info.path, ", ".join(what))

    def _copy_tags(self, source: InputContainer) -> None:
        """Takes over the metadata of all the file; in MP4 and MOV as QuickTime keys where the usual tags hold less."""
        tags = _tags(source.metadata)
        self.container.metadata.update(tags)
        if tags and self.container.format.name in _MP4 and _lost_in_mp4(self.container.format.name, tags):
            options = self.container.container_options  # which the header obeys
            options["movflags"] = options.get("movflags", "") + "+use_metadata_tags"

    def _add_sound(self, sound: LiveSound) -> None:
        """Adds the counterpart of a live source's sound, or warns that it is left out."""
        try:
            self._sound = SoundCopy(sound, self.container, self._can_hold)
        except ValueError:
            which = (self._info.path, _kind(sound.template), self.target)
            log.warning("%s: its sound (%s) is left out, since %s can't hold it", *which)

    def _copy_sound(self, seconds: Fraction | None) -> None:
        """Muxes a live source's sound up to this time of the output; `None`: all of it."""
        if self._sound is not None:
            for packet in self._sound.until(seconds, self._info.time_base):
                self._mux(packet)

    def _add_copy(self, stream: Stream, source: InputContainer) -> None:
        """Adds the counterpart of a stream of the source, or warns that the stream is left out."""
        left_out = "%s: stream %d (%s) is left out: "
        which = (self._info.path, stream.index, _kind(stream))
        if stream.index == self._info.stream_index:
            video = self.container.streams.video[0]
            video.metadata.update(self._tags_of(stream))
            video.disposition = stream.disposition
        elif stream.type == "audio" and self._mute:
            log.warning(left_out + "--mute", *which)
        elif stream.type == "audio" and self._semitones:
            if not isinstance(stream, AudioStream) or not self._add_shifted(stream, self._semitones):
                log.warning(
                    left_out + "--pitch-shift can't decode it, or %s can't hold it", *which, self._kind_of_output()
                )
        elif stream.type not in ("video", "audio") and self._discreet:
            log.warning(left_out + "it may name people (--keep-metadata)", *which)
        elif stream.type == "video":
            log.warning(left_out + "one video goes out", *which)  # a copy would show the parts that the effect hides
            self.other_videos.append(stream.index)
        elif _is_chapters(stream, source) or self._is_timecode(stream):
            pass  # FFmpeg writes these anew, from the chapters and the video's metadata
        elif not self._can_hold(stream):
            holds = (what for what, name in self._proposals.items() if format_holds(name, stream, self._trial()))
            other = next(holds, None)
            advice = f"; {other} can" if other is not None else ""
            log.warning(left_out + "%s can't hold it%s", *which, self._kind_of_output(), advice)
        else:
            self._take_over(stream, self.container.add_stream_from_template(stream))

    def _add_shifted(self, stream: AudioStream, semitones: float) -> bool:
        """Adds the counterpart of sound with another pitch, in its codec or the format's. Returns whether it can."""
        own = stream.codec_context.codec.canonical_name
        form = self.container.format.name
        for codec in dict.fromkeys((own, self.container.default_audio_codec)):
            if not has_rate(form, codec, stream.rate):
                continue
            with suppress(av.error.FFmpegError, ValueError):
                with av.open(self._trial(), "w", format=form) as trial:
                    PitchShift(stream, codec, semitones, trial)
                    trial.start_encoding()
                shifted = self._shifted[stream.index] = PitchShift(stream, codec, semitones, self.container)
                self._take_over(stream, shifted.stream)
                return True
        return False

    def _take_over(self, stream: Stream, copy: Stream) -> None:
        """Gives a stream's counterpart its tags."""
        copy.metadata.update(self._tags_of(stream))
        copy.disposition = stream.disposition
        if isinstance(copy, AudioStream):
            name_channels(copy)  # AVI does not name them
        self._others[stream.index] = copy
        self.copied[stream.index] = copy.index

    def _tags_of(self, stream: Stream) -> dict[str, str]:
        """Returns the tags that the stream's counterpart gets."""
        tags = _tags(stream.metadata)
        return {name: tags[name] for name in tags if name.lower() in _NAMELESS} if self._discreet else tags

    def write(self, packets: Sequence[Packet[VideoStream]]) -> None:
        """Muxes video packets, and before each video packet the other streams' packets with earlier dts."""
        for packet in packets:
            if self._next is not None and packet.dts is not None and packet.time_base:
                self._copy_until(packet.dts * packet.time_base)
            # Before a keyframe, at which a file may be cut.
            if self._sound is not None and packet.pts is not None and packet.time_base:
                self._copy_sound(packet.pts * packet.time_base)
            self._mux(packet)

    def seconds(self, pts: int) -> Fraction:
        """Returns when the output shows the frame of this pts: in seconds, a whole number of the container's ticks."""
        return shown_at(pts, self._info.time_base, self.shift, self.tick)

    @property
    def tick(self) -> Fraction:
        """The unit of the video's timestamps, in seconds. Writes the header, which settles the unit."""
        try:
            self.container.start_encoding()
        except (av.error.FFmpegError, OSError, ValueError) as exc:
            raise self._error(exc) from exc
        return base_of(self.container.streams.video[0])

    def finish(self, end: Fraction | None, *, fragment: bool = False) -> None:
        """Copies the rest of the other streams and commits the file, a `fragment` without replacing a complete file.

        The rest ends at `end` seconds on the source's clock; `None` is the source's end.
        """
        self.copy_rest(end)
        try:
            self.container.close()
            self._commit(fragment=fragment)
        except (av.error.FFmpegError, OSError) as exc:
            raise self._error(exc) from exc
        self._finished = True

    def copy_rest(self, end: Fraction | None) -> None:
        """Copies the rest of the other streams, as `finish` does."""
        self._copy_until(end, _LATENESS)
        for packet in chain.from_iterable(shifted.rest() for shifted in self._shifted.values()):
            self._mux(packet)
        self._copy_sound(end)

    def _copy_until(self, seconds: Fraction | None, lateness: Fraction = Fraction(0)) -> None:
        """Muxes the other streams' packets with dts before `seconds` on the source's clock; `None`: all of them.

        A pipe is read up to its video packet of `seconds` and `lateness`: what comes later may take long to arrive.
        """
        while self._next is not None:
            dts, packet = self._next
            copy = self._others.get(packet.stream_index)
            if seconds is not None and dts >= seconds + (lateness if copy is None else 0):
                return
            if (shifted := self._shifted.get(packet.stream_index)) is not None:
                for one in shifted.packets(packet):
                    self._mux(one)
            elif copy is not None:
                if self.container.format.name == "avi" and packet.stream.type == "audio":
                    self._follow_sound(packet, dts)
                self._follow_header(packet, dts)
                packet.stream = copy
                self._mux(packet)
            self._next = next(self._packets, None)

    def _follow_sound(self, packet: Packet[Stream], dts: Fraction) -> None:
        """Says once where sound in AVI is heard early: it follows the sound before it, or begins at once."""
        at, length = dts - self.shift, (packet.duration or 0) * packet.time_base
        heard = self._heard.get(packet.stream_index, Fraction(0))
        self._heard[packet.stream_index] = heard + length if length else at
        if length and at - heard > LIP_SYNC + length and not self.wrong_sound:
            self.wrong_sound = True
            text = "%s: from %.2f s on the sound is heard %.2f s early, since .avi states no times of it; name a .mkv"
            log.warning(text, self.target, float(at), float(at - heard))

    def _follow_header(self, packet: Packet[Stream], dts: Fraction) -> None:
        """Says once where AAC changes its rate or channels, and the format states them once for all of the stream."""
        stated = None if self.container.format.name == "mpegts" else adts_of(packet)
        first = stated and self._stated.setdefault(packet.stream_index, stated)
        if stated != first and not self.wrong_sound:
            self.wrong_sound = True
            (rate, channels), (other, others) = first or (0, 0), stated or (0, 0)
            change = f"from {rate} Hz (channels: {channels}) to {other} Hz ({others})"
            text = "%s: at %.2f s its sound goes %s, and %s files state that once: it is played wrongly; name a .ts"
            log.warning(text, self._info.path, float(dts - self.shift), change, self.target.suffix)

    def _mux(self, packet: Packet[VideoStream] | Packet[Stream]) -> None:
        """Muxes one packet, moved to the output's clock."""
        self._mux_into(self.container, packet, self.shift)

    def _mux_into(self, container: PacketSink, packet: Packet[VideoStream] | Packet[Stream], shift: Fraction) -> None:
        """Muxes one packet, `shift` seconds earlier."""
        if shift:
            ticks = round(shift / base_of(packet))
            packet.dts = packet.dts if packet.dts is None else packet.dts - ticks
            packet.pts = packet.pts if packet.pts is None else packet.pts - ticks
        try:
            self._meet_format(packet, self.container.format.name)
            container.mux_one(packet)
        except (av.error.FFmpegError, OSError) as exc:
            raise self._error(exc) from exc

    def _meet_format(self, packet: Packet[VideoStream] | Packet[Stream], form: str) -> None:
        """Moves a packet to the next tick of the output if the one before has its tick, as FFmpeg does.

        Most formats refuse equal dts, of sound at least. Raises `OutputError` for a gap that an MP4 can't state.
        """
        unit, base, stream = packet.stream.time_base, packet.time_base, packet.stream_index
        dts, pts = packet.dts, packet.pts
        if dts is None or not base or not unit:
            return
        tick = in_ticks(dts, base, unit)
        last = self._last_ticks.get(stream, tick - 1)
        if tick <= last and (form == "avi" or (packet.stream.type == "audio" and form not in _TOGETHER)):
            pts = packet.pts = last + 1 if pts is None else max(last + 1, in_ticks(pts, base, unit))
            tick = dts = packet.dts = last + 1
            base = packet.time_base = unit
        if form in _MP4:
            later = 0 if pts is None else pts - dts  # than it is decoded
            gap = max(tick - last, in_ticks(max(later, packet.duration or 0), base, unit))
            if gap > _LONGEST_MP4:
                hours, at = float(gap * unit / 3600), float(last * unit)
                what = f"its {_kind(packet.stream)} has a gap of {hours:.1f} h at {at:.1f} s"
                suffix = self.target.suffix
                raise OutputError(f"{self.target}: {what}, longer than {suffix} files can state; name a .mkv")
        self._last_ticks[stream] = tick

    @property
    def cut_short(self) -> bool:
        """Whether the source's other streams could not be read to the end."""
        return self._copy is not None and self._copy.cut_short

    @property
    def is_incomplete(self) -> bool:
        """Whether the source's other streams are cut short, lack packets, or play otherwise."""
        return self.cut_short or self.wrong_sound or (self._copy is not None and self._copy.is_lossy)

    @property
    def shifts_pitch(self) -> bool:
        """Whether sound gets another pitch, and is coded anew."""
        return bool(self._shifted)

    @property
    def source_packets(self) -> SourcePackets | None:
        """The source's packets, as far as they have been read; `None` where nothing is copied."""
        return None if self._copy is None else self._copy.packets

    @property
    def retimed(self) -> Counter[int]:
        """Packets of each of the source's other streams whose time did not fit those before and after."""
        return Counter() if self._copy is None else self._copy.retimed

    @property
    def left_out(self) -> Counter[int]:
        """Packets of each of the source's other streams that are damaged."""
        return Counter() if self._copy is None else self._copy.left_out

    def _is_timecode(self, stream: Stream) -> bool:
        """Returns whether FFmpeg makes this track of the video's timecode. A copy would fail at the end."""
        return stream.type == "data" and "timecode" in stream.metadata and self.container.format.name in ("mov", "mp4")

    def _can_hold(self, stream: Stream) -> bool:
        """Returns whether the output's format takes this stream."""
        form = self.container.format.name
        codec = stream.codec_context.codec.canonical_name if stream.codec_context else ""
        return has_type(form, self.target.suffix, codec) and format_holds(form, stream, self._trial())

    def _kind_of_output(self) -> str:
        return f"{self.target.suffix} files"

    def _trial(self) -> io.BytesIO:
        """Returns a file in memory that can be sought if the output can."""
        return io.BytesIO()

    def _error(self, exc: BaseException) -> OutputError:
        if isinstance(exc, BrokenPipeError):
            return ReaderGone(f"{self.target}: its reader has closed it")
        return OutputError(f"{self.target}: cannot be written ({one_line(exc)})")


def in_ticks(time: int, base: Fraction, unit: Fraction) -> int:
    """Returns in ticks of `unit` a time in ticks of `base`, to the nearest one, an even one halfway, as `round` does.

    It makes no fraction, which takes longer than to write the packet.
    """
    down = base.denominator * unit.numerator
    whole, rest = divmod(time * base.numerator * unit.denominator, down)
    return whole + (2 * rest > down or (2 * rest == down and whole % 2 == 1))


def format_holds(format_name: str, stream: Stream, file: io.BytesIO) -> bool:
    """Returns whether a format takes this stream, found by writing a header to `file`, in memory.

    PyAV refuses what Matroska's muxer would write under a tag of Windows, such as WMA, so AVI alone takes it.
    """
    if stream.type == "attachment" and format_name != "matroska":
        return False  # WebM would accept it and write nothing
    if isinstance(stream, AudioStream) and not has_rate(format_name, stream.codec_context.name, stream.rate):
        return False
    try:
        with av.open(file, "w", format=format_name) as trial:
            copy = trial.add_stream_from_template(stream)
            if isinstance(copy, AudioStream):
                name_channels(copy)
            trial.start_encoding()
            return True
    except (av.error.FFmpegError, ValueError):
        return False


def _lost_in_mp4(format_name: str, tags: dict[str, str]) -> set[str]:
    """Returns the tags that the usual metadata of MP4 or MOV don't hold, found by writing them to memory."""
    file = io.BytesIO()
    with av.open(file, "w", format=format_name) as trial:
        trial.add_stream("pcm_s16le" if format_name == "mov" else "mp2", rate=48000)
        trial.metadata.update(tags)
        trial.start_encoding()
    with av.open(io.BytesIO(file.getvalue()), **OPEN_OPTIONS) as made:
        return set(tags) - set(made.metadata) - {"timecode"}  # which becomes a track


def _tags(metadata: dict[str, str]) -> dict[str, str]:
    """Returns the metadata that is true of the output too."""
    return {k: v for k, v in metadata.items() if k.lower() not in _OWN_TAGS and not k.startswith(_MATROSKA_STATISTICS)}


def _kind(stream: Stream) -> str:
    """Names the stream's type and codec, such as "audio aac"."""
    codec = stream.codec_context.name if stream.codec_context else None
    cover = "cover picture" if stream.disposition & Disposition.attached_pic else stream.type
    return f"{cover} {codec}" if codec else cover


def _is_chapters(stream: Stream, source: InputContainer) -> bool:
    """Returns whether this track holds the titles of an MP4's chapters."""
    name = getattr(stream, "name", None)  # streams of unknown kinds have none
    return name == "bin_data" and "mp4" in source.format.name and bool(source.chapters())


def _chapters(source: InputContainer, shift: Fraction, end: Fraction | None) -> list[Chapter]:
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
