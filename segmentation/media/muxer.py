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
from typing import ClassVar, Protocol

import av
import av.error
from av.audio.stream import AudioStream
from av.container import InputContainer, OutputContainer
from av.packet import Packet
from av.stream import Stream
from av.video.stream import VideoStream

from segmentation.errors import OutputError, ReaderGone, one_line
from segmentation.frames import VideoInfo
from segmentation.frames.live_sound import LiveSound
from segmentation.media.bitstream.sei import CARRIERS
from segmentation.media.containers import (
    EXACT,
    begin_file,
    codec_for,
    has_rate,
    has_type,
)
from segmentation.media.copying.format_limits import TOGETHER, FormatLimits
from segmentation.media.copying.held import copy_tags, format_holds, is_named_wrongly, states_packets
from segmentation.media.copying.pitch_shift import PitchShift
from segmentation.media.copying.sound_copy import SoundCopy, name_channels
from segmentation.media.copying.source_copy import SourceCopy
from segmentation.media.copying.tags import cut_chapters, is_made_anew, kind_of, name_left_out, name_not_held, tags_of
from segmentation.media.cuts import Cuts
from segmentation.media.opening.open_input import open_input
from segmentation.media.output_clock import beginning, shown_at
from segmentation.media.output_stream import OutputDevice, Target
from segmentation.media.source_packets import SourcePackets
from segmentation.media.video_packet import base_of
from segmentation.options.config import Config
from segmentation.options.times import exact
from segmentation.system.atomic_file import PendingFile
from segmentation.system.interrupts import Interrupted, interrupts

log = logging.getLogger(__name__)

_LATENESS = Fraction(1)  # seconds by which MPEG-TS has sound behind the video that is shown at the same time
_USUAL = Fraction(2)  # seconds at which clocks may begin without a word: MPEG-TS leaves its first packets time


class PacketSink(Protocol):
    """Takes packets as they come: a container of FFmpeg's, or a process that sends them."""

    def mux_one(self, packet: Packet[VideoStream] | Packet[Stream]) -> None:
        """Writes one packet. Raises `OSError`, or an error of FFmpeg's."""


class Muxer:
    """Writes one file. Use it as a context manager: without `finish` the file is removed at the end.

    A file's audio, subtitles, data and attachments come from a second reading of the file; a live source hands its
    sound on. Packets are copied untouched. All methods raise `OutputError` if the output can't be written.
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
        self._sound: SoundCopy | None = None  # of a live source
        self._semitones = config.pitch_shift
        self._shifted: dict[int, PitchShift] = {}  # streams of sound that get another pitch
        self._finished = False
        self._prepare(config.overwrite, option)
        try:
            self.container = self._begin()
            self._limits = FormatLimits(self.container.format.name, target, info.path)
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
        return begin_file(self._file.address, self.target, self._info)

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
                with interrupts():
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
        pipe = self._info.source.stream
        if pipe is not None:
            pipe.expect(1)  # for a look at a stream's beginning
        source = self._source = open_input(self._info.source, self._info.access, brief=self._info.alone)
        if self._says_beginning and abs(self.shift) > _USUAL:
            text = "%s: its clock begins at %.1f s; the output begins at 0 (--keep-start keeps its time)"
            log.warning(text, self._info.path, float(self.shift))
        for stream in source.streams:
            self._add_copy(stream, source)
        if pipe is not None:
            pipe.expect(-1)
        if self._discreet:
            name_left_out(source, self._info.path)
        else:
            name_not_held(source, self.container.format.name, self._info.path, self._kind_of_output())
            copy_tags(source, self.container)
            self.container.set_chapters(cut_chapters(source, self.shift, end))
        streams = [s for s in source.streams if s.index in self._others and s.type != "attachment"]
        if not streams:
            self._close_source()
        else:
            if self._info.source.is_read_once:
                streams.append(source.streams[self._info.stream_index])
            together = self.container.format.name in TOGETHER
            self._copy = SourceCopy(source, streams, self._info, start=self.start, end=end, together=together)
            self._packets = iter(self._copy)
            self._next = next(self._packets, None)

    def _add_sound(self, sound: LiveSound) -> None:
        """Adds the counterpart of a live source's sound, or warns that it is left out."""
        try:
            self._sound = SoundCopy(sound, self.container, self._can_hold)
        except ValueError:
            text = "%s: its sound (%s) is left out, since %s can't hold it"
            log.warning(text, self._info.path, kind_of(sound.template), self.target)

    def _copy_sound(self, seconds: Fraction | None) -> None:
        """Muxes a live source's sound up to this time of the output; `None`: all of it."""
        if self._sound is not None:
            for packet in self._sound.until(seconds, self._info.time_base):
                self._mux(packet)

    def _add_copy(self, stream: Stream, source: InputContainer) -> None:
        """Adds the counterpart of a stream of the source, or warns that the stream is left out."""
        left_out = "%s: stream %d (%s) is left out: "
        which = (self._info.path, stream.index, kind_of(stream))
        if stream.index == self._info.stream_index:
            video = self.container.streams.video[0]
            video.metadata.update(tags_of(stream, discreet=self._discreet))
            video.disposition = stream.disposition
        elif stream.type == "audio" and self._mute:
            log.warning(left_out + "--mute", *which)
        elif stream.type == "audio" and self._semitones:
            if not isinstance(stream, AudioStream) or not stream.codec_context or not self._add_shifted(stream):
                text = left_out + "--pitch-shift can't decode it, or %s can't hold it"
                log.warning(text, *which, self._kind_of_output())
        elif stream.type not in ("video", "audio") and self._discreet:
            log.warning(left_out + "it may name people (--keep-metadata)", *which)
        elif stream.type == "video":
            log.warning(left_out + "one video goes out", *which)  # a copy would show the parts that the effect hides
            self.other_videos.append(stream.index)
        elif is_made_anew(stream, source, self.container.format.name):
            pass  # FFmpeg writes these anew, from the chapters and the video's metadata
        elif self.container.format.name == "mp4" and is_named_wrongly(stream, source, self._info):
            log.warning(left_out + "it is E-AC-3, and .mp4 files name it so; .mkv files can hold it", *which)
        elif not self._can_hold(stream):
            holds = (what for what, name in self._proposals.items() if format_holds(name, stream, self._trial()))
            advice = next((f"; {what} can" for what in holds), "")
            log.warning(left_out + "%s can't hold it%s", *which, self._kind_of_output(), advice)
        else:
            self._take_over(stream, self.container.add_stream_from_template(stream))

    def _add_shifted(self, stream: AudioStream) -> bool:
        """Adds the counterpart of sound with another pitch, in its codec or the format's. Returns whether it can."""
        own, semitones = stream.codec_context.codec.canonical_name, self._semitones or 0.0
        form = self.container.format.name
        for codec in dict.fromkeys((own, self.container.default_audio_codec)):
            if not has_rate(form, codec, stream.rate):
                continue
            with suppress(av.error.FFmpegError, ValueError):
                with av.open(file := self._trial(), "w", format=form) as trial:
                    made = PitchShift(stream, codec, semitones, trial).stream
                    trial.start_encoding()
                    if not states_packets(form, file.getvalue(), made):
                        continue
                shifted = self._shifted[stream.index] = PitchShift(stream, codec, semitones, self.container)
                self._take_over(stream, shifted.stream)
                return True
        return False

    def _take_over(self, stream: Stream, copy: Stream) -> None:
        """Gives a stream's counterpart its tags."""
        copy.metadata.update(tags_of(stream, discreet=self._discreet))
        copy.disposition = stream.disposition
        if isinstance(copy, AudioStream):
            name_channels(copy)  # AVI does not name them
        self._others[stream.index] = copy
        self.copied[stream.index] = copy.index

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
            with interrupts():
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
            with interrupts():
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
                self._limits.follow(packet, dts - self.shift, copy)
                packet.stream = copy
                self._mux(packet)
            self._next = next(self._packets, None)

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
            self._limits.meet(packet)
            container.mux_one(packet)
        except Interrupted as exc:  # as `interrupts()` does, at no cost for each packet
            raise exc.interrupt from None
        except (av.error.FFmpegError, OSError) as exc:
            raise self._error(exc) from exc

    @property
    def cut_short(self) -> bool:
        """Whether the source's other streams could not be read to the end."""
        return self._copy is not None and self._copy.cut_short

    @property
    def is_incomplete(self) -> bool:
        """Whether the source's other streams are cut short, lack packets, or play otherwise."""
        return self.cut_short or self._limits.wrong_sound or (self._copy is not None and self._copy.is_lossy)

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
