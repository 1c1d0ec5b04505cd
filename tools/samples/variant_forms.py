"""The encoded videos of make_variants.py: codecs, groups of pictures, depths, sizes, times and containers."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

from variant_clip import RATE, Clip
from variant_facts import Facts

CLOCK = 2**33  # ticks of 1/90000 s after which a transport stream's clock begins anew
COUNT = 60  # frames
_H264 = "keyint=12:min-keyint=12:scenecut=0"
_HEVC = "keyint=12:min-keyint=12:scenecut=0"


class Variant(NamedTuple):
    """A file: its name, what makes it at a path (others may be made beside it), and whether it is what it should be."""

    name: str
    make: Callable[[Path], object]
    holds: Callable[[Facts], bool]


def h264(parameters: str = f"{_H264}:bframes=3", **others: object) -> Clip:
    return Clip(codec="libx264", parameters=parameters, **others)  # type: ignore[arg-type]


def hevc(parameters: str = f"{_HEVC}:bframes=3:open-gop=0", **others: object) -> Clip:
    return Clip(codec="libx265", parameters=parameters, **others)  # type: ignore[arg-type]


def vp9(**others: object) -> Clip:
    options = {"cpu-used": "8", "deadline": "realtime", "lag-in-frames": "0", "b": "300k"}
    return Clip(codec="libvpx-vp9", options=options | others.pop("options", {}), **others)  # type: ignore[arg-type,operator]


def variable_times() -> list[int]:
    """Times that rise by one to eight ticks."""
    dice = Random(3)
    return [0, *accumulate(dice.randint(1, 8) for _ in range(COUNT - 1))]


def whole(facts: Facts, codec: str, *, exact: int | None = None) -> bool:
    """Whether all frames come out without an error, of that codec, with so many keyframes to begin at."""
    right = facts.codec == codec and facts.frames == COUNT and not facts.errors
    return right and exact in (None, facts.exact)


H264 = [
    Variant("h264-closed.mp4", h264().write, lambda f: whole(f, "h264", exact=5) and f.b_frames > 20),
    Variant("h264-no-b.mp4", h264(f"{_H264}:bframes=0").write, lambda f: whole(f, "h264") and not f.b_frames),
    Variant("h264-intra-only.mp4", h264("keyint=1").write, lambda f: whole(f, "h264", exact=60)),
    Variant(
        "h264-open.mp4",
        h264(f"{_H264}:bframes=3:b-adapt=0:open-gop=1").write,
        lambda f: whole(f, "h264", exact=1) and f.keyframes == 5 and f.leading > 8,
    ),
    Variant("h264-open.ts", h264(f"{_H264}:bframes=3:b-adapt=0:open-gop=1").write, lambda f: whole(f, "h264", exact=1)),
    Variant(
        "h264-one-idr.mkv",
        h264("keyint=infinite:scenecut=0:bframes=3").write,
        lambda f: whole(f, "h264", exact=1) and f.keyframes == 1,
    ),
    Variant(
        "h264-intra-refresh.mp4",
        h264("keyint=15:intra-refresh=1:bframes=0").write,
        lambda f: whole(f, "h264", exact=1),
    ),
    Variant(
        "h264-pyramid-b.mp4",
        h264(f"{_H264}:bframes=7:b-adapt=0:b-pyramid=normal:ref=4").write,
        lambda f: whole(f, "h264", exact=5) and f.b_frames > 40,
    ),
    Variant("h264-fields-mbaff-tff.ts", h264(f"{_H264}:tff=1").write, lambda f: f.interlaced == f.frames == COUNT),
    Variant("h264-fields-mbaff-bff.mp4", h264(f"{_H264}:bff=1").write, lambda f: f.interlaced == f.frames == COUNT),
    Variant(
        "h264-fields-flag-only.mp4",
        h264(f"{_H264}:fake-interlaced=1").write,
        lambda f: bool(f.info and f.info.interlaced),
    ),
    Variant("h264-16-references.mp4", h264("keyint=60:ref=16:bframes=3").write, lambda f: whole(f, "h264")),
    Variant("h264-slices-cavlc.mp4", h264(f"{_H264}:slices=4:cabac=0:aud=1").write, lambda f: whole(f, "h264")),
    Variant("h264-10-bit.mp4", h264(pix_fmt="yuv420p10le").write, lambda f: f.pix_fmt == "yuv420p10le"),
    Variant("h264-422.mp4", h264(pix_fmt="yuv422p").write, lambda f: f.pix_fmt == "yuv422p"),
    Variant("h264-444-odd.mkv", h264(pix_fmt="yuv444p", size=(321, 241)).write, lambda f: f.sizes == {(321, 241)}),
    Variant("h264-size-322x242.mp4", h264(size=(322, 242)).write, lambda f: f.sizes == {(322, 242)}),
    Variant("h264-tiny-34x18.mp4", h264(size=(34, 18)).write, lambda f: f.sizes == {(34, 18)}),
    Variant("h264-variable-rate.mkv", h264(pts=variable_times()).write, lambda f: whole(f, "h264") and _steps(f) > 3),
    Variant("h264-variable-rate.mp4", h264(pts=variable_times()).write, lambda f: whole(f, "h264") and _steps(f) > 3),
    Variant("h264-priming.mp4", h264(sound=True).write, lambda f: whole(f, "h264")),
    Variant(
        "h264-fragmented.mp4",
        h264(muxing={"movflags": "+frag_keyframe+empty_moov+default_base_moof"}).write,
        lambda f: whole(f, "h264"),
    ),
    Variant("h264.mkv", h264().write, lambda f: whole(f, "h264") and "matroska" in f.format),
    Variant("h264.flv", h264().write, lambda f: whole(f, "h264") and f.format == "flv"),
    Variant("h264-b-frames.avi", h264().write, lambda f: f.format == "avi" and bool(f.info and f.info.decoding_times)),
    Variant("h264-without-pts.h264", h264().write, lambda f: whole(f, "h264") and f.timeless == COUNT),
    Variant(
        "h264-open-without-pts.h264",
        h264(f"{_H264}:bframes=3:b-adapt=0:open-gop=1").write,
        lambda f: f.timeless == COUNT,
    ),
    Variant(
        "h264-wrapped-clock.ts",
        h264(clock=Fraction(CLOCK, 90_000) - Fraction(6, 5)).write,
        lambda f: f.frames == COUNT and max(f.pts) > CLOCK - 10 * 90_000 and min(f.pts) < 90_000,
    ),
]

HEVC = [
    Variant("hevc-closed.mp4", hevc().write, lambda f: whole(f, "hevc", exact=5)),
    Variant(
        "hevc-open.mp4",
        hevc(f"{_HEVC}:bframes=3:b-adapt=0:open-gop=1").write,
        lambda f: whole(f, "hevc", exact=5) and f.leading > 8,
    ),
    Variant("hevc-open.ts", hevc(f"{_HEVC}:bframes=3:b-adapt=0:open-gop=1").write, lambda f: whole(f, "hevc", exact=5)),
    Variant(
        "hevc-one-idr.mkv",
        hevc("keyint=-1:scenecut=0:bframes=3").write,
        lambda f: whole(f, "hevc", exact=1),
    ),
    Variant("hevc-intra-only.mp4", hevc("keyint=1").write, lambda f: whole(f, "hevc", exact=60)),
    Variant("hevc-intra-refresh.mp4", hevc("keyint=15:intra-refresh=1:bframes=0").write, lambda f: whole(f, "hevc")),
    Variant(
        "hevc-pyramid-b.mkv",
        hevc(f"{_HEVC}:bframes=7:b-adapt=0:b-pyramid=1:ref=4").write,
        lambda f: whole(f, "hevc") and f.b_frames > 40,
    ),
    Variant("hevc-8-references.mkv", hevc("keyint=60:ref=8:bframes=3").write, lambda f: whole(f, "hevc")),
    Variant("hevc-temporal-layers.mkv", hevc(f"{_HEVC}:temporal-layers=3").write, lambda f: whole(f, "hevc")),
    Variant("hevc-10-bit.mp4", hevc(pix_fmt="yuv420p10le").write, lambda f: f.pix_fmt == "yuv420p10le"),
    Variant("hevc-12-bit.mkv", hevc(pix_fmt="yuv420p12le").write, lambda f: f.pix_fmt == "yuv420p12le"),
    Variant("hevc-444.mkv", hevc(pix_fmt="yuv444p").write, lambda f: f.pix_fmt == "yuv444p"),
    Variant("hevc-444-10-bit.mkv", hevc(pix_fmt="yuv444p10le").write, lambda f: f.pix_fmt == "yuv444p10le"),
    Variant("hevc-size-322x242.mp4", hevc(size=(322, 242)).write, lambda f: f.sizes == {(322, 242)}),
    Variant("hevc-small-128x96.mp4", hevc(size=(128, 96)).write, lambda f: f.sizes == {(128, 96)}),
    Variant("hevc-variable-rate.mkv", hevc(pts=variable_times()).write, lambda f: whole(f, "hevc") and _steps(f) > 3),
    Variant("hevc-without-pts.hevc", hevc().write, lambda f: whole(f, "hevc") and f.timeless == COUNT),
]

HIDES = {"cpu-used": "6", "lag-in-frames": "25", "auto-alt-ref": "1"}  # what makes libvpx hide frames in one pass
_AV1 = {"preset": "8", "svtav1-params": "lp=1"}
OTHERS = [
    Variant("vp8.webm", Clip(codec="libvpx", options={"cpu-used": "8"}).write, lambda f: whole(f, "vp8")),
    Variant("vp8-odd-321x241.webm", Clip(codec="libvpx", size=(321, 241)).write, lambda f: f.sizes == {(321, 241)}),
    Variant("vp9.webm", vp9().write, lambda f: whole(f, "vp9")),
    Variant("vp9-in.mp4", vp9().write, lambda f: whole(f, "vp9") and "mp4" in f.format),
    Variant("vp9-hidden-frames.webm", vp9(options=HIDES).write, lambda f: whole(f, "vp9") and f.superframes > 3),
    Variant("vp9-444.webm", vp9(pix_fmt="yuv444p").write, lambda f: f.pix_fmt == "yuv444p"),
    Variant("vp9-odd-321x241.webm", vp9(size=(321, 241)).write, lambda f: f.sizes == {(321, 241)}),
    Variant("vp9-variable-rate.webm", vp9(pts=variable_times()).write, lambda f: whole(f, "vp9") and _steps(f) > 3),
    Variant("av1.mkv", Clip(codec="libsvtav1", options=_AV1).write, lambda f: f.frames == COUNT),
    Variant(
        "av1-10-bit.mp4",
        Clip(codec="libsvtav1", options=_AV1, pix_fmt="yuv420p10le").write,
        lambda f: f.pix_fmt == "yuv420p10le" and f.frames == COUNT,
    ),
    Variant(
        "mpeg1-b.mpg",
        Clip(codec="mpeg1video", options={"bf": "2"}).write,
        lambda f: whole(f, "mpeg1video") and f.b_frames > 0,
    ),
    Variant(
        "mpeg2-open.ts",
        Clip(codec="mpeg2video", options={"bf": "2"}).write,
        lambda f: whole(f, "mpeg2video") and f.b_frames > 0,
    ),
    Variant(
        "mpeg2-closed.mkv",
        Clip(codec="mpeg2video", options={"bf": "2", "flags": "+cgop", "sc_threshold": "1000000000"}).write,
        lambda f: whole(f, "mpeg2video") and f.b_frames > 0,
    ),
    Variant(
        "mpeg2-fields.ts",
        Clip(codec="mpeg2video", options={"flags": "+ildct+ilme"}).write,
        lambda f: whole(f, "mpeg2video") and f.interlaced == COUNT,
    ),
    Variant("mpeg2-422.ts", Clip(codec="mpeg2video", pix_fmt="yuv422p").write, lambda f: f.pix_fmt == "yuv422p"),
    Variant("mpeg2.m2v", Clip(codec="mpeg2video", format="mpeg2video").write, lambda f: f.format == "mpegvideo"),
    Variant(
        "mpeg4.mp4", Clip(codec="mpeg4", options={"bf": "2"}).write, lambda f: whole(f, "mpeg4") and f.b_frames > 0
    ),
    Variant(
        "mpeg4-quarter-pixel.mkv", Clip(codec="mpeg4", options={"flags": "+qpel"}).write, lambda f: whole(f, "mpeg4")
    ),
    Variant(
        "mpeg4-fields.mkv", Clip(codec="mpeg4", options={"flags": "+ildct+ilme"}).write, lambda f: f.interlaced > 0
    ),
    Variant("mpeg4-odd-321x241.mkv", Clip(codec="mpeg4", size=(321, 241)).write, lambda f: f.sizes == {(321, 241)}),
    Variant("h263.avi", Clip(codec="h263", size=(352, 288)).write, lambda f: whole(f, "h263")),
    Variant("h263-sorenson.flv", Clip(codec="flv").write, lambda f: f.frames == COUNT),
    Variant("wmv2.avi", Clip(codec="wmv2").write, lambda f: whole(f, "wmv2")),
    Variant("mjpeg.mkv", Clip(codec="mjpeg", pix_fmt="yuvj420p").write, lambda f: whole(f, "mjpeg")),
]


def _steps(facts: Facts) -> int:
    """Returns how many different lengths the frames have."""
    times = sorted(facts.pts)
    return len({b - a for a, b in pairwise(times)})


FORMS = [*H264, *HEVC, *OTHERS]
assert RATE == 25, "the times above count in its ticks"
