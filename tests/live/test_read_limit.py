"""Reads of live sources end in time, whatever comes meanwhile but packets, and take no GIL for looking at the clock."""

import threading
import time
from collections.abc import Iterator
from io import BytesIO

import av
import av.error
import pytest
from rtsp_server import RtspServer

from segmentation.frames.source import Source
from segmentation.live import read_limit
from segmentation.live.address import connect
from segmentation.system.access import Access

PACKETS = 30


@pytest.fixture
def busy() -> Iterator[RtspServer]:
    """A camera whose frames take several packets each."""
    with RtspServer(payload=50) as made:
        yield made


def looks_at_the_clock(camera: RtspServer, monkeypatch: pytest.MonkeyPatch) -> int:
    """Returns how often the reading thread looks at Python's clock while it reads some packets."""
    reader, seen, clock = threading.get_ident(), [0], time.monotonic

    def count() -> float:
        seen[0] += threading.get_ident() == reader
        return clock()

    with connect(Source.parse(camera.url()), Access()) as container, monkeypatch.context() as patched:
        packets = container.demux()
        next(packets)
        patched.setattr(time, "monotonic", count)
        for _ in range(PACKETS):
            next(packets)
    return seen[0]


def test_reading_does_not_take_the_gil_for_looking_at_the_clock(
    busy: RtspServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert looks_at_the_clock(busy, monkeypatch) == PACKETS
    monkeypatch.setattr(read_limit, "_place", lambda: None)  # as with a PyAV whose limit is not found
    assert looks_at_the_clock(busy, monkeypatch) > 5 * PACKETS


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("reporting", [True, False])
def test_silence_ends_a_read(known: bool, reporting: bool, camera: RtspServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a camera goes on with reports (RTCP), which FFmpeg does not hand out."""
    if not known:
        monkeypatch.setattr(read_limit, "_place", lambda: None)
    camera.reporting = reporting
    with connect(Source.parse(camera.url()), Access(stall=0.5)) as container:
        packets = container.demux()
        next(packets)
        camera.silent.set()
        with pytest.raises((av.error.ExitError, OSError)):
            for _ in packets:
                pass


def test_a_limit_is_found_in_this_pyav() -> None:
    assert read_limit._place() is not None


def test_a_lack_of_threads_leaves_nothing_of_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else no later read would end, and the memory of a container that is gone would be written."""
    watch = read_limit._ReadWatch()
    monkeypatch.setattr(read_limit, "_watch", watch)

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with av.open(BytesIO(bytes(64)), "r", format="u8", timeout=read_limit.limits(1.0)) as container:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", fail)
            with pytest.raises(RuntimeError), read_limit.read_limit(container, 1.0):
                pass
        assert not watch._limits
        with read_limit.read_limit(container, 1.0):
            assert watch._thread is not None and watch._thread.is_alive()
