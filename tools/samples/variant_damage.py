"""The damaged videos of make_variants.py: cut at some byte, with bits flipped, without some packets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

from variant_clip import Clip
from variant_edits import beside, without
from variant_facts import Facts
from variant_forms import COUNT, Variant, h264, hevc, vp9

_H264 = "keyint=12:min-keyint=12:scenecut=0"
_FASTSTART = {"movflags": "+faststart"}


def _cut(clip: Clip, share: float, *, odd: int = 0) -> Callable[[Path], object]:
    """Keeps that share of the bytes, and `odd` more."""

    def make(path: Path) -> None:
        data = clip.write(beside(path)).read_bytes()
        path.write_bytes(data[: int(len(data) * share) + odd])

    return make


def _flipped(clip: Clip, count: int, seed: int, begin: float = 0.25) -> Callable[[Path], object]:
    """Flips so many bits behind the first `begin` of the bytes."""

    def make(path: Path) -> None:
        dice = Random(seed)
        data = bytearray(clip.write(beside(path)).read_bytes())
        for _ in range(count):
            data[dice.randrange(int(begin * len(data)), len(data))] ^= 1 << dice.randrange(8)
        path.write_bytes(data)

    return make


def _fewer(facts: Facts) -> bool:
    """Whether something is missing or refused."""
    return bool(facts.refused) or 0 < facts.frames < COUNT


def _noticed(facts: Facts) -> bool:
    """Whether FFmpeg finds the damage."""
    return bool(facts.refused) or facts.errors > 0 or facts.frames != COUNT


def _unnoticed(facts: Facts) -> bool:
    """Whether FFmpeg decodes all, wrong pictures among them, and finds nothing on one thread."""
    return facts.frames == COUNT and not facts.errors


_MP4 = h264(muxing=_FASTSTART)
DAMAGE = [
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
    Variant("lost-packets-h264.mkv", without(h264("keyint=60:bframes=0"), 17, 18, 40), _fewer),
    Variant("lost-keyframe-h264.mkv", without(h264(f"{_H264}:bframes=0"), 24), _fewer),
    Variant("lost-packets-hevc.mkv", without(hevc("keyint=60:bframes=0"), 17, 18, 40), _fewer),
    Variant("lost-packets-vp9.webm", without(vp9(), 17, 18, 40), _fewer),
    Variant("flipped-1-bits-h264.mp4", _flipped(_MP4, 1, seed=1), _unnoticed),
    *(Variant(f"flipped-{n}-bits-h264.mp4", _flipped(_MP4, n, seed=n), _noticed) for n in (5, 40)),
    *(Variant(f"flipped-{n}-bits-h264.ts", _flipped(h264(), n, seed=n), _noticed) for n in (1, 5, 40)),
    Variant("flipped-bits-h264.h264", _flipped(h264(), 8, seed=2), _noticed),
    Variant("flipped-bits-in-index.mp4", _flipped(_MP4, 4, seed=4, begin=0.0), _noticed),
    Variant("flipped-1-bits-hevc.mp4", _flipped(hevc(muxing=_FASTSTART), 1, seed=1), _unnoticed),
    Variant("flipped-12-bits-hevc.mp4", _flipped(hevc(muxing=_FASTSTART), 12, seed=12), _noticed),
    Variant("flipped-bits-hevc.ts", _flipped(hevc(), 8, seed=8), _unnoticed),
    Variant("flipped-bits-vp9.webm", _flipped(vp9(), 8, seed=8), _unnoticed),
    Variant("flipped-bits-vp8.webm", _flipped(Clip(codec="libvpx"), 8, seed=8), _unnoticed),
    Variant("flipped-bits-mpeg2.ts", _flipped(Clip(codec="mpeg2video", options={"bf": "2"}), 8, seed=8), _noticed),
    Variant("flipped-bits-mpeg4.mp4", _flipped(Clip(codec="mpeg4", muxing=_FASTSTART), 8, seed=8), _noticed),
    Variant("flipped-bits-av1.mkv", _flipped(Clip(codec="libsvtav1", options={"preset": "10"}), 8, seed=8), _noticed),
]
