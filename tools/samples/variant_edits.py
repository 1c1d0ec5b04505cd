"""The changed videos of make_variants.py: joined, cut, cropped, damaged, with other clocks and edit lists."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

from av.packet import Packet
from edit_list import Edit, edited
from packed_b import packed
from variant_clip import Clip, joined, remuxed
from variant_facts import Facts
from variant_forms import COUNT, HIDES, Variant, h264, hevc, vp9, whole

_H264 = "keyint=12:min-keyint=12:scenecut=0"
_OPEN = f"{_H264}:bframes=3:b-adapt=0:open-gop=1"
_OPEN_HEVC = "keyint=12:min-keyint=12:scenecut=0:bframes=3:b-adapt=0:open-gop=1"
_FASTSTART = {"movflags": "+faststart"}
_AS_IT_IS = {"avoid_negative_ts": "disabled"}  # else muxers move the beginning to 0


def _from_second_keyframe(clip: Clip) -> Callable[[Path], Path]:
    """Leaves out the first group, and with it the only IDR picture."""

    def make(path: Path) -> Path:
        seen = 0

        def change(_: int, packet: Packet[Any]) -> list[Packet[Any]]:
            nonlocal seen
            seen += packet.is_keyframe
            return [packet] if seen > 1 else []

        return remuxed(clip.write(_beside(path)), path, change)

    return make


def _joined(*clips: Clip, suffix: str) -> Callable[[Path], Path]:
    return lambda path: joined(path, *(clip.write(_beside(path, i, suffix)) for i, clip in enumerate(clips)))


def _appended(*clips: Clip) -> Callable[[Path], object]:
    """Raw streams one after the other."""
    return lambda path: path.write_bytes(b"".join(c.write(_beside(path, i)).read_bytes() for i, c in enumerate(clips)))


def _edited(clip: Clip, *edits: Edit) -> Callable[[Path], Path]:
    return lambda path: edited(clip.write(_beside(path)), edits, path)


def _filtered(clip: Clip, filters: str, **muxing: str) -> Callable[[Path], Path]:
    return lambda path: remuxed(clip.write(_beside(path)), path, lambda _, packet: [packet], filters=filters, **muxing)


def _without(clip: Clip, *numbers: int) -> Callable[[Path], Path]:
    """Leaves out some packets."""
    return lambda path: remuxed(
        clip.write(_beside(path)), path, lambda number, packet: [] if number in numbers else [packet]
    )


def _hidden_vp8(path: Path) -> Path:
    """Says of every seventh frame that it is not shown (RFC 6386, 9.1)."""

    def change(number: int, packet: Packet[Any]) -> list[Packet[Any]]:
        if number % 7 != 6:
            return [packet]
        data = bytearray(packet)
        data[0] &= ~16
        hidden: Packet[Any] = Packet(bytes(data))
        hidden.pts, hidden.dts, hidden.time_base = packet.pts, packet.dts, packet.time_base
        hidden.is_keyframe = packet.is_keyframe
        return [hidden]

    return remuxed(Clip(codec="libvpx", options={"cpu-used": "8"}, gop=25).write(_beside(path)), path, change)


def _cut(clip: Clip, share: float, *, odd: int = 0) -> Callable[[Path], object]:
    """Keeps that share of the bytes, and `odd` more."""

    def make(path: Path) -> None:
        data = clip.write(_beside(path)).read_bytes()
        path.write_bytes(data[: int(len(data) * share) + odd])

    return make


def _flipped(clip: Clip, count: int, seed: int, begin: float = 0.25) -> Callable[[Path], object]:
    """Flips so many bits behind the first `begin` of the bytes."""

    def make(path: Path) -> None:
        dice = Random(seed)
        data = bytearray(clip.write(_beside(path)).read_bytes())
        for _ in range(count):
            data[dice.randrange(int(begin * len(data)), len(data))] ^= 1 << dice.randrange(8)
        path.write_bytes(data)

    return make


def _beside(path: Path, number: int = 0, suffix: str | None = None) -> Path:
    """A name for what the file is made of; make_variants.py removes all names that begin so."""
    return path.with_name(f".part{number}-{path.stem}{suffix or path.suffix}")


def _fewer(facts: Facts) -> bool:
    """Whether something is missing or refused."""
    return bool(facts.refused) or 0 < facts.frames < COUNT


def _damaged(facts: Facts) -> bool:
    return bool(facts.refused) or facts.errors > 0 or 0 < facts.frames != COUNT or facts.frames == COUNT


_BEGIN = [
    Variant(
        "h264-no-idr.mkv",
        _from_second_keyframe(h264(_OPEN)),
        lambda f: f.exact == 0 and f.keyframes == 4 and f.frames > 40,
    ),
    Variant("h264-no-idr.ts", _from_second_keyframe(h264(_OPEN)), lambda f: f.exact == 0 and f.keyframes == 4),
    Variant("hevc-begins-with-cra.mkv", _from_second_keyframe(hevc(_OPEN_HEVC)), lambda f: f.exact == 4),
    Variant("hevc-begins-with-cra.ts", _from_second_keyframe(hevc(_OPEN_HEVC)), lambda f: f.exact == 4),
    Variant("h264-begins-within-group.ts", _without(h264(), *range(5)), lambda f: f.exact == 4 and f.frames == 48),
    Variant("hevc-begins-within-group.ts", _without(hevc(), *range(5)), lambda f: f.exact == 4 and f.frames == 48),
    Variant(
        "h264-begins-within-refresh.ts",
        _without(h264("keyint=15:intra-refresh=1:bframes=0"), *range(9)),
        lambda f: f.exact == 0 and 0 < f.frames < 51,
    ),
    Variant(
        "mpeg2-begins-with-open-gop.ts",
        _from_second_keyframe(Clip(codec="mpeg2video", options={"bf": "2"})),
        lambda f: f.frames == f.packets - 2,  # B-frames that lack the group before
    ),
]

_PARAMETERS = [
    Variant(
        "h264-other-parameters.ts",
        _joined(h264(count=30), h264("keyint=12:bframes=0:cabac=0:ref=1:8x8dct=0", count=30, first=30), suffix=".ts"),
        lambda f: whole(f, "h264") and f.keyframes > 4,
    ),
    Variant(
        "h264-other-parameters.h264",
        _appended(h264(count=30), h264("keyint=12:bframes=0:cabac=0:ref=1", count=30, first=30)),
        lambda f: whole(f, "h264"),
    ),
    Variant(
        "h264-more-references.ts",
        _joined(h264("bframes=0:ref=1", count=30), h264("bframes=7:ref=8", count=30, first=30), suffix=".ts"),
        lambda f: whole(f, "h264"),
    ),
    Variant(
        "h264-becomes-interlaced.ts",
        _joined(h264(count=30), h264(f"{_H264}:tff=1", count=30, first=30), suffix=".ts"),
        lambda f: f.frames == COUNT and f.interlaced == 30,
    ),
    Variant(
        "h264-becomes-smaller.ts",
        _joined(h264(count=30), h264(count=30, first=30, size=(160, 128)), suffix=".ts"),
        lambda f: len(f.sizes) == 2,
    ),
    Variant(
        "h264-becomes-cropped.ts",
        _joined(h264(count=30), h264(count=30, first=30, size=(318, 238)), suffix=".ts"),
        lambda f: len(f.sizes) == 2,
    ),
    Variant(
        "h264-becomes-larger.h264",
        _appended(h264(count=30), h264(count=30, first=30, size=(480, 272))),
        lambda f: len(f.sizes) == 2,
    ),
    Variant(
        "hevc-becomes-smaller.ts",
        _joined(hevc(count=30), hevc(count=30, first=30, size=(160, 144)), suffix=".ts"),
        lambda f: len(f.sizes) == 2,
    ),
    Variant(
        "hevc-becomes-10-bit.ts",
        _joined(hevc(count=30), hevc(count=30, first=30, pix_fmt="yuv420p10le"), suffix=".ts"),
        lambda f: f.frames == COUNT and f.pix_fmt == "yuv420p",
    ),
    Variant(
        "vp9-becomes-smaller.webm",
        _joined(vp9(count=30), vp9(count=30, first=30, size=(160, 128)), suffix=".webm"),
        lambda f: len(f.sizes) == 2,
    ),
    Variant(
        "vp8-becomes-smaller.webm",
        _joined(Clip(codec="libvpx", count=30), Clip(codec="libvpx", count=30, size=(160, 128)), suffix=".webm"),
        lambda f: len(f.sizes) == 2,
    ),
    Variant(
        "mpeg2-becomes-smaller.ts",
        _joined(Clip(codec="mpeg2video", count=30), Clip(codec="mpeg2video", count=30, size=(160, 128)), suffix=".ts"),
        lambda f: len(f.sizes) == 2,
    ),
    Variant(
        "h264-cropped.ts",
        _filtered(h264(), "h264_metadata=crop_left=32:crop_top=16:crop_right=14:crop_bottom=6"),
        lambda f: bool(f.info) and (f.info.width, f.info.height) == (274, 218),
    ),
    Variant(
        "hevc-cropped.ts",
        _filtered(hevc(), "hevc_metadata=crop_left=32:crop_top=16:crop_right=14:crop_bottom=6"),
        lambda f: bool(f.info) and (f.info.width, f.info.height) == (274, 218),
    ),
]

_TIMES = [
    Variant(
        "h264-negative-pts.ts",
        h264(clock=Fraction(-1), muxing=_AS_IT_IS).write,
        lambda f: bool(f.info and f.info.start < 0),
    ),
    Variant(
        "h264-negative-pts.mp4",
        h264(clock=Fraction(-1), muxing=_AS_IT_IS).write,
        lambda f: 0 < f.frames < COUNT,
    ),
    Variant("h264-negative-pts.flv", h264(clock=Fraction(-1), muxing=_AS_IT_IS).write, lambda f: whole(f, "h264")),
    Variant("h264-edit-begins-late.mp4", _edited(h264(), (2.0, 0.36)), lambda f: f.discarded > 0),
    Variant("h264-edit-empty-first.mp4", _edited(h264(), (1.0, None), (2.4, 0)), lambda f: min(f.pts) > 0),
    Variant("h264-edit-shows-twice.mp4", _edited(h264(), (1.2, 0), (1.2, 0.6)), lambda f: f.packets > COUNT),
    Variant("h264-edit-leaves-out.mp4", _edited(h264(), (0.8, 0), (0.8, 1.6)), lambda f: f.frames < COUNT),
    Variant("hevc-edit-begins-late.mp4", _edited(hevc(_OPEN_HEVC), (1.6, 0.72)), lambda f: f.discarded > 0),
    Variant(
        "h264-two-recordings.ts",
        _appended(h264(count=30, clock=Fraction(60)), h264(count=30, first=30)),
        lambda f: f.frames == COUNT and min(f.pts) < 90_000 < max(f.pts),
    ),
    Variant(
        "mpeg4-packed-b-frames.avi",
        lambda path: packed(Clip(codec="mpeg4", options={"bf": "1"}).write(_beside(path)), path),
        lambda f: bool(f.info and f.info.packed) and f.frames >= COUNT - 1 and f.b_frames > 20,
    ),
    Variant("vp8-hidden-frames.webm", _hidden_vp8, lambda f: f.hidden == 8 and f.frames == COUNT - 8 and not f.errors),
    Variant(
        "vp9-hidden-frames-apart.webm",
        _filtered(vp9(options=HIDES), "vp9_superframe_split", fflags="+bitexact-autobsf"),  # the muxer would join them
        lambda f: f.hidden > 3 and f.frames == COUNT,
    ),
]

_MP4 = h264(muxing=_FASTSTART)
_DAMAGE = [
    *(
        Variant(f"cut-h264-at-{round(share * 100)}-percent.mp4", _cut(_MP4, share), _fewer)
        for share in (0.05, 0.3, 0.5, 0.9, 0.99)
    ),
    Variant("cut-h264-index-last.mp4", _cut(h264(), 0.7), lambda f: bool(f.refused)),
    *(Variant(f"cut-h264-at-half-and-{odd}.ts", _cut(h264(), 0.5, odd=odd), _fewer) for odd in (0, 1, 95)),
    Variant("cut-h264.mkv", _cut(h264(), 0.6), _fewer),
    Variant("cut-h264.h264", _cut(h264(), 0.61), _fewer),
    Variant("cut-h264.avi", _cut(h264("bframes=0"), 0.7), _fewer),
    Variant("cut-h264.flv", _cut(h264(), 0.43), _fewer),
    Variant("cut-hevc.mp4", _cut(hevc(muxing=_FASTSTART), 0.55), _fewer),
    Variant("cut-hevc.ts", _cut(hevc(), 0.55), _fewer),
    Variant("cut-vp9.webm", _cut(vp9(), 0.55), _fewer),
    Variant("cut-vp8.webm", _cut(Clip(codec="libvpx"), 0.55), _fewer),
    Variant("cut-mpeg2.ts", _cut(Clip(codec="mpeg2video", options={"bf": "2"}), 0.55), _fewer),
    Variant("lost-packets-h264.mkv", _without(h264("keyint=60:bframes=0"), 17, 18, 40), _fewer),
    Variant("lost-keyframe-h264.mkv", _without(h264(f"{_H264}:bframes=0"), 24), _fewer),
    Variant("lost-packets-hevc.mkv", _without(hevc("keyint=60:bframes=0"), 17, 18, 40), _fewer),
    Variant("lost-packets-vp9.webm", _without(vp9(), 17, 18, 40), _fewer),
    *(Variant(f"flipped-{n}-bits-h264.mp4", _flipped(_MP4, n, seed=n), _damaged) for n in (1, 5, 40)),
    *(Variant(f"flipped-{n}-bits-h264.ts", _flipped(h264(), n, seed=n), _damaged) for n in (1, 5, 40)),
    Variant("flipped-bits-h264.h264", _flipped(h264(), 8, seed=2), _damaged),
    Variant("flipped-bits-in-index.mp4", _flipped(_MP4, 4, seed=4, begin=0.0), _damaged),
    *(Variant(f"flipped-{n}-bits-hevc.mp4", _flipped(hevc(muxing=_FASTSTART), n, seed=n), _damaged) for n in (1, 12)),
    Variant("flipped-bits-hevc.ts", _flipped(hevc(), 8, seed=8), _damaged),
    Variant("flipped-bits-vp9.webm", _flipped(vp9(), 8, seed=8), _damaged),
    Variant("flipped-bits-vp8.webm", _flipped(Clip(codec="libvpx"), 8, seed=8), _damaged),
    Variant("flipped-bits-mpeg2.ts", _flipped(Clip(codec="mpeg2video", options={"bf": "2"}), 8, seed=8), _damaged),
    Variant("flipped-bits-mpeg4.mp4", _flipped(Clip(codec="mpeg4", muxing=_FASTSTART), 8, seed=8), _damaged),
    Variant("flipped-bits-av1.mkv", _flipped(Clip(codec="libsvtav1", options={"preset": "10"}), 8, seed=8), _damaged),
]

EDITS = [*_BEGIN, *_PARAMETERS, *_TIMES, *_DAMAGE]
