"""One clock for all streams of a file, where its own steps or where single packets state a wrong time.

Recordings that are joined byte by byte begin their clock again, broadcasts wrap it, and senders restart. FFmpeg's own
program moves the streams one by one where it sees that. Here a step moves all of them by the same time, so that sound
stays with its picture, and packets ahead distinguish a step from an outlier.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count, islice, pairwise
from typing import Generic, Literal, Protocol, TypeVar

_BACK = Fraction(1, 10)  # seconds off the expected time without a step or an outlier; behind it as in FFmpeg's program
_GAP = Fraction(10)  # seconds: a longer gap of all streams is a step, likewise
_JITTER = Fraction(1, 2)  # seconds by which a time may be off for small reasons: reordering, streams apart, a lost PES
_REACH = Fraction(3)  # seconds of a stream that are read ahead at most, to tell a step from outliers
_STEADY = 3  # packets that must follow a step on its clock
_FIRST = 32  # packets that show whether a stream begins apart from the others: two PES of sound have up to 26
_REORDERED = 16  # packets that come before one that is shown earlier, at most (H.264, A.3.1)
_MOST = 4096  # packets that are read ahead
_SPARSE = 256  # packets among which one of a subtitle finds those of its clock
_OFFSETS = 8  # of earlier clocks that are kept: the streams don't step at the same place of the file


class Stamped(Protocol):
    """A packet: its stream, and its times in ticks of `time_base` seconds."""

    @property
    def stream_index(self) -> int: ...

    dts: int | None
    pts: int | None
    duration: int | None


PacketT = TypeVar("PacketT", bound=Stamped)


@dataclass
class _TrackClock:
    """A stream of pictures or sound, in units of the clock."""

    offset: int = 0  # from the stream's own clock to the one of all
    begin: int | None = None  # pts of the first packet
    last: int | None = None  # dts of the last packet
    length: int = 0  # of the last packet that had one
    end: int = 0  # of what has been shown or heard
    apart: int = 0  # pts and dts, at most
    pause: int = 0  # between two packets, at most
    shown: deque[int] = field(default_factory=lambda: deque(maxlen=_REORDERED))  # pts of the last packets


@dataclass
class _Outlook:
    """A stream of pictures or sound in the packets ahead of a step, in units of the clock."""

    waited: int  # when its next packet should begin
    end: int  # of what is shown or heard before the step
    after: int = 0  # when the first packet behind the step may begin
    begin: int = 0  # dts of the first packet behind the step, by the stream's own clock
    shown: int = 0  # when that packet, or one behind it, is first shown, likewise
    stepped: bool = False
    fed: bool = False

    def feed_old(self, raw: int, shown: int, length: int, offset: int) -> None:
        """Takes a packet before the step."""
        self.waited, self.end = raw + offset + length, max(self.end, shown + offset + length)
        self.stepped, self.fed = False, True

    def feed_new(self, raw: int, shown: int, length: int) -> None:
        """Takes a packet behind the step."""
        if not self.stepped:
            self.after, self.begin, self.shown = self.waited, raw, shown
        self.shown = min(self.shown, shown)
        self.waited += length
        self.stepped = self.fed = True


class Clock(Generic[PacketT]):
    """Gives the packets of a file, in the file's order, times on one clock: that of the file's beginning."""

    def __init__(
        self, bases: Mapping[int, Fraction], steady: Iterable[int], *, steps: bool = True, wraps: Fraction | None = None
    ) -> None:
        """`bases` are the seconds a tick by stream, `steady` the streams of pictures and sound.

        Without `steps` only outliers get other times. The container's counter begins anew after `wraps` seconds.
        """
        self._unit = math.lcm(*(base.denominator for base in bases.values()))  # units of the clock in a second
        self._scales = {stream: int(base * self._unit) for stream, base in bases.items()}  # units a tick
        self._tracks = {stream: _TrackClock() for stream in steady}
        self._steps = steps
        self._wraps = None if wraps is None else int(wraps * self._unit)
        self._offsets = [0]  # the newest last
        self._ahead: deque[PacketT] = deque()
        self._rest: Iterator[PacketT] = iter(())
        self.retimed: Counter[int] = Counter()  # packets by stream that got a time apart from the others'
        self.steps: list[tuple[Fraction, Fraction]] = []  # when the file's clock stepped, and by how much, in seconds

    @property
    def changed(self) -> bool:
        """Whether any packet got another time."""
        return bool(self.retimed or self.steps)

    def begin(self, stream: int) -> Fraction | None:
        """Returns when the first packet of a stream of pictures or sound is shown, in seconds, if it has come."""
        track = self._tracks.get(stream)
        return None if track is None or track.begin is None else Fraction(track.begin, self._unit)

    def __call__(self, packets: Iterable[PacketT]) -> Iterator[PacketT]:
        """Yields the packets, their times changed in place. Reads ahead only where a time is not the expected one."""
        self._rest = iter(packets) if self._wraps is None else self._unwrapped(packets, self._wraps)
        while (packet := self._packet(0)) is not None:
            self._ahead.popleft()
            track = self._tracks.get(packet.stream_index)
            if track is not None and packet.dts is not None:
                self._place(packet, packet.dts, track)
            elif packet.dts is not None or packet.pts is not None:
                if track is None and self._set_back(packet):
                    continue
                self._place_sparse(packet, track)
            yield packet

    def _unwrapped(self, packets: Iterable[PacketT], around: int) -> Iterator[PacketT]:
        """Yields the packets with the times nearest to the one before, of those that the counter may mean.

        FFmpeg repeats the dts before a step where packets state a pts alone, and pictures were reordered before.
        """
        last: int | None = None
        stated: dict[int, int | None] = {}  # dts by stream
        for packet in packets:
            scale, stream = self._scales.get(packet.stream_index), packet.stream_index
            repeats = packet.dts == stated.get(stream)
            stated[stream] = packet.dts
            if repeats and packet.dts is not None and packet.pts is not None and packet.pts < packet.dts:
                packet.dts = packet.pts
            if scale is not None and (packet.dts is not None or packet.pts is not None):
                near = self._raw(packet) if last is None else last
                if packet.dts is not None:
                    packet.dts += round(Fraction(near - packet.dts * scale, around)) * (around // scale)
                    near = packet.dts * scale
                if packet.pts is not None:
                    packet.pts += round(Fraction(near - packet.pts * scale, around)) * (around // scale)
                last = self._raw(packet)
            yield packet

    def _packet(self, number: int) -> PacketT | None:
        """Returns a packet that is ahead; `None` behind the last one."""
        while len(self._ahead) <= number:
            packet = next(self._rest, None)
            if packet is None:
                return None
            self._ahead.append(packet)
        return self._ahead[number]

    def _further(self) -> Iterator[PacketT]:
        """Yields the packets ahead that have a dts."""
        for number in count():
            packet = self._packet(number) if number < _MOST else None
            if packet is None:
                return
            if packet.dts is not None:
                yield packet

    def _raw(self, packet: PacketT) -> int:
        """Returns the packet's own dts in units of the clock, or its pts where it has no dts."""
        ticks = packet.dts if packet.dts is not None else packet.pts or 0
        return ticks * self._scales[packet.stream_index]

    def _shown(self, packet: PacketT) -> int:
        """Returns the packet's own pts in units of the clock, or its dts where it has no pts, or a wrong one."""
        dts, track = self._raw(packet), self._tracks[packet.stream_index]
        pts = dts if packet.pts is None else packet.pts * self._scales[packet.stream_index]
        return pts if abs(pts - dts) <= self._reordering(track) else dts

    def _reordering(self, track: _TrackClock) -> int:
        """Returns how far pts and dts are apart at most, unless pictures follow each other at uneven distances."""
        return max(self._seconds(_JITTER), (_REORDERED + 1) * track.length)

    def _length(self, packet: PacketT, track: _TrackClock) -> int:
        return (packet.duration or 0) * self._scales[packet.stream_index] or track.length

    def _bounded(self, packet: PacketT, track: _TrackClock, away: int) -> int:
        """Returns the packet's length, or 0 for one that could pass for a gap of `away` itself.

        In decoding order the length of a picture before a gap belongs to another one.
        """
        length = self._length(packet, track)
        return length if 2 * length <= abs(away) else 0

    def _seconds(self, seconds: Fraction) -> int:
        return int(seconds * self._unit)

    def _now(self) -> int | None:
        """Returns the latest dts of pictures and sound."""
        return max((track.last for track in self._tracks.values() if track.last is not None), default=None)

    def _expected(self, track: _TrackClock, now: int) -> int:
        """Returns when a stream's next packet should begin. A stream that has been silent for long goes on now."""
        following = now if track.last is None else track.last + track.length
        return following if now - following < self._seconds(_GAP) else now

    def _place(self, packet: PacketT, stated: int, track: _TrackClock) -> None:
        """Sets the times of a packet of pictures or sound, whose dts is `stated`."""
        begin = self._true_beginning(packet) if track.last is None and self._offsets == [0] else None
        if begin is not None:
            self._move(packet, stated, _ticks(begin, self._scales[packet.stream_index]), track)
            self.retimed[packet.stream_index] += 1
            return
        now = self._now()
        if now is None:
            self._move(packet, stated, stated, track)
            return
        expected = self._expected(track, now)
        raw, scale = self._raw(packet), self._scales[packet.stream_index]
        newest = self._offsets[-1]
        if track.offset != newest and abs(raw + newest - expected) < abs(raw + track.offset - expected):
            track.offset = newest
        if not self._fits(raw + track.offset, track, expected, _JITTER):
            track.offset = self._earlier(raw, track, expected)
        fits = self._fits(raw + track.offset, track, expected) or self._explained(packet, track, expected, now)
        dts = stated + _ticks(track.offset, scale) if fits else -(-expected // scale)
        if self._move(packet, stated, dts, track) or not fits:
            self.retimed[packet.stream_index] += 1

    def _true_beginning(self, packet: PacketT) -> int | None:
        """Returns when a stream begins whose first packets are outliers; `None` where they are none, as far as is seen.

        They are far from the other streams, or where there are none, from most of their own stream's.
        """
        stream, own = packet.stream_index, [self._raw(packet)]
        others = {other: track.last for other, track in self._tracks.items() if other != stream}
        for further in islice(self._further(), _SPARSE):
            if further.stream_index == stream:
                own.append(self._raw(further))
            elif others.get(further.stream_index, 0) is None:
                others[further.stream_index] = self._raw(further)
            if None not in others.values() and self._begins_right(own, others):
                return None
        wrong = self._jump(own)
        if not 0 < wrong <= len(own) - _STEADY:
            return None
        length, back = self._length(packet, self._tracks[stream]), own[wrong - 1] - own[wrong]
        if back < 0 and not self._steps:  # a first picture that is shown for long, such as a title or an idle screen
            return None
        begin = own[wrong] - wrong * length
        if 0 < back <= self._seconds(_JITTER):  # right streams may be that far apart in a file
            late, steady = own[0] - begin > self._seconds(_BACK), pairwise(own[wrong : wrong + _STEADY + 1])
            return (
                begin if late and all(at - before <= length + self._seconds(_BACK) for before, at in steady) else None
            )
        first, then = (bool(others) and self._is_apart(at, others, abs(back) // 2) for at in (own[0], own[wrong]))
        return begin if (first and not then if others else wrong < _STEADY) else None

    def _begins_right(self, own: Sequence[int], others: Mapping[int, int | None]) -> bool:
        """Returns whether enough of a stream's first packets are seen, and they are no outliers."""
        apart, far = (others and self._is_apart(own[0], others, self._seconds(by)) for by in (_JITTER, _GAP))
        return len(own) > (_FIRST if apart else _STEADY) and not far and not self._jump(own)

    def _jump(self, times: Sequence[int]) -> int:
        """Returns the number of the first time that is far behind the one before, or before it; 0 for none."""
        back, far = -self._seconds(_BACK), self._seconds(_GAP)
        return next((n for n, (before, at) in enumerate(pairwise(times), 1) if not back <= at - before <= far), 0)

    def _is_apart(self, at: int, others: Mapping[int, int | None], far: int) -> bool:
        """Returns whether a time is far from those of all other streams, as far as these are known."""
        return all(other is None or abs(at - other) > far for other in others.values())

    def _fits(self, at: int, track: _TrackClock, expected: int, ahead: Fraction = _BACK) -> bool:
        """Returns whether a packet may have this dts without a look at what follows, up to so many seconds `ahead`."""
        if track.last is None:
            return abs(at - expected) <= self._seconds(_GAP)
        return track.last - self._seconds(_BACK) <= at <= expected + max(self._seconds(ahead), track.length)

    def _earlier(self, raw: int, track: _TrackClock, expected: int) -> int:
        """Returns the offset of an earlier clock with which a packet comes when it is expected, else the stream's."""
        fitting = (offset for offset in reversed(self._offsets) if self._fits(raw + offset, track, expected, _JITTER))
        return next(fitting, track.offset)

    def _explained(self, packet: PacketT, track: _TrackClock, expected: int, now: int) -> bool:
        """Returns whether packets ahead bear out an unexpected dts: a gap, or a step, which is made here.

        Else the packet is an outlier.
        """
        at = self._raw(packet) + track.offset
        verdict, outlooks = self._look_ahead(packet, track, at - expected, now)
        gap = expected <= at <= max(expected, now) + self._seconds(_GAP)
        if verdict == "step" and self._steps and not gap:
            self._step(track, expected, outlooks)
        return verdict != "outlier"

    def _outlooks(self, now: int) -> dict[int, _Outlook]:
        """Returns what is expected of the streams of pictures and sound that go on."""
        least = now - self._seconds(_REACH)
        return {
            stream: _Outlook(track.last + track.length, track.end)
            for stream, track in self._tracks.items()
            if track.last is not None and track.last >= least
        }

    def _look_ahead(
        self, packet: PacketT, track: _TrackClock, away: int, now: int
    ) -> tuple[Literal["outlier", "step", "gap"], dict[int, _Outlook]]:
        """Returns what packets ahead say of one that comes `away` from the expected dts, and of each stream.

        In a "gap" no clock goes on, neither the old nor the new one: the pictures are far apart.
        """
        outlooks, own = self._outlooks(now), packet.stream_index
        begin = raw = self._raw(packet)
        outlooks[own] = outlook = _Outlook(begin + track.offset - away, track.end)
        outlook.feed_new(raw, self._shown(packet), self._bounded(packet, track, away))
        steady = broken = 0
        for further in self._further():
            stream = further.stream_index
            if stream not in outlooks:
                continue
            at, length = self._raw(further), self._bounded(further, self._tracks[stream], away)
            off = at + self._tracks[stream].offset - outlooks[stream].waited
            returns = abs(at - raw + away) <= abs(away) // 2 + 1 + length  # no seam comes between
            if stream == own and returns and abs(off) < min(abs(away) // 2 + 1, self._seconds(_GAP / 2)):
                return "outlier", outlooks
            if stream == own:
                within = -self._seconds(_BACK) <= at - raw <= self._seconds(_GAP)
                steady, broken, raw = steady + within, broken + (not within), at
            if stream == own or abs(off - away) < abs(off):
                outlooks[stream].feed_new(at, self._shown(further), length)
            else:
                outlooks[stream].feed_old(at, self._shown(further), length, self._tracks[stream].offset)
            agreed = all(outlook.stepped for outlook in outlooks.values())
            if steady >= _STEADY and (agreed or abs(raw - begin) >= self._seconds(_REACH)):
                return ("step" if agreed or not self._alone(own, away, outlooks) else "gap"), outlooks
            if broken >= _STEADY and broken > steady:
                return "gap", outlooks
        alone = len(self._tracks) == 1 and not self._steps  # such as slides, of which the last may follow late
        if broken or 0 < away <= 2 * track.pause or (alone and away > 0):
            return "gap", outlooks
        others = [outlook.stepped for stream, outlook in outlooks.items() if stream != own and outlook.fed]
        if (steady or others) and all(others):
            return "step", outlooks
        if steady >= _STEADY and self._alone(own, away, outlooks):
            return "gap", outlooks
        reached = begin + track.offset <= now + self._seconds(_JITTER)  # by another stream
        bearable = self._seconds(_GAP if steady >= _STEADY or reached or len(self._tracks) == 1 else _JITTER)
        return "gap" if 0 < away <= bearable else "outlier", outlooks

    def _alone(self, own: int, away: int, outlooks: Mapping[int, _Outlook]) -> bool:
        """Returns whether a stream falls back a little while the clock of all others goes on: it was ahead before."""
        others = [outlook for stream, outlook in outlooks.items() if stream != own and outlook.fed]
        return -self._seconds(_REACH) <= away < 0 and bool(others) and not any(o.stepped for o in others)

    def _step(self, track: _TrackClock, expected: int, outlooks: dict[int, _Outlook]) -> None:
        """Moves the clock of all streams, so that none of them begins again before it has ended."""
        offset = max(max(o.after - o.begin, o.end - o.shown) for o in outlooks.values() if o.stepped)
        self.steps.append((Fraction(expected, self._unit), Fraction(track.offset - offset, self._unit)))
        self._offsets = [*self._offsets[1 - _OFFSETS :], offset]
        track.offset = offset

    def _move(self, packet: PacketT, stated: int, dts: int, track: _TrackClock) -> bool:
        """Sets a packet's dts, and its pts as far from it as it was. Returns whether that could not be."""
        scale, apart = self._scales[packet.stream_index], False
        packet.dts, pts = dts, dts
        if packet.pts is not None:
            pts, apart = self._moved_pts(packet, packet.pts, dts, dts - stated, track)
            packet.pts = pts
        if track.last is not None:
            track.pause = max(track.pause, dts * scale - track.last - track.length)
        shown = pts * scale
        track.last, track.length = dts * scale, self._length(packet, track)
        end = shown + track.length
        track.begin, track.end = (shown, end) if track.begin is None else (track.begin, max(track.end, end))
        track.apart = max(track.apart, shown - track.last)
        track.shown.append(shown)
        return apart

    def _moved_pts(self, packet: PacketT, stated: int, dts: int, by: int, track: _TrackClock) -> tuple[int, bool]:
        """Returns the pts of a packet whose dts moves to `dts`, and whether it is a free time in its place."""
        scale = self._scales[packet.stream_index]
        most = self._reordering(track)
        moved, own = stated + by, stated + _ticks(track.offset, scale)  # the latter where the dts alone was wrong
        for pts in (moved, own):
            if abs(pts - dts) * scale <= most:
                return pts, False
        ahead = self._neighbors(packet)
        if self._shown_apart(moved * scale, dts * scale, ahead, track):
            return self._free_time(packet, dts, ahead, track), True
        return moved, False

    def _neighbors(self, packet: PacketT) -> list[int]:
        """Returns the pts, in units, of the packets ahead among which this one may be shown."""
        found = []
        offset = self._tracks[packet.stream_index].offset
        for further in self._further():
            if further.stream_index == packet.stream_index and further.pts is not None:
                found.append(further.pts * self._scales[packet.stream_index] + offset)
            if len(found) > _REORDERED:
                break
        return found

    def _shown_apart(self, pts: int, dts: int, ahead: Sequence[int], track: _TrackClock) -> bool:
        """Returns whether a pts lies further from those of its neighbors than any order of decoding explains."""
        if pts < dts:
            return len(track.shown) >= _STEADY and all(pts < shown for shown in track.shown)
        far = self._steps and pts - dts > max(self._seconds(_GAP), 4 * track.apart)
        known = len(ahead) > _REORDERED or (far and not self._is_reached(pts))  # the latter at the file's end
        return known and all(pts > shown for shown in ahead)

    def _is_reached(self, at: int) -> bool:
        """Returns whether any stream comes near a time that is ahead, as far as the packets are read ahead."""
        near = at - self._seconds(_GAP)
        known = (further for further in self._further() if further.stream_index in self._tracks)
        reached = any(self._raw(one) + self._tracks[one.stream_index].offset >= near for one in known)
        return reached or self._packet(_MOST - 1) is not None

    def _free_time(self, packet: PacketT, dts: int, ahead: Sequence[int], track: _TrackClock) -> int:
        """Returns the pts, in ticks, at which none of the neighbors is shown: the first such from the dts on."""
        scale = self._scales[packet.stream_index]
        length = max(1, self._length(packet, track))
        for pts, following in pairwise(sorted([*track.shown, *ahead])):
            if pts + length >= dts * scale and following - pts > length * 3 // 2:
                return (pts + length) // scale
        return dts

    def _set_back(self, packet: PacketT) -> bool:
        """Puts a subtitle that is ahead of the step to its clock behind the packet that steps. Returns whether it is.

        Such packets are too sparse to show a step by themselves.
        """
        now, near = self._now(), self._seconds(_GAP)
        if now is None or not self._steps or self._distance(packet, now) <= near:
            return False
        raw = self._raw(packet)
        for number in range(_SPARSE):
            further = self._packet(number)
            if further is None:
                return False
            if (
                further.stream_index in self._tracks
                and further.dts is not None
                and abs(self._raw(further) - raw) <= near
            ):
                self._ahead.insert(number + 1, packet)
                return True
        return False

    def _distance(self, packet: PacketT, now: int) -> int:
        return min(abs(self._raw(packet) + offset - now) for offset in self._offsets)

    def _place_sparse(self, packet: PacketT, track: _TrackClock | None) -> None:
        """Sets the times of subtitles or data: on the clock by which the packet comes nearest to what is shown.

        A packet of pictures without a dts goes with its stream.
        """
        now, raw, scale = self._now(), self._raw(packet), self._scales[packet.stream_index]
        offset = self._offsets[-1] if track is None else track.offset
        if track is None and now is not None:
            offset = min(reversed(self._offsets), key=lambda offset: abs(raw + offset - now))
            if self._steps and abs(raw + offset - now) > self._seconds(_GAP):
                self.retimed[packet.stream_index] += 1
                offset = now - raw
        ticks = _ticks(offset, scale)
        packet.dts = packet.dts if packet.dts is None else packet.dts + ticks
        packet.pts = packet.pts if packet.pts is None else packet.pts + ticks


def _ticks(units: int, scale: int) -> int:
    """Returns units of the clock in ticks of so many units, rounded."""
    return (2 * units + scale) // (2 * scale)
