"""One clock for all streams: packets in lists, whose true times are known."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise, product

import pytest

from segmentation.media.clock import Clock

VIDEO, SOUND, SUBTITLES = 0, 1, 2
BASE = Fraction(1, 90_000)
FRAME, SOUND_FRAME = 3000, 1920  # ticks
WRAP = 1 << 33
ORDER = (0, 4, 2, 1, 3)  # B-frames: when the pictures of a group are shown, in decoding order


@dataclass
class Packet:
    stream_index: int
    dts: int | None
    pts: int | None
    duration: int | None
    true: int = 0  # dts on the clock of the recording
    part: int = 0  # number of the recording


def recording(seconds: float, *, delay: int = 0, subtitles: Iterable[float] = (), part: int = 0) -> list[Packet]:
    """Packets of pictures and sound from 0 on, in the order of a file; sound comes `delay` ticks behind."""
    pictures = []
    for number in range(int(seconds * 30)):
        shown = number - number % 5 + ORDER[number % 5] + 2
        pictures.append(Packet(VIDEO, number * FRAME, shown * FRAME, FRAME))
    sound = [
        Packet(SOUND, number * SOUND_FRAME, number * SOUND_FRAME, SOUND_FRAME)
        for number in range(int(seconds * 90_000 / SOUND_FRAME))
    ]
    texts = [Packet(SUBTITLES, int(at * 90_000), int(at * 90_000), 90_000) for at in subtitles]
    found = sorted([*pictures, *sound, *texts], key=lambda p: p.dts + (delay if p.stream_index == SOUND else 0))
    return [replace(packet, true=packet.dts, part=part) for packet in found]


def moved(packets: Iterable[Packet], ticks: int) -> list[Packet]:
    return [replace(p, dts=p.dts + ticks, pts=p.pts + ticks) for p in packets]


def joined(*parts: list[Packet], late: int = 0) -> list[Packet]:
    """Recordings one after the other, the last `late` packets of sound after the next one's first pictures."""
    result: list[Packet] = []
    held: list[Packet] = []
    for number, part in enumerate(parts):
        packets = [replace(packet, part=number) for packet in part]
        begin = of(packets, VIDEO)[: 8 if held else 0]
        result += [*begin, *held, *without_these(packets, begin)]
        held = of(packets, SOUND)[-late:] if late and number + 1 < len(parts) else []
        result = without_these(result, held)
    return result


def without_these(packets: list[Packet], others: list[Packet]) -> list[Packet]:
    known = {id(packet) for packet in others}
    return [packet for packet in packets if id(packet) not in known]


def on_clock(packets: list[Packet], *, steps: bool = True) -> tuple[list[Packet], Clock[Packet]]:
    clock: Clock[Packet] = Clock(dict.fromkeys((VIDEO, SOUND, SUBTITLES), BASE), (VIDEO, SOUND), steps=steps)
    return list(clock([replace(packet) for packet in packets])), clock


def of(packets: Iterable[Packet], stream: int) -> list[Packet]:
    return [packet for packet in packets if packet.stream_index == stream]


def apart(packets: list[Packet]) -> dict[int, set[int]]:
    """By recording: by how many ticks its packets have been moved from the recording's own clock."""
    found: dict[int, set[int]] = {}
    for packet in packets:
        assert packet.dts is not None
        found.setdefault(packet.part, set()).add(packet.dts - packet.true)
    return found


def check_order(packets: list[Packet]) -> None:
    """Checks that dts rise in each stream, without overlaps and gaps beyond half a second."""
    for stream in (VIDEO, SOUND):
        dts = [packet.dts for packet in of(packets, stream)]
        steps = [after - before for before, after in pairwise(dts)]
        assert min(steps) > 0
        assert max(steps) < 45_000


def check_pictures(packets: list[Packet]) -> None:
    """Checks that no two pictures are shown at the same time, and none more than a frame late."""
    shown = sorted(packet.pts for packet in of(packets, VIDEO))  # type: ignore[type-var]
    assert len(set(shown)) == len(shown)


@pytest.mark.parametrize("delay", [0, 45_000, -20_000])
def test_a_file_whose_clock_goes_on_stays_as_it_is(delay: int) -> None:
    packets = recording(8, delay=delay, subtitles=(1, 5.5))
    found, clock = on_clock(packets)
    assert found == packets
    assert not clock.changed


# From the end of one recording to the beginning of the next, by their clocks, in seconds.
STEPS = [-0.25, -2, -3600, 10.5, 40, 3600 * 20, -WRAP / 90_000 - 1]


def after(packets: list[Packet], seconds: float) -> int:
    """Returns the ticks that are so much later than the end of these packets."""
    return round(max(p.dts + p.duration for p in packets) + seconds * 90_000)  # type: ignore[operator]


@pytest.mark.parametrize("late", [0, 1, 5, 20])
@pytest.mark.parametrize("seconds", STEPS)
@pytest.mark.parametrize("lengths", [(4, 3), (1.2, 5), (5, 0.3)])
def test_a_step_moves_all_streams_together(lengths: tuple[float, float], seconds: float, late: int) -> None:
    first, second = (recording(length, subtitles=(0.2,)) for length in lengths)
    first = moved(first, 5_000)
    packets = joined(first, moved(second, after(first, seconds)), late=late)
    found, clock = on_clock(packets)
    moves = apart(found)
    assert moves[0] == {5_000}
    assert len(moves[1]) == 1, "sound, pictures and subtitles of a recording stay together"
    assert len(found) == len(packets)
    check_order(found)
    check_pictures(found)
    assert len(clock.steps) == 1
    assert not clock.retimed


def test_a_step_of_a_clock_that_begins_before_0() -> None:
    """As FFmpeg gives that of a file that begins shortly before its counter wraps."""
    parts = [moved(recording(seconds, part=part), -4 * 90_000) for part, seconds in enumerate((0.5, 3))]
    found, clock = on_clock(joined(*parts))
    assert all(len(moves) == 1 for moves in apart(found).values())
    assert len(clock.steps) == 1 and abs(clock.steps[0][1] + Fraction(1, 2)) < Fraction(1, 10)


@pytest.mark.parametrize("late", [0, 5])
@pytest.mark.parametrize("seconds", [0.7, 3, 9.9, 9.97, 9.98, 9.99, 10, 10.01, 10.02, 10.1, -0.05, -0.1, -0.12, -0.15])
def test_about_the_least_step_all_streams_stay_together(seconds: float, late: int) -> None:
    first, second = recording(4), recording(4)
    packets = joined(first, moved(second, after(first, seconds)), late=late)
    found, clock = on_clock(packets)
    assert all(len(moves) == 1 for moves in apart(found).values())
    assert len(clock.steps) <= 1
    assert not clock.retimed


def test_dts_that_ffmpeg_repeats_behind_a_step_are_none() -> None:
    parts = recording(3), [replace(p, pts=p.dts) if p.stream_index == VIDEO else p for p in recording(3, part=1)]
    packets = joined(moved(parts[0], 20 * 90_000), parts[1])
    last = [p.dts for p in of(packets, VIDEO) if not p.part][-1]
    for packet in [p for p in of(packets, VIDEO) if p.part][:8]:
        packet.dts = last
    clock: Clock[Packet] = Clock({VIDEO: BASE, SOUND: BASE}, (VIDEO, SOUND), wraps=Fraction(WRAP, 90_000))
    found = list(clock(map(replace, packets)))
    assert {p.pts - p.true for p in found if p.part} == {int(clock.steps[0][1] * -90_000)}  # type: ignore[operator]


def test_a_wrapped_clock_goes_on() -> None:
    packets = recording(6)
    for packet in packets:
        packet.dts = (packet.dts + WRAP - 270_000) % WRAP
        packet.pts = (packet.pts + WRAP - 270_000) % WRAP
    found, _ = on_clock(packets)
    assert apart(found) == {0: {WRAP - 270_000}}


def test_many_joins_lose_no_sync() -> None:
    generator = random.Random(3)
    parts = [recording(generator.uniform(0.7, 3), delay=generator.choice((0, 9000))) for _ in range(12)]
    packets = joined(*(moved(part, generator.randrange(-WRAP, WRAP)) for part in parts), late=3)
    found, clock = on_clock(packets)
    assert all(len(moves) == 1 for moves in apart(found).values())
    assert len(clock.steps) == 11
    check_order(found)


def test_sound_that_begins_before_its_picture_is_not_laid_over_that_before() -> None:
    first, second = recording(3), [p for p in recording(4) if p.stream_index != VIDEO or p.dts >= 60_000]
    found, _ = on_clock(joined(first, second))
    assert all(len(moves) == 1 for moves in apart(found).values())
    dts = [packet.dts for packet in of(found, SOUND)]
    assert dts == sorted(dts)


def late(packets: list[Packet], stream: int, numbers: Iterable[int], ticks: int) -> list[Packet]:
    """Returns packets of which these, counted in their stream, state times that are so much later."""
    result = [replace(packet) for packet in packets]
    own = of(result, stream)
    for number in numbers:
        own[number].dts += ticks  # type: ignore[operator]
        own[number].pts += ticks  # type: ignore[operator]
    return result


OUTLIERS = {
    "one": (40,),
    "two in a row": (40, 41),
    "two apart": (40, 60),
    "those of one PES": range(40, 54),
    "the last": (-1,),
    "the second": (1,),
}


@pytest.mark.parametrize("steps", [True, False])
@pytest.mark.parametrize("stream", [VIDEO, SOUND])
@pytest.mark.parametrize(
    ("which", "seconds"),
    [  # the last packet may as well be shown or heard a little later
        (which, seconds)
        for which, seconds in product(OUTLIERS, [50, -50, 3, -3, 4000, 9.9, 0.2, -0.2, 0.45])
        if which != "the last" or not 0 < seconds < 1
    ],
)
def test_an_outlier_moves_no_other_packet(stream: int, seconds: float, which: str, steps: bool) -> None:
    packets = recording(6)
    own = of(packets, stream)
    wrong = {id(own[number]) for number in OUTLIERS[which]}
    places = {place for place, packet in enumerate(packets) if id(packet) in wrong}
    found, clock = on_clock(late(packets, stream, OUTLIERS[which], int(seconds * 90_000)), steps=steps)
    assert [p.stream_index for p in found] == [p.stream_index for p in packets]
    for place, (have, want) in enumerate(zip(found, packets, strict=True)):
        if place not in places:
            assert (have.dts, have.pts) == (want.dts, want.pts)
        else:
            assert abs(have.dts - want.dts) <= want.duration  # type: ignore[operator]
    assert not clock.steps
    assert clock.retimed == {stream: len(places)}
    check_order(found)
    check_pictures(found)


@pytest.mark.parametrize("seconds", [50, -50, 3, -3, 4000])
def test_a_wrong_pts_alone_gets_the_free_place_among_its_neighbors(seconds: int) -> None:
    packets = recording(6)
    wrong = [replace(packet) for packet in packets]
    of(wrong, VIDEO)[63].pts += seconds * 90_000  # type: ignore[operator]
    found, clock = on_clock(wrong)
    assert found == packets
    assert clock.retimed == {VIDEO: 1}


@pytest.mark.parametrize("seconds", [50, -50])
def test_a_subtitle_far_from_what_is_shown_comes_when_it_is_read(seconds: int) -> None:
    packets = recording(60, subtitles=(20, 30))
    found, clock = on_clock(late(packets, SUBTITLES, (0,), seconds * 90_000))
    texts = of(found, SUBTITLES)
    assert abs(texts[0].dts - 20 * 90_000) <= FRAME  # type: ignore[operator]
    assert texts[1].dts == 30 * 90_000
    assert clock.retimed == {SUBTITLES: 1}


def test_an_outlier_beside_a_step_is_told_from_it() -> None:
    packets = joined(recording(3), moved(recording(3), -270_000), late=4)
    place = next(i for i, p in enumerate(packets) if p.part) - 2
    packets[place].dts += 90_000 * 77  # type: ignore[operator]
    packets[place].pts += 90_000 * 77  # type: ignore[operator]
    found, clock = on_clock(packets)
    del found[place]
    assert all(len(moves) == 1 for moves in apart(found).values())
    assert len(clock.steps) == 1


def without(packets: list[Packet], stream: int | None, begin: float, end: float) -> list[Packet]:
    return [
        p
        for p in packets
        if not (p.stream_index in ((VIDEO, SOUND) if stream is None else (stream,)) and begin <= p.true / 90_000 < end)
    ]


def slides(shown: list[int]) -> list[Packet]:
    """Returns pictures in decoding order beside sound; each is decoded when the one two before it is shown."""
    decoded = [-2, -1, *sorted(shown)]
    video = [Packet(VIDEO, dts * 3600, pts * 3600, 3600) for dts, pts in zip(decoded, shown, strict=False)]
    packets = [*video, *of(recording(max(shown) / 25 + 1), SOUND)]
    return sorted(packets, key=lambda packet: packet.dts or 0)


GAPS: dict[str, Callable[[], list[Packet]]] = {
    "a pause of all": lambda: without(recording(20), None, 4, 12),
    "a long pause of the sound": lambda: without(recording(60), SOUND, 4, 44),
    "a long pause of the picture": lambda: without(recording(60), VIDEO, 4, 44),
    "a last picture after a pause": lambda: without(recording(9), VIDEO, 4, 8.9),
    "slides in decoding order": lambda: slides([0, 21, 11, 1, 22, 2024, 2022]),
    "sound that ends": lambda: without(recording(40), SOUND, 4, 99),
    "sound that begins late": lambda: without(recording(40), SOUND, 0, 22),
    "a lost second of the picture": lambda: without(recording(20), VIDEO, 4, 5),
    "lost pictures": lambda: without(without(without(recording(9), VIDEO, 2, 2.2), VIDEO, 3, 3.4), VIDEO, 8.6, 8.8),
    "lost sound": lambda: without(without(without(recording(9), SOUND, 2, 2.2), SOUND, 3, 3.4), SOUND, 8.6, 8.9),
    "sparse subtitles": lambda: recording(60, subtitles=(1, 50)),
    "slides": lambda: [replace(p, dts=p.dts * 450, pts=p.pts * 450) for p in of(recording(3), VIDEO)],
    "a picture a second": lambda: [
        replace(p, dts=p.dts * 30, pts=p.pts * 30, duration=90_000) for p in of(recording(3), VIDEO)
    ],
}


@pytest.mark.parametrize("kind", GAPS)
def test_gaps_that_are_real_stay(kind: str) -> None:
    packets = GAPS[kind]()
    found, clock = on_clock(packets)
    assert found == packets
    assert not clock.changed


@pytest.mark.parametrize("stream", [VIDEO, SOUND])
@pytest.mark.parametrize(
    ("count", "seconds"), [*product([1, 2, 13], [50, -50, 3600, 3]), *product([1, 2], [0.2, 0.45])]
)
def test_a_stream_that_begins_with_outliers_begins_with_the_others(stream: int, count: int, seconds: float) -> None:
    packets = moved(recording(6), 100 * 90_000)
    found, clock = on_clock(late(packets, stream, range(count), round(seconds * 90_000)))
    assert [packet.dts for packet in found] == [packet.dts for packet in packets]
    assert clock.retimed == {stream: count} and not clock.steps


@pytest.mark.parametrize("stream", [VIDEO, SOUND])
@pytest.mark.parametrize("seconds", [0.2, 0.45])
def test_a_first_pes_that_is_a_little_late_moves_nothing_behind_it(stream: int, seconds: float) -> None:
    packets = moved(recording(6), 100 * 90_000)
    found, clock = on_clock(late(packets, stream, range(13), round(seconds * 90_000)))
    behind = {place for place, p in enumerate(packets) if p.stream_index != stream or p in of(packets, stream)[13:]}
    assert [found[place].dts for place in behind] == [packets[place].dts for place in behind]
    assert not clock.steps


def test_a_single_stream_may_begin_with_outliers() -> None:
    packets = moved(of(recording(3), VIDEO), 100 * 90_000)
    clock: Clock[Packet] = Clock({VIDEO: BASE}, (VIDEO,))
    found = list(clock(late(packets, VIDEO, [0], 50 * 90_000)))
    assert [packet.dts for packet in found] == [packet.dts for packet in packets]


@pytest.mark.parametrize("seconds", [0.6, 3, 9])
@pytest.mark.parametrize("rest", [0.5, 2, 5])
def test_sound_follows_its_picture_over_a_gap_shortly_before_the_end(seconds: float, rest: float) -> None:
    """Too little of the sound comes after the gap to show a step, and it is no outlier."""
    parts = recording(3), moved(recording(rest), int((3 + seconds) * 90_000))
    found, clock = on_clock([*parts[0], *parts[1]])
    assert found == [*parts[0], *parts[1]]
    assert not clock.changed


@pytest.mark.parametrize(
    "shown",
    [
        [0, 4, 1, 2, 3, 751, 750, 1500, 1502, 1501],
        [0, 2500, 250, 500],
        [0, 1000],
        [0, *range(300, 320)],
        [0, 300, 600, 900, 1200],
    ],
)
def test_pictures_far_apart_stay_where_decoding_times_are_computed(shown: list[int]) -> None:
    """As of Matroska: decoding times follow from the pictures' order, and lengths are those to the next packet's."""
    decoded = [None, *sorted(shown)][: len(shown)]
    lengths = [max(1, after - before) for before, after in pairwise(sorted(shown))] + [1]
    packets = [
        Packet(VIDEO, None if dts is None else dts * 3600, pts * 3600, length * 3600)
        for pts, dts, length in zip(shown, decoded, lengths, strict=True)
    ]
    clock: Clock[Packet] = Clock({VIDEO: BASE}, (VIDEO,), steps=False)
    assert list(clock(map(replace, packets))) == packets and not clock.changed


def test_the_last_of_some_slides_may_follow_late() -> None:
    packets = of(recording(2), VIDEO)
    packets[-1] = replace(packets[-1], dts=600 * 90_000, pts=600 * 90_000)
    clock: Clock[Packet] = Clock({VIDEO: BASE}, (VIDEO,), steps=False)
    assert list(clock(map(replace, packets))) == packets and not clock.changed


def test_a_pause_longer_than_ten_seconds_of_all_streams_is_closed() -> None:
    found, clock = on_clock(without(recording(60), None, 4, 44))
    assert len(clock.steps) == 1
    assert abs(clock.steps[0][1] - 40) < Fraction(1, 10)
    check_order(found)


def test_the_last_picture_of_a_file_without_sound_may_follow_late() -> None:
    packets = of(recording(2), VIDEO)
    packets[-1] = replace(packets[-1], dts=9 * 90_000, pts=9 * 90_000)
    clock: Clock[Packet] = Clock({VIDEO: BASE}, (VIDEO,))
    assert list(clock(map(replace, packets))) == packets and not clock.changed


def test_without_steps_a_gap_stays() -> None:
    packets = without(recording(60), None, 4, 44)
    found, clock = on_clock(packets, steps=False)
    assert found == packets
    assert not clock.changed


def test_it_reads_ahead_only_where_a_time_is_unexpected() -> None:
    taken = 0

    def counted() -> Iterator[Packet]:
        nonlocal taken
        for packet in recording(5):
            taken += 1
            yield packet

    clock: Clock[Packet] = Clock({VIDEO: BASE, SOUND: BASE}, (VIDEO, SOUND))
    for number, _ in enumerate(clock(counted()), 1):
        assert taken == max(number, 9)  # three packets behind the first of each stream show whether that is an outlier


def test_time_bases_may_differ() -> None:
    packets = recording(4)
    for packet in of(packets, SOUND):
        packet.dts = packet.pts = packet.dts * 48_000 // 90_000  # type: ignore[operator]
        packet.duration = 1024
    clock: Clock[Packet] = Clock({VIDEO: BASE, SOUND: Fraction(1, 48_000)}, (VIDEO, SOUND))
    shift = {VIDEO: 120 * 90_000, SOUND: 120 * 48_000}
    second = [replace(p, dts=p.dts - shift[p.stream_index], pts=p.pts - shift[p.stream_index]) for p in packets]
    found = list(clock([*map(replace, packets), *second]))
    moved_by = {
        stream: {
            (p.dts - q.dts) * base for p, q in zip(of(found, stream), of([*packets, *packets], stream), strict=True)
        }  # type: ignore[operator]
        for stream, base in ((VIDEO, BASE), (SOUND, Fraction(1, 48_000)))
    }
    assert len(moved_by[VIDEO]) == len(moved_by[SOUND]) == 2
    assert abs(max(moved_by[VIDEO]) - max(moved_by[SOUND])) <= Fraction(1, 48_000)


def test_a_counter_that_wraps_right_behind_a_seam_is_followed() -> None:
    """FFmpeg unwraps no counter that it has not seen near its end at the file's beginning."""
    wrapping = [
        replace(packet, dts=packet.dts % WRAP, pts=packet.pts % WRAP)
        for packet in moved(recording(6, part=2), WRAP - 90_000)
    ]
    parts = recording(6), moved(recording(6, part=1), 1000 * 90_000), wrapping
    clock: Clock[Packet] = Clock(
        dict.fromkeys((VIDEO, SOUND, SUBTITLES), BASE), (VIDEO, SOUND), wraps=Fraction(WRAP, 90_000)
    )
    found = list(clock([replace(packet) for packet in joined(*parts)]))
    for stream, length in ((VIDEO, FRAME), (SOUND, SOUND_FRAME)):
        times = [packet.dts for packet in of(found, stream)]
        assert max(abs(b - a - length) for a, b in pairwise(times)) <= FRAME
    assert len(clock.steps) == 2 and not clock.retimed
