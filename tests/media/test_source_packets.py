"""Packets as all readers of an input see them."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import av
import pytest
from marks import first
from mpegts import with_wrong_times
from videos import Synthetic, packets, same_packets, times

from segmentation import segment
from segmentation.media.opening.open_input import open_input
from segmentation.media.source_packets import SourcePackets

SLIDES = [*range(19), *range(219, 2469, 250)]  # 1/25 s: a slide stays for ten seconds


def lasting(path: Path) -> float:
    """Returns how long a file lasts in seconds, by its own statement."""
    with av.open(str(path)) as container:
        return (container.duration or 0) / av.time_base


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".mov"])
def test_the_last_picture_does_not_last_as_long_as_another(suffix: str, tmp_path: Path) -> None:
    source = Synthetic(
        codec="libx264", options={"x264-params": "bframes=3:b-adapt=0:scenecut=0"}, pts=SLIDES, size=(128, 96)
    ).write(tmp_path / "a.mp4")
    segment(source, tmp_path / f"b{suffix}", effect="mask", verify=True)
    shown = times(tmp_path / f"b{suffix}")
    assert len(shown) == len(SLIDES) and shown[-1] == Fraction(SLIDES[-1], 25)
    assert lasting(tmp_path / f"b{suffix}") == pytest.approx((SLIDES[-1] + 1) / 25, abs=0.1)


def test_a_pause_is_no_length_of_another_picture(tmp_path: Path) -> None:
    """MP4 states lengths in decoding order; Matroska's length is that of the longest of its packets."""
    pts = [*range(25), 750, *range(1500, 1503)]
    source = Synthetic(codec="libx264", options={"bf": "2"}, pts=pts).write(tmp_path / "a.mp4")
    segment(source, tmp_path / "b.mkv", effect="mask", verify=True)
    assert lasting(tmp_path / "b.mkv") == pytest.approx(1503 / 25, abs=0.1)
    with open_input(str(source)) as container:  # as all decoders read them
        found = [(p.pts, p.duration) for p in SourcePackets(container, container.streams.video[0]) if p.size]
    for (begin, length), (following, _) in pairwise(sorted(found)):
        assert 0 < length <= following - begin
    assert len(found) == len(pts)


@pytest.mark.parametrize(
    ("pid", "seconds"), first(3, [(256, -50), (257, 3), (256, 0.4), (257, 0.4), (256, 3), (257, -50)])
)
def test_a_first_packet_with_a_wrong_time_leaves_no_pause(pid: int, seconds: float, tmp_path: Path) -> None:
    video = Synthetic(codec="libx264", pts=range(40), audio="aac").write(tmp_path / "a.ts").read_bytes()
    (tmp_path / "b.ts").write_bytes(with_wrong_times(video, pid, [0], seconds))
    for name in "ab":
        segment(tmp_path / f"{name}.ts", tmp_path / f"{name}.mkv", effect="mask", verify=name == "b")
    for have, want in zip(*([times(tmp_path / f"{name}.mkv") for name in "ba"]), strict=True):
        assert abs(have - want) < Fraction(1, 25)
    have, want = (packets(tmp_path / f"{name}.mkv", "audio") for name in "ba")
    assert same_packets(have, want, Fraction(1, 25))


def test_a_first_picture_that_is_early_is_shown_until_the_others_begin(tmp_path: Path) -> None:
    """As in FFmpeg's own program: slides begin so."""
    video = Synthetic(codec="libx264", pts=range(40), audio="aac").write(tmp_path / "a.ts").read_bytes()
    (tmp_path / "b.ts").write_bytes(with_wrong_times(video, 256, [0], -0.9))
    segment(tmp_path / "b.ts", tmp_path / "b.mkv", effect="mask", verify=True)
    shown, heard = times(tmp_path / "b.mkv"), packets(tmp_path / "b.mkv", "audio")
    assert shown[1] - shown[0] == pytest.approx(0.94, abs=0.01) and shown[2] - shown[1] == pytest.approx(0.04, abs=0.01)
    assert heard[0].time is not None and heard[0].time - shown[0] == pytest.approx(0.88, abs=0.01)


def test_packets_before_damage_are_yielded(tmp_path: Path) -> None:
    path = Synthetic(codec="libx264", pts=range(50)).write(tmp_path / "a.mp4")
    with open_input(str(path)) as container:
        given = list(container.demux(video=0))[:30]

    class Damaged:
        """The container, whose packets end early: FFmpeg raises the error of a source that can't be read on."""

        format, name = container.format, str(path)
        streams = container.streams

        def demux(self, *_: object) -> Iterator[av.Packet]:
            yield from given
            raise av.error.InvalidDataError(1, "Invalid data")

    found = []
    with pytest.raises(av.error.InvalidDataError):
        for packet in SourcePackets(Damaged(), given[0].stream):  # type: ignore[arg-type]
            found.append(packet)
    assert found == given


def test_an_iteration_may_be_left_after_its_container_is_closed(tmp_path: Path) -> None:
    path = Synthetic(codec="libx264", pts=range(10)).write(tmp_path / "a.ts")
    with open_input(str(path)) as container:
        packets = SourcePackets(container, container.streams.video[0])
        iterator = iter(packets)
        assert next(iterator).is_keyframe
    iterator.close()  # type: ignore[attr-defined]
    assert not packets.late
