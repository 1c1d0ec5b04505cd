"""A pipe is decoded as it comes."""

import io
from pathlib import Path

import pytest
import quick
from paths import SAMPLE

from segmentation.frames.byte_source import PipeSource


class Pipe(io.RawIOBase):
    """A file's bytes, in their order alone."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:
        return self._file.readinto(buffer)


def test_a_stretch_of_a_pipe_opens_it_no_more_often_than_it_keeps_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, times = PipeSource.open, []

    def count(source: PipeSource) -> io.RawIOBase:
        times.append(source)
        return opened(source)

    monkeypatch.setattr(PipeSource, "open", count)
    with Pipe(SAMPLE) as pipe:
        report = quick.segment(pipe, tmp_path / "out.mkv", start=2, max_frames=3)
    assert report.frames == 3
    assert len(times) == 3  # to describe it, to decode it, and for its sound
