"""Which frames a video has, and that chosen frames come out as FFmpeg decodes them."""

import hashlib
import os
import random
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import av
import av.error
import numpy as np
import pytest
from numbered import all_frames, damage, numbered
from paths import SHARED
from videos import planes

from segmentation.clips import decode, index
from segmentation.clips.decode import decoded
from segmentation.clips.index import index_of
from segmentation.errors import InputError
from segmentation.frames.orientation import UPRIGHT
from segmentation.media.opening.open_input import open_input
from segmentation.media.opening.probe import probe

OPEN = {"x264-params": "open-gop=1:keyint=12:min-keyint=12:scenecut=0:bframes=3"}
MADE = {
    "closed.mp4": ("libx264", {"g": "12", "bf": "3"}, ()),
    "open.mp4": ("libx264", OPEN, ()),
    "open.ts": ("libx264", OPEN, ()),
    "open.mkv": ("libx264", OPEN, ()),
    "layers.mp4": ("libx265", {"x265-params": "log-level=none:keyint=12:bframes=4:temporal-layers=3"}, ()),
    "uneven.mkv": ("libx264", {"g": "12", "bf": "3"}, tuple(n + n // 3 + 4 * (n > 20) for n in range(40))),
    "one-keyframe.mkv": ("libx264", {"g": "999"}, ()),
    "hevc.mkv": ("libx265", {"x265-params": "log-level=none:keyint=12:open-gop=1:radl=2"}, ()),
    "hevc.mp4": ("libx265", {"x265-params": "log-level=none:keyint=12:open-gop=1"}, ()),
    "hidden.webm": ("libvpx", {"auto-alt-ref": "1", "lag-in-frames": "10", "g": "20", "cpu-used": "8"}, ()),
    "vp9.webm": ("libvpx-vp9", {"g": "20", "cpu-used": "8", "deadline": "realtime"}, ()),
    "mpeg4.avi": ("mpeg4", {"g": "12", "bf": "2"}, ()),
    "raw.h264": ("libx264", {"g": "12", "bf": "3"}, ()),
    "uneven.mp4": ("libx264", {"g": "12", "bf": "3"}, tuple(n + n // 3 + 4 * (n > 20) for n in range(40))),
}
REAL = """04_coffee.mp4 05_default_juggle.mp4 av1_video.mkv bbb_1920x1080_60fps_vp8.webm clip1024.flv
    dog_eating_854132.mp4 edit_list_positive_shift.mp4 h264_10bits.mp4 h265_10bits.mp4 packed_bframes_test.avi
    roadtrip-vp92-10bit.webm sample-with-large-length.avi sample_h264.ts var_fps_video.mp4 video_90.mov
    water_180_mvhevc_5frames.mov""".split()
LARGE = "04_coffee.mp4", "05_default_juggle.mp4", "bbb_1920x1080_60fps_vp8.webm", "dog_eating_854132.mp4"

SHARED_VIDEOS = sorted(path for folder in ("corpus", "clips") for path in (SHARED / folder).glob("*.*"))
MOST = 1500  # frames that are looked at


def check(path: Path) -> None:
    """Some clips have the frames that FFmpeg decodes from the beginning, bit for bit."""
    true, found = all_frames(path), index_of(str(path))
    assert len(found) == len(true)
    if len(found.keys):
        assert found.pts.tolist() == [frame.pts for frame in true]
    dice = random.Random(1)
    for _ in range(8):
        length, stride = dice.randint(1, min(6, len(true))), dice.choice((1, 1, 3))
        span = min(len(true), stride * length)
        first = dice.randrange(len(true) - span + 1)
        numbers = list(range(first, first + span, stride))
        frames = list(decoded(found, numbers))
        assert [number for number, _ in frames] == numbers
        for number, frame in frames:
            assert all(np.array_equal(a, b) for a, b in zip(planes(frame), planes(true[number]), strict=True)), number


@pytest.mark.parametrize("name", MADE)
def test_clips_are_exact(name: str, tmp_path: Path) -> None:
    codec, options, times = MADE[name]
    check(numbered(tmp_path / name, 40, codec, options, times=times))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LARGE else []) for name in REAL]
)
def test_clips_of_real_videos_are_exact(name: str, corpus: Path) -> None:
    check(next(corpus.rglob(name)))


@pytest.mark.slow
@pytest.mark.parametrize("path", SHARED_VIDEOS, ids=lambda path: path.name)
def test_frames_of_all_shared_videos_are_exact(path: Path) -> None:
    """Clips of four frames, each decoded by itself: all of a short video, and 12 spread over a long one's beginning."""
    try:
        found = index_of(str(path))
    except InputError as exc:
        pytest.skip(str(exc))
    true = hashes(path, found.stream)
    count = min(len(true), len(found))
    assert count in (len(found), MOST) or path.name == "sample_with_invalid_nalu.mp4"
    for at in range(0, count, max(4, count // 12)):
        wanted = list(range(at, min(at + 4, count)))
        made = [(number, digest(frame)) for number, frame in decoded(found, wanted)]
        assert made == [(number, true[number]) for number in wanted]


def digest(frame: av.VideoFrame) -> bytes:
    return hashlib.sha256(b"".join(plane.tobytes() for plane in planes(frame))).digest()


def hashes(path: Path, stream: int) -> list[bytes]:
    """Those of the first frames, up to damage."""
    with av.open(str(path)) as container:
        container.streams[stream].thread_type = "AUTO"  # type: ignore[union-attr]
        found: list[bytes] = []
        with suppress(av.error.FFmpegError):
            for frame in islice(container.decode(container.streams[stream]), MOST):  # type: ignore[arg-type]
                found.append(digest(frame))
        return found


def test_decoding_begins_at_the_keyframe_before(tmp_path: Path) -> None:
    found = index_of(str(numbered(tmp_path / "a.mp4", 40, options={"g": "10", "bf": "2"})))
    assert len(set(found.keys.tolist())) == 4
    counted = index_of(str(numbered(tmp_path / "a.avi", 40, "mpeg4", {"g": "10"})))
    assert not len(counted.keys)


@pytest.mark.parametrize(
    ("name", "codec", "options", "share"),
    [
        ("b.mp4", "libx264", {"g": "40", "bf": "3", "b-pyramid": "none", "x264-params": "b-adapt=0"}, 0.7),
        ("b.mkv", "libx264", {"g": "40", "bf": "3", "b-pyramid": "none", "x264-params": "b-adapt=0"}, 0.7),
        ("pyramid.mp4", "libx265", {"x265-params": "log-level=none:keyint=40:bframes=3:b-adapt=0"}, 0.45),
        ("layers.mp4", "libx265", {"x265-params": "log-level=none:keyint=40:bframes=3:temporal-layers=3"}, 0.3),
        ("ip.mp4", "libx264", {"g": "40", "bf": "0"}, 0),
    ],
)
def test_pictures_that_no_other_refers_to_are_left_out(
    name: str, codec: str, options: dict[str, str], share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the way from the keyframe to the clip takes twice as long. Nothing is read behind the clip either."""
    found = index_of(str(path := numbered(tmp_path / name, 40, codec, options)))
    assert found.timed and found.spare.mean() >= share and bool(found.spare.any()) == bool(share)
    true = all_frames(path)
    fed: list[int | None] = []
    inner = decode._packets

    def watched(*args: Any, **options: Any) -> Iterator[Any]:
        for packet in inner(*args, **options) or ():
            fed.append(packet.pts)
            yield packet

    monkeypatch.setattr(decode, "_packets", watched)
    for first in (10, 24, 30):
        fed.clear()
        for number, frame in decoded(found, [first, first + 1]):
            assert all(np.array_equal(a, b) for a, b in zip(planes(frame), planes(true[number]), strict=True))
        assert len(fed) <= first + 6


def test_an_index_is_kept_until_the_file_changes(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = numbered(tmp_path / "a.mp4", 20)
    made = index_of(str(path))
    assert len(list(cache.iterdir())) == 1
    with monkeypatch.context() as context:
        context.delattr(index, "_made")
        again = index_of(str(path))
    assert (again.size, again.time_base, again.orientation) == (made.size, made.time_base, made.orientation) == (
        (96, 160), made.time_base, UPRIGHT,
    )  # fmt: skip
    assert np.array_equal(again.pts, made.pts) and np.array_equal(again.keys, made.keys)
    info = probe(str(path))
    assert again.coding == made.coding == ("h264", "yuv420p", False, info.color, info.extradata)
    assert again.stored == (info.width, info.height)
    numbered(path, 30)
    os.utime(path, (1, 1))
    assert len(index_of(str(path))) == 30
    for content in (b"not an index", b"", next(cache.iterdir()).read_bytes()[:-30]):
        for kept in cache.iterdir():
            kept.write_bytes(content)
        assert len(index_of(str(path))) == 30


def test_names_need_not_be_text(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.mp4")
    os.rename(numbered(tmp_path / "a.mp4", 20), path)
    assert len(index_of(path)) == 20


def test_what_has_no_exact_frames_is_refused_by_name(corpus: Path) -> None:
    for name, reason in {
        "fixture-raw.mts": "is interlaced",
        "bear-640x360-v_frag-cbcs.mp4": "is encrypted",
        "sample_audio_only.mp4": "has no video stream",
        "corrupted.mp4": "can't be decoded to its end",
    }.items():
        with pytest.raises(InputError, match=reason):
            index_of(str(next(corpus.rglob(name))))


def test_fields_that_begin_late_are_refused(tmp_path: Path) -> None:
    """Two streams one after the other, as in recordings of broadcasts."""
    parts = []
    for number, options in enumerate(({}, {"x264-params": "tff=1"})):
        numbered(part := tmp_path / f"{number}.h264", 20, options=options)
        parts.append(part.read_bytes())
    (tmp_path / "both.h264").write_bytes(b"".join(parts))
    with pytest.raises(InputError, match="is interlaced"):
        index_of(str(tmp_path / "both.h264"))
    with av.open(str(tmp_path / "both.h264")) as given, av.open(str(tmp_path / "both.ts"), "w") as made:
        stream = made.add_stream_from_template(given.streams.video[0])
        for number, packet in enumerate(packet for packet in given.demux() if packet.size):
            packet.pts = packet.dts = number * 3000
            packet.time_base, packet.stream = Fraction(1, 90000), stream
            made.mux(packet)
    with pytest.raises(InputError, match="is interlaced"):
        index_of(str(tmp_path / "both.ts"))


def test_a_damaged_frame_is_an_error(tmp_path: Path) -> None:
    found = index_of(str(path := numbered(tmp_path / "a.mp4", 40, options={"g": "10", "bf": "0"}, size=(320, 240))))
    damage(path, 15)
    for numbers in ([15], [18, 19], list(range(40))):
        with pytest.raises(InputError, match=r"frame \d+ can't be decoded"):
            list(decoded(found, numbers))
    for numbers in ([0, 14], [20, 39]):
        assert [number for number, _ in decoded(found, numbers)] == numbers


def test_damage_of_masks_that_ffmpeg_conceals_is_an_error(tmp_path: Path) -> None:
    found = index_of(str(path := numbered(tmp_path / "a.mkv", 10, "ffv1", {"slicecrc": "1", "level": "3"})))
    damage(path, 5)
    assert len(list(decoded(found, range(10)))) == 10
    with pytest.raises(InputError, match="frame 5 can't be decoded"):
        list(decoded(found, range(10), checksums=True))
    assert [number for number, _ in decoded(found, [0, 4], checksums=True)] == [0, 4]


class Counting:
    """A container that counts the packets that are read."""

    def __init__(self, path: str) -> None:
        self._container, self.read = open_input(path), 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._container, name)

    def demux(self, stream: Any) -> Iterator[Any]:
        for packet in self._container.demux(stream):
            self.read += 1
            yield packet


@pytest.mark.parametrize("container", ["mp4", "mov", "ts", "mkv"])
@pytest.mark.parametrize("name", ["closed.mp4", "hevc.mp4", "uneven.mp4"])
def test_seeking_leads_to_the_keyframe_itself(tmp_path: Path, name: str, container: str) -> None:
    """By a time of the other kind it would lead to the keyframe before, and twice as many packets would be read."""
    codec, options, times = MADE[name]
    found = index_of(str(numbered(tmp_path / f"a.{container}", 40, codec, options, times=times)))
    assert len(set(found.keys.tolist())) > 2
    for number in range(0, 40, 6):
        counting = Counting(found.path)
        with decode.opened(found, number, lambda _, lent=counting: nullcontext(lent)):  # type: ignore[misc]
            assert counting.read == 1
