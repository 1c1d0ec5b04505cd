"""NVDEC sessions go from file to file, if their streams are alike, and files share the engines."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from segmentation.stages.decode.nvdec_session_pool import NvdecSessionPool, SessionQuota
from segmentation.stages.decode.stream_format import StreamFormat

LANDSCAPE = StreamFormat(0, "h264", 1920, 1080, "yuv420p", b"\1sets")


class FakeSession:
    def __init__(self, stream_format: StreamFormat) -> None:
        self.format = stream_format
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def fakes(*formats: StreamFormat) -> list[Any]:
    return [FakeSession(stream_format) for stream_format in formats]


def test_a_session_is_lent_once_at_a_time() -> None:
    pool = NvdecSessionPool()
    assert pool.take(LANDSCAPE) is None
    (session,) = fakes(LANDSCAPE)
    pool.give_back(session)
    assert pool.take(LANDSCAPE) is session
    assert pool.take(LANDSCAPE) is None
    assert not session.closed


@pytest.mark.parametrize(
    "other",
    [
        {"device": 1},
        {"codec": "hevc"},
        {"width": 1280},
        {"height": 720},
        {"pix_fmt": "yuv444p"},
        {"extradata": b"\1"},
        {"latency": "zero"},
    ],
)
def test_streams_that_differ_get_other_sessions(other: dict[str, Any]) -> None:
    pool = NvdecSessionPool()
    (session,) = fakes(LANDSCAPE)
    pool.give_back(session)
    assert pool.take(LANDSCAPE._replace(**other)) is None
    assert pool.take(LANDSCAPE) is session


def test_sessions_that_are_idle_longest_are_destroyed() -> None:
    pool = NvdecSessionPool()
    portrait = LANDSCAPE._replace(width=1080, height=1920)
    first = fakes(*[LANDSCAPE] * 7)
    second = fakes(*[portrait] * 7)
    for session in [*first, *second]:
        pool.give_back(session)
    again = [pool.take(LANDSCAPE) for _ in first]
    assert set(again) == set(first)
    for session in [*again, *fakes(*[LANDSCAPE] * 2)]:
        assert session is not None
        pool.give_back(session)
    assert [s.closed for s in [*first, *second]] == [0] * 7 + [1] * 2 + [0] * 5


def test_closing_destroys_what_is_idle_and_the_pool_serves_on() -> None:
    pool = NvdecSessionPool()
    idle, lent = fakes(LANDSCAPE, LANDSCAPE)
    pool.give_back(idle)
    pool.close()
    pool.close()
    assert idle.closed == 1 and pool.take(LANDSCAPE) is None
    pool.give_back(lent)
    assert pool.take(LANDSCAPE) is lent and not lent.closed


def test_files_share_the_engines() -> None:
    pool = NvdecSessionPool()
    sizes = []
    shares = []
    for _ in range(9):
        shares.append(SessionQuota(pool, 7))
        sizes.append(shares[0].size)
    assert sizes == [7, 4, 3, 2, 2, 2, 1, 1, 1]
    for share in shares[:6]:
        share.leave()
        share.leave()
    assert (pool.files, shares[8].size) == (3, 3)


def test_a_file_has_no_more_threads_than_its_share() -> None:
    pool = NvdecSessionPool()
    ours, theirs = SessionQuota(pool, 2), SessionQuota(pool, 2)
    assert ours.begin() and not ours.begin() and not ours.end_surplus()
    theirs.leave()
    assert ours.begin() and not ours.begin()
    SessionQuota(pool, 2)
    assert ours.end_surplus() and not ours.end_surplus()
    ours.end()
    assert ours.begin()


def test_all_files_have_no_more_threads_than_engines_but_one_each() -> None:
    pool = NvdecSessionPool()
    first = SessionQuota(pool, 4)
    assert [first.begin() for _ in range(4)] == [True] * 4
    second = SessionQuota(pool, 4)
    assert second.begin() and not second.begin()
    first.end()
    assert not second.begin()
    first.end()
    assert second.begin() and not second.begin()
    third = SessionQuota(pool, 4)
    assert third.begin() and not third.begin()


def test_of_threads_that_ask_at_once_only_the_surplus_ends() -> None:
    pool = NvdecSessionPool()
    share = SessionQuota(pool, 7)
    assert [share.begin() for _ in range(7)] == [True] * 7
    others = [SessionQuota(pool, 7) for _ in range(6)]
    with ThreadPoolExecutor(7) as threads:
        assert sum(threads.map(lambda _: share.end_surplus(), range(7))) == 6
    for other in others:
        other.leave()
    assert share.begin()


def test_a_file_that_has_left_begins_no_threads() -> None:
    pool = NvdecSessionPool()
    share = SessionQuota(pool, 1)
    share.leave()
    assert not share.begin() and pool.files == 0
