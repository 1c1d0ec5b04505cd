"""The changed videos of make_variants.py: joined, cropped, begun elsewhere, with other clocks and edit lists."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

from av.packet import Packet
from deeper_vp9 import COARSE, deeper
from edit_list import Edit, edited
from packed_b import packed
from variant_clip import Clip, joined, remuxed
from variant_forms import COUNT, HIDES, Variant, h264, hevc, vp9, whole

_H264 = "keyint=12:min-keyint=12:scenecut=0"
_OPEN = f"{_H264}:bframes=3:b-adapt=0:open-gop=1"
_OPEN_HEVC = "keyint=12:min-keyint=12:scenecut=0:bframes=3:b-adapt=0:open-gop=1"
_APART = {"fflags": "+bitexact-autobsf"}  # else the muxer joins hidden frames to those that are shown
_AS_IT_IS = {"avoid_negative_ts": "disabled"}  # else muxers move the beginning to 0


def _from_second_keyframe(clip: Clip) -> Callable[[Path], Path]:
    """Leaves out the first group, and with it the only IDR picture."""

    def make(path: Path) -> Path:
        seen = 0

        def change(_: int, packet: Packet[Any]) -> list[Packet[Any]]:
            nonlocal seen
            seen += packet.is_keyframe
            return [packet] if seen > 1 else []

        return remuxed(clip.write(beside(path)), path, change)

    return make


def _joined(*clips: Clip, suffix: str) -> Callable[[Path], Path]:
    return lambda path: joined(path, *(clip.write(beside(path, i, suffix)) for i, clip in enumerate(clips)))


def _appended(*clips: Clip) -> Callable[[Path], object]:
    """Raw streams one after the other."""
    return lambda path: path.write_bytes(b"".join(c.write(beside(path, i)).read_bytes() for i, c in enumerate(clips)))


def _edited(clip: Clip, *edits: Edit) -> Callable[[Path], Path]:
    return lambda path: edited(clip.write(beside(path)), edits, path)


def _deeper(depth: int, options: dict[str, str], **muxing: str) -> Callable[[Path], Path]:
    apart = _filtered(vp9(options=COARSE | options), "vp9_superframe_split", **_APART)
    return lambda path: deeper(apart(beside(path, 1)), path, depth, **muxing)


def _filtered(clip: Clip, filters: str, **muxing: str) -> Callable[[Path], Path]:
    return lambda path: remuxed(clip.write(beside(path)), path, lambda _, packet: [packet], filters=filters, **muxing)


def without(clip: Clip, *numbers: int) -> Callable[[Path], Path]:
    """Leaves out some packets."""
    return lambda path: remuxed(
        clip.write(beside(path)), path, lambda number, packet: [] if number in numbers else [packet]
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

    return remuxed(Clip(codec="libvpx", options={"cpu-used": "8"}, gop=25).write(beside(path)), path, change)


def beside(path: Path, number: int = 0, suffix: str | None = None) -> Path:
    """A name for what the file is made of; make_variants.py removes all names that begin so."""
    return path.with_name(f".part{number}-{path.stem}{suffix or path.suffix}")


_BEGIN = [
    Variant(
        "h264-no-idr.mkv",
        _from_second_keyframe(h264(_OPEN)),
        lambda f: f.exact == 0 and f.keyframes == 4 and f.frames > 40,
    ),
    Variant("h264-no-idr.ts", _from_second_keyframe(h264(_OPEN)), lambda f: f.exact == 0 and f.keyframes == 4),
    Variant("hevc-begins-with-cra.mkv", _from_second_keyframe(hevc(_OPEN_HEVC)), lambda f: f.exact == 4),
    Variant("hevc-begins-with-cra.ts", _from_second_keyframe(hevc(_OPEN_HEVC)), lambda f: f.exact == 4),
    Variant("h264-begins-within-group.ts", without(h264(), *range(5)), lambda f: f.exact == 4 and f.frames == 48),
    Variant("hevc-begins-within-group.ts", without(hevc(), *range(5)), lambda f: f.exact == 4 and f.frames == 48),
    Variant(
        "h264-begins-within-refresh.ts",
        without(h264("keyint=15:intra-refresh=1:bframes=0"), *range(9)),
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
        lambda path: packed(Clip(codec="mpeg4", options={"bf": "1"}).write(beside(path)), path),
        lambda f: bool(f.info and f.info.packed) and f.frames >= COUNT - 1 and f.b_frames > 20,
    ),
    Variant("vp8-hidden-frames.webm", _hidden_vp8, lambda f: f.hidden == 8 and f.frames == COUNT - 8 and not f.errors),
    Variant(
        "vp9-hidden-frames-apart.webm",
        _filtered(vp9(options=HIDES), "vp9_superframe_split", **_APART),
        lambda f: f.hidden > 3 and f.frames == COUNT,
    ),
]

_DEPTHS = [
    Variant("vp9-10-bit.webm", _deeper(10, {}), lambda f: whole(f, "vp9") and f.pix_fmt == "yuv420p10le"),
    Variant("vp9-12-bit.webm", _deeper(12, {}), lambda f: whole(f, "vp9") and f.pix_fmt == "yuv420p12le"),
    Variant(
        "vp9-10-bit-hidden-frames.webm",
        _deeper(10, HIDES),
        lambda f: whole(f, "vp9") and f.pix_fmt == "yuv420p10le" and f.superframes == f.syntax["show_frame = 0"] > 3,
    ),
    Variant(
        "vp9-10-bit-hidden-frames-apart.webm",
        _deeper(10, HIDES, **_APART),
        lambda f: whole(f, "vp9") and f.pix_fmt == "yuv420p10le" and f.hidden == f.syntax["show_frame = 0"] > 3,
    ),
]

EDITS = [*_BEGIN, *_PARAMETERS, *_TIMES, *_DEPTHS]
