"""Cutting a video into chunks: each decoded alone, by FFmpeg, they give exactly what the whole gives."""

import threading
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from seams import EDITED, JOINED, SEAMS
from variants import made
from videos import Synthetic, planes

from segmentation import InputError
from segmentation.media.opening.open_input import open_input
from segmentation.media.opening.probe import probe
from segmentation.media.source_packets import SourcePackets
from segmentation.stages.decode.chunks import (
    Chunk,
    StreamChanges,
    begins_anew,
    chunks,
    exact_keyframe,
    is_hidden,
    read,
    whole,
)

Shown = tuple[int | None, tuple[Any, ...]]


def decoded_whole(path: Path) -> list[Shown]:
    with open_input(str(path)) as container:
        stream = container.streams[probe(str(path)).stream_index]
        return [shown(f) for p in SourcePackets(container, stream) for f in tolerant(p.decode)]


def decoded_in_chunks(path: Path, least: int, first: int | None = None) -> tuple[int, list[Shown]]:
    """Returns the number of chunks, and their frames, each chunk decoded by a decoder of its own."""
    info, stop = probe(str(path)), threading.Event()
    cut = list(chunks(read(info, first), exact_keyframe(info.codec), least, stop))
    return len(cut), [frame for chunk in cut for frame in decoded_chunk(info.codec, chunk)]


def decoded_chunk(codec: str, chunk: Chunk) -> Iterator[Shown]:
    decoder: Any = av.CodecContext.create(codec, "r")
    for packet in [*chunk.packets(), None]:
        for frame in tolerant(decoder.decode, packet):
            if chunk.shows(frame.pts):
                yield shown(frame)


def tolerant(decode: Any, *arguments: Any) -> list[Any]:
    try:
        return list(decode(*arguments))
    except av.error.FFmpegError:
        return []


def shown(frame: Any) -> Shown:
    return frame.pts, tuple(p.tobytes() for p in planes(frame))


REAL = [
    "04_coffee.mp4", "bottle-detection.mp4", "dog_eating_854132.mp4", "edit_list_positive_shift.mp4",
    "fixture-raw.mts", "h265_10bits.mp4", "hlg10-color-test.mp4", "nasa_13013.mp4", "sample_fragmented.mp4",
    "sample_h262_mpeg_audio.ts", "sample_h264.ts", "sample_with_srt.mkv", "var_fps_video.mp4", "video_90.mov",
]  # fmt: skip
LARGE = "04_coffee.mp4", "bottle-detection.mp4", "dog_eating_854132.mp4"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LARGE else []) for name in REAL]
)
def test_chunks_of_real_videos_are_exact(corpus: Path, name: str) -> None:
    count, frames = decoded_in_chunks(corpus / name, least=8)
    assert frames == decoded_whole(corpus / name)
    assert count >= (3 if name in ("sample_h264.ts", "bottle-detection.mp4") else 1)


@pytest.mark.parametrize(
    ("codec", "options", "many"),
    [
        ("libx264", {"x264-params": "keyint=10:min-keyint=10:scenecut=0:bframes=3"}, True),
        ("libx264", {"x264-params": "keyint=10:min-keyint=10:scenecut=0:bframes=3:open-gop=1"}, False),  # one IDR
        ("libx264", {"x264-params": "keyint=10:intra-refresh=1"}, False),
        ("libx265", {"x265-params": "log-level=none:keyint=10:min-keyint=10:bframes=4:open-gop=1"}, True),
        ("libx265", {"x265-params": "log-level=none:keyint=10:min-keyint=10:bframes=4:open-gop=0"}, True),
        ("mpeg2video", {"g": "10", "bf": "2"}, True),
        ("libvpx-vp9", {"g": "10", "cpu-used": "8", "lag-in-frames": "8"}, True),
    ],
)
def test_open_and_closed_groups_of_pictures(tmp_path: Path, codec: str, options: dict[str, str], many: bool) -> None:
    path = Synthetic(codec=codec, options=options, gop=10, pts=range(60), size=(128, 96)).write(tmp_path / "a.mkv")
    count, frames = decoded_in_chunks(path, least=8)
    assert frames == decoded_whole(path)
    assert (count > 1) == many


IDR = {
    "libx264": {"x264-params": "keyint=10:min-keyint=10:scenecut=0:bframes=3"},
    "libx265": {"x265-params": "log-level=none:keyint=10:min-keyint=10:bframes=4:open-gop=0"},
}


@pytest.mark.parametrize("codec", IDR)
def test_one_decoder_goes_on_with_chunks_that_begin_anew(tmp_path: Path, codec: str) -> None:
    """Without being emptied in between, and whichever chunks they are: all frames come out, in order and exact."""
    path = Synthetic(codec=codec, options=IDR[codec], pts=range(90), size=(128, 96)).write(tmp_path / "a.mkv")
    info = probe(str(path))
    cut = list(chunks(read(info, None), exact_keyframe(info.codec), 8, threading.Event()))
    assert len(cut) == 9 and all(begins_anew(info.codec, chunk) for chunk in cut)
    decoder: Any = av.CodecContext.create(info.codec, "r")
    some = [*cut[0::3], cut[1]]
    frames = [frame for chunk in some for packet in chunk.packets() for frame in decoder.decode(packet)]
    every = decoded_whole(path)
    expected = [every[10 * number + i] for number in (0, 3, 6, 1) for i in range(10)]
    assert [shown(frame) for frame in [*frames, *decoder.decode(None)]] == expected


@pytest.mark.parametrize(
    ("codec", "options"),
    [
        ("libx265", {"x265-params": "log-level=none:keyint=10:min-keyint=10:bframes=4:open-gop=1"}),  # CRA pictures
        ("mpeg2video", {"g": "10", "bf": "2"}),
        ("libvpx-vp9", {"g": "10", "cpu-used": "8", "lag-in-frames": "8"}),
    ],
)
def test_other_keyframes_begin_nothing_anew(tmp_path: Path, codec: str, options: dict[str, str]) -> None:
    path = Synthetic(codec=codec, options=options, gop=10, pts=range(60), size=(128, 96)).write(tmp_path / "a.mkv")
    info = probe(str(path))
    cut = list(chunks(read(info, None), exact_keyframe(info.codec), 8, threading.Event()))
    assert len(cut) > 2 and not any(begins_anew(info.codec, chunk) for chunk in cut[1:])


def test_what_is_not_all_there_begins_nothing_anew(tmp_path: Path) -> None:
    """Nor does what a decoder would have to wait for; the first of three chunks that wait is all there."""
    path = Synthetic(codec="libx264", options=IDR["libx264"], pts=range(90)).write(tmp_path / "a.mkv")
    info = probe(str(path))
    coming = chunks(read(info, None), exact_keyframe(info.codec), 8, threading.Event())
    first, second, third = next(coming), next(coming), next(coming)
    assert [begins_anew(info.codec, chunk) for chunk in (first, second, third)] == [True, False, False]
    assert first.ended and not second.ended and not third.ended


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_decoding_may_begin_at_a_recovery_point(tmp_path: Path, suffix: str) -> None:
    """H.264's open groups have no IDR picture but the first, and containers have the parameter sets apart."""
    options = {"x264-params": "keyint=30:min-keyint=30:scenecut=0:bframes=3:open-gop=1"}
    path = Synthetic(codec="libx264", options=options, gop=30, pts=range(90), size=(128, 96)).write(
        tmp_path / f"a.{suffix}"
    )
    every = decoded_whole(path)
    wanted = every[40][0]
    assert wanted is not None
    _, frames = decoded_in_chunks(path, least=8, first=wanted)
    assert [frame for frame in frames if frame[0] is not None and frame[0] >= wanted] == every[40:]


def test_a_seek_to_what_an_edit_list_leaves_out_leads_nowhere(tmp_path: Path) -> None:
    info = probe(str(SEAMS["left_out"](tmp_path)))
    first = next(read(info, round(1 / info.time_base)))
    assert not first.is_discard and first.pts == 0


def test_packets_without_a_time_end_the_cutting(tmp_path: Path) -> None:
    """They may be shown before the keyframe that they follow."""
    path = Synthetic(codec="libx264", options=IDR["libx264"], pts=range(90), size=(128, 96)).write(tmp_path / "a.mkv")
    info = probe(str(path))
    packets = list(read(info, None))
    packets[25].pts = None
    cut = list(chunks(packets, exact_keyframe("h264"), 8, threading.Event()))
    assert [chunk.length for chunk in cut] == [10, 10, 70]


def joined(path: Path) -> list[bool]:
    info = probe(str(path))
    return [chunk.joined for chunk in chunks(read(info, None), exact_keyframe(info.codec), 24, threading.Event())]


@pytest.mark.parametrize("name", EDITED)
def test_chunks_tell_whether_time_has_stepped_back(tmp_path: Path, name: str) -> None:
    cut = joined(EDITED[name](tmp_path))
    assert cut == sorted(cut) and not cut[0] and cut[-1]


@pytest.mark.parametrize("name", JOINED)
def test_the_time_of_joined_recordings_goes_on(tmp_path: Path, name: str) -> None:
    assert not any(joined(JOINED[name](tmp_path)))


def test_a_chunk_begins_before_the_wanted_time(tmp_path: Path) -> None:
    options = {"x264-params": "keyint=10:min-keyint=10:scenecut=0"}
    path = Synthetic(codec="libx264", options=options, gop=10, pts=range(60)).write(tmp_path / "a.mp4")
    every = decoded_whole(path)
    wanted = every[35][0]
    assert wanted is not None
    _, frames = decoded_in_chunks(path, least=8, first=wanted)
    assert frames == every[30:]


def test_what_cannot_be_cut_is_one_chunk(tmp_path: Path) -> None:
    path = Synthetic(codec="libx264", pts=range(30), gop=5).write(tmp_path / "a.mp4")
    info = probe(str(path))
    (chunk,) = whole(read(info, None), threading.Event())
    assert len(list(decoded_chunk(info.codec, chunk))) == 30 or chunk.length


def test_reading_waits_for_the_decoder_and_ends_when_stopped() -> None:
    stop = threading.Event()
    chunk = Chunk(None, stop)
    packet: Any = av.Packet(8)
    writer = threading.Thread(target=lambda: [chunk.put(packet) for _ in range(10_000)])
    writer.start()
    writer.join(0.3)
    assert writer.is_alive() and chunk.length < 1000
    stop.set()
    writer.join(240)
    assert not writer.is_alive()
    assert list(chunk.packets()) == []


def test_times_decide_which_chunk_a_frame_belongs_to() -> None:
    chunk = Chunk(100, threading.Event())
    chunk.until = 200
    assert [chunk.shows(pts) for pts in (99, 100, 199, 200, None)] == [False, True, True, False, True]


@pytest.mark.parametrize("name", SEAMS)
def test_time_may_step_back(tmp_path: Path, name: str) -> None:
    """No frame is lost or shown twice, wherever else the cuts are."""
    path = SEAMS[name](tmp_path)
    every = decoded_whole(path)
    for least in (1, 24, 500):
        count, frames = decoded_in_chunks(path, least)
        assert frames == every and (count > 1 or (name in JOINED and least > len(every)))


def test_where_no_chunk_may_begin_time_may_step_back_too() -> None:
    """As at a gradual refresh: the chunk goes on, and the next one has no limit either."""
    times = [100, 110, 120, 5, 15, 25, 35, 45]
    packets: list[Any] = [av.Packet(8) for _ in times]
    for packet, pts in zip(packets, times, strict=True):
        packet.pts, packet.is_keyframe = pts, pts in (100, 5, 35)
    first, second = chunks(packets, lambda packet: packet.pts in (100, 35), 1, threading.Event())
    assert [packet.pts for packet in first.packets()] == times[:6] and [p.pts for p in second.packets()] == times[6:]
    assert all(first.shows(pts) for pts in times[:6]) and all(second.shows(pts) for pts in times[6:])


def test_files_that_cannot_seek_are_read_from_their_beginning(tmp_path: Path) -> None:
    path = Synthetic(codec="libx264", pts=range(20), format="h264").write(tmp_path / "a.h264")
    info = probe(str(path))
    packets = list(read(info, 400_000))
    assert len(packets) == 20 and all(packet.pts is None for packet in packets)


@pytest.mark.parametrize(("name", "frames"), [("roadtrip-vp92-10bit.webm", 72), ("bear-vp9-odd-dimensions.webm", 30)])
def test_hidden_frames_of_vp9_are_those_that_no_decoder_shows(corpus: Path, name: str, frames: int) -> None:
    """The first has them in packets of their own, the second in superframes with a frame that is shown."""
    path = corpus / name
    decoder: Any = av.CodecContext.create("vp9", "r")
    decoder.thread_type = "SLICE"  # a frame comes out with its packet
    hidden = [is_hidden("vp9", packet) for packet in read(probe(str(path)), None)]
    shown = [bool(decoder.decode(packet)) for packet in read(probe(str(path)), None)]
    assert shown == [not one for one in hidden]
    assert shown.count(True) == frames


def test_another_size_on_the_way_is_an_error(corpus: Path) -> None:
    packets = read(probe(str(corpus / "test_res_change.h264")), None)
    assert len([next(packets) for _ in range(49)]) == 49
    with pytest.raises(InputError, match="the picture's size changes from 848x464 on the way"):
        next(packets)


@pytest.mark.parametrize(
    ("codec", "suffix"),
    [
        ("h264", "ts"),
        ("hevc", "ts"),
        ("mpeg2", "ts"),
        ("vp8", "webm"),
        ("vp9", "webm"),
    ],
)
def test_smaller_pictures_are_an_error_before_a_decoder_gets_them(codec: str, suffix: str, tmp_path: Path) -> None:
    """A session of NVDEC would bring them to the size of those before, without a word."""
    path = made(f"{codec}-becomes-smaller.{suffix}", tmp_path)
    packets = read(probe(str(path)), None)
    assert len([next(packets) for _ in range(30)]) == 30
    with pytest.raises(StreamChanges, match="the picture's size changes from 320x240 on the way"):
        next(packets)


def test_hidden_frames_of_vp8_are_found(tmp_path: Path) -> None:
    path = Synthetic(codec="libvpx", pts=range(20)).write(tmp_path / "a.webm")
    for packet in read(probe(str(path)), None):
        data = bytearray(packet)
        assert not is_hidden("vp8", packet)
        data[0] &= ~16
        assert is_hidden("vp8", av.Packet(bytes(data))) and not is_hidden("h264", av.Packet(bytes(data)))


def test_nothing_is_lost_between_variable_frame_rates(tmp_path: Path) -> None:
    pts = np.cumsum(np.random.default_rng(0).integers(1, 9, 60)).tolist()
    options = {"x264-params": "keyint=10:min-keyint=10:scenecut=0:bframes=3"}
    path = Synthetic(codec="libx264", options=options, pts=pts, time_base=Fraction(1, 90)).write(tmp_path / "a.mkv")
    count, frames = decoded_in_chunks(path, least=8)
    assert count > 3 and frames == decoded_whole(path)
