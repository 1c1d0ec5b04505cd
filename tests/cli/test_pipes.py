"""Pipes: standard input and output, and named pipes, of real processes."""

import json
import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from pipes import COMMAND, ENVIRONMENT, piped

import av
import pytest
from marks import first
from paths import ROOT, SAMPLE
from program import TIMEOUT
from quick import cli
from videos import Synthetic, packets, pictures, same_packets, times

FEW = ("--max-frames", "12", "-q")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first frames of the sample, written to a file."""
    path = tmp_path_factory.mktemp("expected") / "out.mkv"
    assert cli(SAMPLE, "-o", path, *FEW).returncode == 0
    return path


def frames(path: Path) -> list[bytes]:
    return [b"".join(plane.tobytes() for plane in picture.planes) for picture in pictures(path)]


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_from_pipe_to_pipe(name: str, tmp_path: Path, expected: Path) -> None:
    done = piped(SAMPLE, name, "-o", "-", *FEW)
    assert (done.returncode, done.stderr) == (0, b"")
    out = tmp_path / "out.mkv"
    out.write_bytes(done.stdout)
    assert frames(out) == frames(expected) and times(out) == times(expected)
    assert same_packets(packets(out, "audio"), packets(expected, "audio"))


@pytest.mark.parametrize("container", first(1, ["matroska", "y4m", "mpegts", "nut"]))
def test_each_format_comes_in_and_goes_out(container: str, tmp_path: Path, expected: Path) -> None:
    made = piped(SAMPLE, "-", "-o", "-", "--format", container, *FEW)
    assert made.returncode == 0
    (tmp_path / "made").write_bytes(made.stdout)
    assert len(times(tmp_path / "made")) == 12
    again = piped(tmp_path / "made", "-", "-o", tmp_path / "again.mkv", "-q")
    assert again.returncode == 0 and len(times(tmp_path / "again.mkv")) == 12
    if container == "y4m":
        with av.open(str(tmp_path / "made")) as video:
            assert [stream.type for stream in video.streams] == ["video"]


@pytest.mark.parametrize(("container", "streams"), first(1, [("mpegts", 2), ("nut", 2), ("matroska", 1)]))
def test_sound_without_a_header(container: str, streams: int, tmp_path: Path) -> None:
    """MPEG-TS has AAC without one. Matroska in a file gets it afterwards; in a pipe the loss is named."""
    made = piped(SAMPLE, "-", "-o", "-", "--format", "mpegts", *FEW)
    (tmp_path / "in.ts").write_bytes(made.stdout)
    done = piped(tmp_path / "in.ts", "-", "-o", "-", "--format", container)
    line = b"stream 1 (audio aac) is left out: matroska in a pipe can't hold it; --format mpegts can\n"
    assert (line in done.stderr) == (b"left out" in done.stderr) == (streams == 1)
    (tmp_path / "out").write_bytes(done.stdout)
    with av.open(str(tmp_path / "out")) as video:
        assert len(video.streams) == streams


def test_raw_video_is_the_planes_alone() -> None:
    done = piped(SAMPLE, "-", "-o", "-", "--format", "rawvideo", *FEW)
    assert done.returncode == 0 and len(done.stdout) == 12 * 640 * 360 * 3 // 2


def test_ten_bits_in_y4m(tmp_path: Path) -> None:
    source = Synthetic(codec="ffv1", pix_fmt="yuv420p10le", pts=range(5)).write(tmp_path / "in.mkv")
    done = piped(source, "-", "-o", "-", "--format", "y4m", "-q")
    assert done.returncode == 0 and b"420p10" in done.stdout[:100]


def test_y4m_states_the_rate_of_frames(tmp_path: Path) -> None:
    """Not the ticks of the input's clock, by which another program would play them in a moment."""
    source = Synthetic(pts=(0, 1, 2, 11, 12, 13), time_base=Fraction(1, 15), audio="aac").write(tmp_path / "in.mkv")
    target = tmp_path / "out.y4m"
    target.write_bytes(piped(source, "-", "-o", "-", "--format", "y4m", "-q").stdout)
    with av.open(str(target)) as video:
        rate = video.streams.video[0].average_rate
    assert rate is not None and 1 <= rate <= 15
    assert times(target) == [n / rate for n in range(6)]


def test_a_file_led_to_standard_input_can_be_sought(tmp_path: Path) -> None:
    out = tmp_path / "out.mkv"
    line = [*COMMAND, "-", "-o", str(out), "--verify", "--start", "2", "--max-frames", "5", "-q"]
    with SAMPLE.open("rb") as file:
        assert subprocess.run(line, stdin=file, cwd=ROOT, env=ENVIRONMENT, timeout=TIMEOUT).returncode == 0
    assert len(times(out)) == 5


@pytest.mark.parametrize("name", ["-", "/dev/stdin", "in.mp4"])
def test_the_plan_of_what_a_pipe_brings(name: str, tmp_path: Path) -> None:
    """Its stages are those of the video in it, and the pipe is read no further."""
    source, stages = (
        (tmp_path / name if name == "in.mp4" else Path(name)),
        ("--plan", "--effect", "cutout", "-o", tmp_path / "out.webm"),
    )
    if name == "in.mp4":
        os.mkfifo(source)
        writer = threading.Thread(target=_fill, args=[source])
        writer.start()
    done, of_file = (piped(SAMPLE, given, *stages) for given in (source, SAMPLE))
    assert done.returncode == 0 and done.stdout.splitlines()[2:] == of_file.stdout.splitlines()[2:], done.stderr
    if name == "in.mp4":
        writer.join()


def _fill(pipe: Path) -> None:
    with suppress(BrokenPipeError):
        pipe.write_bytes(SAMPLE.read_bytes())


@pytest.mark.slow
def test_a_stretch_of_a_pipe(tmp_path: Path) -> None:
    outs = [tmp_path / "file.mkv", tmp_path / "pipe.mkv"]
    stretch = ("--start", "1", "--duration", "1", "-q")
    assert cli(SAMPLE, "-o", outs[0], *stretch).returncode == 0
    assert piped(SAMPLE, "-", "-o", outs[1], *stretch).returncode == 0
    assert frames(outs[0]) == frames(outs[1])
    assert same_packets(packets(outs[1], "audio"), packets(outs[0], "audio"))


def test_named_pipes(tmp_path: Path, expected: Path) -> None:
    source, target, lines = tmp_path / "in", tmp_path / "out", tmp_path / "lines"
    for pipe in (source, target, lines):
        os.mkfifo(pipe)
    read: dict[Path, bytes] = {}
    threads = [threading.Thread(target=lambda p=p: read.update({p: p.read_bytes()})) for p in (target, lines)]
    threads.append(threading.Thread(target=lambda: _write(source, SAMPLE.read_bytes())))
    for thread in threads:
        thread.start()
    assert cli(source, "-o", target, "--results", lines, *FEW).returncode == 0
    for thread in threads:
        thread.join(TIMEOUT)
    (tmp_path / "out.mkv").write_bytes(read[target])
    assert frames(tmp_path / "out.mkv") == frames(expected)
    assert [json.loads(line)["index"] for line in read[lines].splitlines()] == list(range(12))


def _write(path: Path, data: bytes) -> None:
    with suppress(BrokenPipeError):  # the program needs no more
        path.write_bytes(data)


def test_results_on_standard_output(tmp_path: Path) -> None:
    done = piped(SAMPLE, "-", "-o", tmp_path / "out.mkv", "--results", "-", *FEW)
    assert [json.loads(line)["index"] for line in done.stdout.splitlines()] == list(range(12))


def test_several_outputs_of_a_pipe(tmp_path: Path) -> None:
    done = piped(SAMPLE, "-", "-o", "-", "--also", f"mask:{tmp_path / 'mask.mkv'}", *FEW)
    (tmp_path / "out.mkv").write_bytes(done.stdout)
    sounds = [packets(tmp_path / name, "audio") for name in ("out.mkv", "mask.mkv")]
    assert len(sounds[0]) > 10 and same_packets(*sounds)


@pytest.mark.parametrize("arguments", [("-o", "-"), ("-o", "{}/out.mkv", "--results", "-")])
def test_a_reader_that_has_enough(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Quiet, and without a file that looks complete."""
    given = [argument.format(tmp_path) for argument in arguments]
    done = piped(None, str(SAMPLE), *given, "-q", command="head -c 1000 | wc -c")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (141, b"1000", b"")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["-", "-o", "-", "--json"], "--json: standard output is taken by -o -"),
        (["-", "-o", "-", "--results", "-"], "--results -: standard output is taken"),
        (["-", "-o", "a.mkv", "--results", "-", "--json"], "--json: standard output is taken by --results -"),
        (["-", "-o", "-", "--also", "mask:-"], "--also -: only -o and --results"),
        (["-", "-o", "-", "--verify"], "verify: "),
        (["-", "-o", "a.mkv", "--format", "nut"], "is for pipes"),
        (["-", "--format", "nut"], "is for pipes"),
        (["-", "-o", "-", "--format", "y4m", "--codec", "hevc"], "leave out --codec"),
        (["-", str(SAMPLE), "-o", "-"], "several inputs"),
    ],
)
def test_what_a_pipe_cannot_be(arguments: list[str], hint: str) -> None:
    """Said before anything is read."""
    done = cli(*arguments)
    assert done.returncode in (1, 2) and done.stdout == ""
    assert hint in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["-", "-o", "a.mkv", "--verify"], "verify: would read <stdin> a second time"),
        (["-", "-o", "-", "--format", "mpegts", "--codec", "av1"], "mpegts holds h264 and hevc"),
        (["-", "-o", "-", "--format", "mpegts", "--effect", "cutout"], "can't hold a cutout's alpha"),
    ],
)
def test_what_a_pipe_cannot_be_for_its_video(arguments: list[str], hint: str) -> None:
    done = piped(SAMPLE, *arguments)
    assert done.returncode in (1, 2) and done.stdout == b""
    assert hint in done.stderr.decode() and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("content", [b"", b"no video at all" * 1000])
def test_no_video_in_a_pipe(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(content)
    done = piped(tmp_path / "in", "-", "-o", "-")
    assert done.returncode == 1 and done.stderr.startswith(b"segmentation: error: <stdin>: ")
    assert len(done.stderr.splitlines()) == 1


def test_an_index_at_the_end_is_named(tmp_path: Path) -> None:
    source = Synthetic(codec="libx264", size=(320, 240), pts=range(50)).write(tmp_path / "in.mp4")
    done = piped(source, "-", "-o", "-")
    assert done.returncode == 1 and b"+faststart" in done.stderr and len(done.stderr.splitlines()) == 1


class Live:
    """A program that gets frames one by one, at no other time than the test says."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "-", "-o", "-", "--format", "y4m", *arguments],
            cwd=ROOT,
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdin is not None
        self.input = self.process.stdin
        self.read = 0
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        assert self.process.stdout is not None
        while data := os.read(self.process.stdout.fileno(), 1 << 16):
            self.read += len(data)

    def send(self, frames: int) -> None:
        self.input.write((b"FRAME\n" + bytes(64 * 48 * 3 // 2)) * frames)
        self.input.flush()

    def until(self, frames: int) -> None:
        deadline = time.monotonic() + TIMEOUT
        while self.read < frames * 64 * 48 * 3 // 2:
            assert self.process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)


def test_frames_come_out_as_they_come_in() -> None:
    """And a signal ends a run whose input has stalled."""
    live = Live("-q")
    with live.process:
        live.input.write(b"YUV4MPEG2 W64 H48 F25:1 Ip A1:1 C420jpeg\n")
        live.send(100)
        live.until(80)
        live.process.send_signal(signal.SIGINT)
        assert live.process.wait(240) == 130


@pytest.mark.slow
def test_memory_stays_flat() -> None:
    """1,500 frames of raw video are 7 MiB; the pipe keeps no more than the last few of them."""
    live = Live("-q", "--smooth", "0", "--no-refine")
    memory = []
    with live.process:
        live.input.write(b"YUV4MPEG2 W64 H48 F25:1 Ip A1:1 C420jpeg\n")
        for count in range(300, 1501, 300):
            live.send(300)
            live.until(count - 40)
            status = Path(f"/proc/{live.process.pid}/status").read_text()
            memory.append(int(status.split("VmRSS:")[1].split()[0]) // 1024)
        live.input.close()
        assert live.process.wait(TIMEOUT) == 0
    assert memory[-1] - memory[0] < 3, memory
