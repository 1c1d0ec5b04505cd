"""Sets of NVDEC sessions go from file to file, if their streams are alike."""

from typing import Any

import pytest

from segmentation.stages.decode.nvdec_session_pool import NvdecSessionPool, StreamFormat

LANDSCAPE = StreamFormat(0, "h264", 1920, 1080, "yuv420p", b"\1sets")


class FakeSessions:
    def __init__(self, stream_format: StreamFormat) -> None:
        self.format = stream_format
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def fakes(*formats: StreamFormat) -> list[Any]:
    return [FakeSessions(stream_format) for stream_format in formats]


def test_a_set_is_lent_to_one_file_at_a_time() -> None:
    pool = NvdecSessionPool()
    assert pool.take(LANDSCAPE) is None
    (sessions,) = fakes(LANDSCAPE)
    pool.give_back(sessions)
    assert pool.take(LANDSCAPE) is sessions
    assert pool.take(LANDSCAPE) is None
    assert not sessions.closed


@pytest.mark.parametrize(
    "other",
    [{"device": 1}, {"codec": "hevc"}, {"width": 1280}, {"height": 720}, {"pix_fmt": "yuv444p"}, {"extradata": b"\1"}],
)
def test_streams_that_differ_get_other_sessions(other: dict[str, Any]) -> None:
    pool = NvdecSessionPool()
    (sessions,) = fakes(LANDSCAPE)
    pool.give_back(sessions)
    assert pool.take(LANDSCAPE._replace(**other)) is None
    assert pool.take(LANDSCAPE) is sessions


def test_the_set_that_is_idle_longest_is_destroyed() -> None:
    pool = NvdecSessionPool()
    portrait = LANDSCAPE._replace(width=1080, height=1920)
    first, second, third, fourth = fakes(LANDSCAPE, portrait, LANDSCAPE, portrait)
    pool.give_back(first)
    pool.give_back(second)
    assert pool.take(LANDSCAPE) is first
    pool.give_back(first)
    pool.give_back(third)
    assert [s.closed for s in (first, second, third)] == [0, 1, 0]
    pool.give_back(fourth)
    assert [s.closed for s in (first, third, fourth)] == [1, 0, 0]


def test_closing_destroys_what_is_idle_and_the_pool_serves_on() -> None:
    pool = NvdecSessionPool()
    idle, lent = fakes(LANDSCAPE, LANDSCAPE)
    pool.give_back(idle)
    pool.close()
    pool.close()
    assert idle.closed == 1 and pool.take(LANDSCAPE) is None
    pool.give_back(lent)
    assert pool.take(LANDSCAPE) is lent and not lent.closed
