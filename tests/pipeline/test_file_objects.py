"""Bytes and file objects as the input and the output of runs and iterators."""

import io
import sys
from itertools import islice
from pathlib import Path
from pipes import Once
from typing import Any

import pytest
from paths import SAMPLE
from program import run_tool
from quick import NETWORK, segment
from videos import Synthetic, packets, pictures, same_packets, times

from segmentation import ConfigError, InputError, Segmenter
from segmentation.options.keywords import Format


def pixels(path: Path) -> list[bytes]:
    return [b"".join(plane.tobytes() for plane in picture.planes) for picture in pictures(path)]


@pytest.mark.parametrize("kind", ["bytes", "file", "once"])
def test_an_input_that_has_no_name(kind: str, tmp_path: Path) -> None:
    """It comes out as the file does, with sound."""
    segment(SAMPLE, tmp_path / "file.mkv", max_frames=6)
    with SAMPLE.open("rb") as file:
        given = {"bytes": SAMPLE.read_bytes(), "file": file, "once": Once(file)}[kind]
        report = segment(given, tmp_path / "out.mkv", max_frames=6)  # type: ignore[arg-type]
        assert not file.closed
    assert report.frames == 6 and report.complete
    assert pixels(tmp_path / "out.mkv") == pixels(tmp_path / "file.mkv")
    sounds = [packets(tmp_path / name, "audio") for name in ("out.mkv", "file.mkv")]
    assert sounds[0] and same_packets(*sounds)


def test_what_can_be_sought_is_verified_and_sought(tmp_path: Path) -> None:
    report = segment(SAMPLE.read_bytes(), tmp_path / "out.mp4", start=3, max_frames=4, verify=True)
    assert report.verified is not None and report.verified.frames == 4 and len(times(tmp_path / "out.mp4")) == 4


@pytest.mark.parametrize("format", ["matroska", "mpegts", "nut", "y4m"])
def test_an_output_that_has_no_name(format: Format, tmp_path: Path) -> None:
    out = io.BytesIO()
    report = segment(SAMPLE, out, format=format, max_frames=6)
    assert report.output == "<stream>" and not out.closed
    (tmp_path / "out").write_bytes(out.getvalue())
    assert len(times(tmp_path / "out")) == 6


def test_a_raw_file_that_takes_a_part_of_each_write() -> None:
    class Little(io.BytesIO):
        def write(self, data: object) -> int:  # type: ignore[override]
            return super().write(bytes(data)[:100])  # type: ignore[call-overload]

    little, whole = Little(), io.BytesIO()
    for out in (little, whole):
        segment(SAMPLE, out, format="rawvideo", max_frames=2)
    assert little.getvalue() == whole.getvalue() and len(whole.getvalue()) == 2 * 640 * 360 * 3 // 2


class _Breaking(io.RawIOBase):
    """Can't be read beyond `limit`, as what comes over a connection that breaks off."""

    def __init__(self, data: bytes, limit: int) -> None:
        self._data, self._limit = io.BytesIO(data), limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._limit - self._data.tell()
        if not left:
            raise OSError("the connection broke off")
        return self._data.readinto(memoryview(buffer)[:left])


@pytest.mark.slow
def test_frames_before_a_read_that_fails_are_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also those that wait in the decoder's threads, in the order of presentation, behind B-frames."""
    clip = Synthetic(size=(320, 240), codec="libx264", options={"bf": "3"}, pts=range(100)).write(tmp_path / "a.ts")
    data = clip.read_bytes()
    limit = len(data) * 3 // 4
    report = segment(_Breaking(data, limit), tmp_path / "out.mkv", mode="baseline", effect="mask", codec="ffv1")
    (tmp_path / "part.ts").write_bytes(data[:limit])
    assert not report.complete and "reading ended early" in caplog.text
    assert 60 < report.frames <= len(times(tmp_path / "part.ts"))
    # FFmpeg reads ahead in blocks, so that the last block before the failure is lost, and nothing else.
    (tmp_path / "less.ts").write_bytes(data[: limit - (2 << 15)])
    assert report.frames >= len(times(tmp_path / "less.ts"))


def test_an_input_of_which_nothing_can_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^<stream>: cannot be read \(the connection broke off\)$"):
        segment(_Breaking(b"", 0), tmp_path / "out.mkv")


class _Interrupting:
    """A file object that Ctrl-C interrupts, once, when `after` bytes have been read or written."""

    def __init__(self, data: bytes, after: int) -> None:
        self._data, self._after, self._done = io.BytesIO(data), after, 0

    def read(self, size: int) -> bytes:
        self._interrupt()
        data = self._data.read(min(size, 4096))
        self._done += len(data)
        return data

    def write(self, data: bytes) -> int:
        self._interrupt()
        self._done += len(data)
        return len(data)

    def _interrupt(self) -> None:
        if self._after <= self._done:
            self._after = sys.maxsize
            raise KeyboardInterrupt


@pytest.mark.parametrize("after", [0, 5_000, 20_000])
def test_an_interrupt_within_a_read_or_a_write(after: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """PyAV prints what a callback raises unless it is an `Exception`, and goes on: with less than all bytes."""
    clip = Synthetic(codec="libx264", audio="mp2").write(tmp_path / "a.ts")
    given: Any = [_Interrupting(clip.read_bytes(), after) for _ in range(3)]
    with pytest.raises(KeyboardInterrupt):
        segment(given[0], tmp_path / "out.mkv")
    with pytest.raises(KeyboardInterrupt):
        segment(clip, given[1])
    with Segmenter(model=NETWORK) as segmenter, pytest.raises(KeyboardInterrupt):
        list(segmenter.frames(given[2]))
    assert [path.name for path in tmp_path.iterdir()] == ["a.ts"]
    assert "Exception ignored" not in capfd.readouterr().err


def test_an_exception_that_is_its_own_cause(tmp_path: Path) -> None:
    """What is behind it is looked through, and not for ever."""

    def fail(done: int, expected: int) -> None:
        error = RuntimeError("by the caller")
        raise error from error

    with pytest.raises(RuntimeError, match="by the caller"):
        segment(SAMPLE, tmp_path / "out.mp4", max_frames=2, progress=fail)


def test_results_in_an_object_that_has_nothing_but_write(tmp_path: Path) -> None:
    class Lines:
        def __init__(self) -> None:
            self.text = ""

        def write(self, text: str) -> None:
            self.text += text

    lines: Any = Lines()
    segment(SAMPLE, tmp_path / "out.mp4", results=lines, max_frames=3)
    assert len(lines.text.splitlines()) == 3
    of_bytes: Any = io.BytesIO()
    with pytest.raises(ConfigError, match="results: is of type BytesIO; give a file's name, or a file object"):
        segment(SAMPLE, tmp_path / "other.mp4", results=of_bytes)


def test_results_in_a_file_object(tmp_path: Path) -> None:
    lines = io.StringIO()
    segment(SAMPLE, tmp_path / "out.mp4", results=lines, max_frames=3)
    assert len(lines.getvalue().splitlines()) == 3


def test_frames_of_what_has_no_name() -> None:
    with Segmenter(device="cpu") as segmenter, SAMPLE.open("rb") as file:
        named = list(segmenter.frames(SAMPLE, max_frames=4))
        for given in (SAMPLE.read_bytes(), file):
            other = list(segmenter.frames(given, max_frames=4))
            assert [frame.time for frame in other] == [frame.time for frame in named]
            assert all((a.mask == b.mask).all() for a, b in zip(named, other, strict=True))
        file.seek(0)
        frames = segmenter.frames(Once(file))  # type: ignore[arg-type]
        assert len(list(islice(frames, 4))) == 4
        frames.close()


def test_what_is_no_video_and_no_file(tmp_path: Path) -> None:
    text = (tmp_path / "text").open("w+")
    with Segmenter() as segmenter, text:
        with pytest.raises(ConfigError, match="input: is of type TextIOWrapper; give"):
            segmenter.run(text, tmp_path / "a.mp4")  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="output: is of type TextIOWrapper; give"):
            segmenter.run(SAMPLE, text)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="output: name a file"):
            segmenter.run(b"")
        with pytest.raises(InputError, match="<bytes>: "):
            segmenter.run(b"no video", tmp_path / "a.mp4")
        with pytest.raises(ConfigError, match="verify: would read"):
            segmenter.run(Once(SAMPLE.open("rb")), tmp_path / "a.mp4", verify=True)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="follows from its suffix"):
            segmenter.run(SAMPLE, tmp_path / "a.mp4", format="nut")
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_the_sample_program_runs() -> None:
    assert run_tool("samples/file_objects.py", SAMPLE).endswith("bytes of Matroska\n")


@pytest.mark.parametrize(("data", "said"), [(b"", "holds no bytes"), (b"no video", "is not a video that FFmpeg can")])
@pytest.mark.parametrize("given", [io.BytesIO, lambda data: Once(io.BytesIO(data))])
def test_what_holds_nothing_is_told_from_what_is_no_video(given: Any, data: bytes, said: str, tmp_path: Path) -> None:
    """As where the program before a pipe has failed."""
    with pytest.raises(InputError, match=said):
        segment(given(data), tmp_path / "a.mp4")
