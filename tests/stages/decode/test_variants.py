"""Videos of all kinds are decoded alike in both ways: by FFmpeg as a whole, and by the chunks that NVDEC would get."""

from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make_variants import VARIANTS
from numpy.typing import NDArray
from side_differences import compare
from variant_clip import RATE, Clip, pictures
from variant_forms import COUNT, Variant
from variant_written import AGAIN, GROUP, LONG, PAN, SHORT, SIZE, WRITTEN
from variants import DAMAGED, made, side

from segmentation import Config
from segmentation.errors import LacksEngine
from segmentation.frames import Frame
from segmentation.media.opening.probe import probe
from segmentation.stages.decode.chunks import read
from segmentation.stages.decode.nvdec_support import check_exactness
from segmentation.stages.decode.pyav import PyAVDecoder


def decoded(path: Path, **options: Any) -> tuple[PyAVDecoder, list[Frame]]:
    decoder = PyAVDecoder(probe(str(path)), "yuv420p", Config(**options))
    return decoder, [frame for batch in decoder for frame in batch.frames]


EACH = [  # one of eight, and the others if they are asked for
    pytest.param(variant, id=variant.name, marks=[pytest.mark.slow] if number % 8 else [])
    for number, variant in enumerate(VARIANTS)
]


@pytest.mark.parametrize("variant", EACH)
def test_chunks_give_what_the_whole_gives(variant: Variant, tmp_path: Path) -> None:
    found = compare(str(made(variant.name, tmp_path)), side("cpu"), side("chunks"), masks=0)
    if variant.name.startswith(DAMAGED):  # each decoder conceals in its own way, and threads now so, now so
        assert not found.kinds or ({"damage", "planes"} & set(found.kinds) and "refusal" not in found.kinds)
    elif "-becomes-" in variant.name:
        assert not found.kinds or found.explained == "change on the way"
    else:
        assert not found.kinds, found.text


@pytest.mark.parametrize("name", ["h264-cropped.ts", "hevc-cropped.ts"])
def test_what_is_cut_off_at_the_left_and_the_top_is_not_shown(name: str, tmp_path: Path) -> None:
    path = made(name, tmp_path)
    codec = {"h264": "libx264", "hevc": "libx265"}[name.partition("-")[0]]
    parameters = "keyint=12:min-keyint=12:scenecut=0:bframes=3" + (":open-gop=0" if codec == "libx265" else "")
    _, shown = decoded(path)
    _, coded = decoded(Clip(codec=codec, parameters=parameters).write(tmp_path / "whole.mp4"))
    for ours, whole in zip(shown, coded, strict=True):
        for plane, other, halves in zip(ours.planes, whole.planes, (1, 2, 2), strict=True):
            rows, columns = slice(16 // halves, (240 - 6) // halves), slice(32 // halves, (320 - 14) // halves)
            assert np.array_equal(plane, other[rows, columns])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("h264-cropped.ts", "from its corner on"),
        ("hevc-cropped.ts", "from its corner on"),
        ("h264-begins-within-refresh.ts", "not complete yet"),
        ("h264-fields-mbaff-tff.ts", "mix the fields"),
        ("mpeg4-packed-b-frames.avi", "packed B-frames"),
    ],
)
def test_what_nvdec_would_show_wrongly_is_refused(name: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(LacksEngine, match=reason):
        check_exactness(Config(), probe(str(made(name, tmp_path))))


@pytest.mark.parametrize("name", ["h264-closed.mp4", "h264-size-322x242.mp4", "hevc-size-322x242.mp4", "hevc-open.ts"])
def test_what_nvdec_shows_rightly_is_not(name: str, tmp_path: Path) -> None:
    check_exactness(Config(), probe(str(made(name, tmp_path))))


@pytest.mark.parametrize("name", ["cut-h264-at-50-percent.mp4", "cut-h264.flv", "cut-hevc.mp4"])
def test_a_file_that_breaks_off_keeps_its_last_frames(name: str, tmp_path: Path) -> None:
    """All of the packets that are whole: threads and B-frames may not keep any."""
    path = made(name, tmp_path)
    packets = len(list(read(probe(str(path)), None)))
    decoder, frames = decoded(path)
    assert len(frames) == packets
    assert decoder.damaged


def test_hevc_goes_on_after_lost_packets(tmp_path: Path) -> None:
    """With frames that are counted as damaged. Those of a group without beginning are left out."""
    decoder, frames = decoded(made("lost-packets-hevc.mkv", tmp_path))
    assert len(frames) == 57 and decoder.damaged >= 40
    decoder, frames = decoded(made("hevc-begins-within-group.ts", tmp_path))
    assert len(frames) == 48 and not decoder.damaged


def test_frames_that_ffmpeg_drops_without_an_error_are_counted(tmp_path: Path) -> None:
    """Those of a group without its keyframe, whose order begins anew."""
    decoder, frames = decoded(made("lost-keyframe-h264.mkv", tmp_path))
    assert (len(frames), decoder.damaged) == (49, 10)


@pytest.mark.parametrize("name", ["h264-begins-within-group.ts", "hevc-begins-within-group.ts"])
def test_nothing_is_read_before_the_first_parameters(name: str, tmp_path: Path) -> None:
    info = probe(str(made(name, tmp_path)))
    assert next(read(info, None)).is_keyframe


@pytest.mark.parametrize("name", ["hevc-begins-with-cra.mkv", "hevc-begins-with-cra.ts"])
def test_pictures_that_need_earlier_ones_are_not_read_at_the_beginning(name: str, tmp_path: Path) -> None:
    """Only there: behind later keyframes they are shown."""
    info = probe(str(made(name, tmp_path)))
    times = [packet.pts for packet in read(info, None)]
    _, frames = decoded(tmp_path / name)
    assert sorted(times) == [frame.pts for frame in frames] and times != sorted(times)


def test_a_beginning_within_a_gradual_refresh_is_read_from_where_it_is_exact(tmp_path: Path) -> None:
    """Pictures are not complete for 15 frames after a seek: NVDEC would show them, where FFmpeg waits."""
    info = probe(str(made("h264-intra-refresh.mp4", tmp_path)))
    assert not info.gradual
    assert next(read(info, round(1 / info.time_base))).pts == 0
    _, frames = decoded(tmp_path / "h264-intra-refresh.mp4", start=1.0)
    assert frames[0].pts * info.time_base == 1 and len(frames) == 35


@pytest.mark.parametrize("name", ["vp9-10-bit.webm", "vp9-12-bit.webm", "vp9-10-bit-hidden-frames.webm"])
def test_vp9_of_more_bits_shows_what_was_encoded(name: str, tmp_path: Path) -> None:
    """The encoder had 8 bits, and rounds otherwise: a coefficient that is misread would spoil all that follows it."""
    _, frames = decoded(made(name, tmp_path))
    for frame, picture in zip(frames, pictures((320, 240), "yuv420p")[:COUNT], strict=True):
        assert np.abs(frame.planes[0].astype(int) - picture.to_ndarray()[:240]).mean() < 6


def moved(luma: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Returns what a motion of PAN shows: samples beyond the edge are those at the edge."""
    return np.pad(luma, ((0, 0), (0, PAN[0])), mode="edge")[:, PAN[0] :]


def test_long_term_references_are_shown_again(tmp_path: Path) -> None:
    _, frames = decoded(made("h264-long-term.mp4", tmp_path))
    shown = [frame.planes[0] for frame in frames]
    for number, luma in enumerate(shown):
        begin, place = number // GROUP * GROUP, number % GROUP
        if place == 0:
            assert np.array_equal(luma, pictures(SIZE, "yuv420p")[number].to_ndarray()[: SIZE[1]])
        else:
            again = place in AGAIN
            assert np.array_equal(luma, shown[begin + AGAIN[place]] if again else moved(shown[number - 1]))


def test_hevc_goes_on_from_a_long_term_reference(tmp_path: Path) -> None:
    _, frames = decoded(made("hevc-long-term.mkv", tmp_path))
    shown = [frame.planes[0] for frame in frames]
    for begin in range(0, COUNT, LONG):
        group = shown[begin : begin + LONG]
        assert not any(np.array_equal(one, other) for one, other in pairwise(group))
        assert np.array_equal(group[SHORT:], group[1:SHORT])


@pytest.mark.parametrize("name", [variant.name for variant in WRITTEN if "field-pictures" in variant.name])
def test_fields_in_pictures_of_their_own_are_shown_in_pairs(name: str, tmp_path: Path) -> None:
    decoder, frames = decoded(made(name, tmp_path))
    assert not decoder.damaged
    shown = [frame.planes[0] for frame in frames]
    for number, luma in enumerate(shown):
        begin, place = number // GROUP * GROUP, number % GROUP
        if place == 0:
            top, bottom = (
                pictures(SIZE, "yuv420p")[number].to_ndarray()[: SIZE[1]].reshape(-1, 2, SIZE[0]).swapaxes(0, 1)
            )
        else:
            top, bottom = (moved(shown[number - 1])[parity::2] for parity in (0, 1))
        if "long-term" in name and place in AGAIN:
            bottom, top = (shown[begin][parity::2] for parity in (0, 1))
        elif "long-term" not in name and place and place % 3 != 2 and place % 2 == 0:
            bottom = top
        assert np.array_equal(luma[::2], top) and np.array_equal(luma[1::2], bottom)
    times = [frame.pts * decoder.info.time_base for frame in frames]
    assert [time - times[0] for time in times] == [Fraction(number, RATE) for number in range(COUNT)]
    assert {frame.duration * decoder.info.time_base for frame in frames} == {Fraction(1, RATE)}


@pytest.mark.slow
def test_variants_are_the_same_each_time(tmp_path: Path) -> None:
    encoded = ("h264-priming.mp4", "hevc-open.mp4", "vp9-hidden-frames.webm", "av1.mkv")
    for name in (*encoded, "flipped-5-bits-h264.ts", "h264-field-pictures.ts", "hevc-long-term.mkv", "vp9-10-bit.webm"):
        first = made(name, tmp_path).read_bytes()
        assert made(name, tmp_path).read_bytes() == first
