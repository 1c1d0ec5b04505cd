"""The card that is shown while a source is lost."""

import numpy as np
import pytest
from videos import video_info

from segmentation.frames import FORMATS, Color, Frame, FrameBatch
from segmentation.frames.source import Source
from segmentation.live.card import card, lost_card, with_card


@pytest.mark.parametrize("pix_fmt", sorted(FORMATS))
@pytest.mark.parametrize("size", [(320, 180), (97, 65), (16, 640)])
def test_planes_are_those_of_the_video(pix_fmt: str, size: tuple[int, int]) -> None:
    info = video_info(size=size, pix_fmt=pix_fmt, color=Color(matrix=1, range=1))
    planes, layout = card(info, pix_fmt, ["hall", "no signal"]), FORMATS[pix_fmt]
    assert tuple(plane.shape for plane in planes) == layout.shapes(*size)
    assert all(plane.dtype == layout.dtype for plane in planes)
    ground, ink = (info.color.from_rgb((level,) * 3, layout.bits) for level in (32, 235))
    luma, *chroma = planes
    assert luma.min() == ground[0] and luma.max() <= ink[0] and 0 < (luma > ground[0] + 10 * 4).mean() < 0.5
    assert all((plane == zero).all() for plane, zero in zip(chroma, ground[1:], strict=True))


def test_words_are_in_the_middle_and_upright_after_the_rotation() -> None:
    upright = card(video_info(size=(320, 240)), "yuv420p", ["L"])[0]
    turned = card(video_info(size=(240, 320), rotation=90), "yuv420p", ["L"])[0]
    assert np.array_equal(np.rot90(turned, 1), upright)
    rows, columns = np.nonzero(upright > 100)
    assert rows.mean() == pytest.approx(120, abs=8) and columns.mean() == pytest.approx(160, abs=8)


def test_an_address_is_not_shown() -> None:
    """The picture's size is the same whatever the camera's address is, so it can't be on it."""
    address, other = (
        lost_card(video_info(source=Source.parse(text)), "yuv420p")[0] for text in ("rtsp://10.0.0.7/s", "/dev/video3")
    )
    named = lost_card(video_info(source=Source.parse("hall=rtsp://10.0.0.7/s")), "yuv420p")[0]
    assert (address > 100).sum() == pytest.approx((other > 100).sum(), rel=0.1)
    assert not np.array_equal(named, address)


def test_a_batch_gets_the_cards_planes() -> None:
    info = video_info()
    black = card(info, "yuv420p", ["x"])
    frame = Frame(planes=tuple(np.zeros_like(plane) for plane in black), pts=7, duration=1)  # type: ignore[arg-type]
    shown = with_card(FrameBatch(frames=(frame,), index=3), black)
    assert shown.frames[0].planes is black and (shown.frames[0].pts, shown.index) == (7, 3)
