"""Damaged, cut off and hostile files: a right result or one line, in bounded time and memory, nothing lost silently."""

import random
import struct
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import pytest
from marks import first
from paths import SAMPLE, SHARED
from program import report, start
from quick import cli
from videos import Synthetic, packets, pictures, times

from segmentation.media.opening.probe import probe

FRAMES = 300  # of the video of people
SECONDS, MEGABYTES = 60.0, 1000


def bounded(*arguments: str | Path) -> tuple[int, list[str], int]:
    """(exit code, lines on stderr, peak MiB) of a run that must end in time."""
    peak, deadline = 0, time.monotonic() + SECONDS
    with start(*arguments) as process:
        while process.poll() is None:
            # Not `ru_maxrss`: it begins with what this process had when it forked.
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = max(peak, *(int(line.split()[1]) // 1024 for line in status.splitlines() if "VmHWM" in line), 0)
            if time.monotonic() > deadline:
                process.kill()
            time.sleep(0.01)
        _, stderr = process.communicate()
    assert process.returncode >= 0 and "Traceback" not in stderr, stderr
    return process.returncode, stderr.splitlines(), peak


def check_outcome(source: Path, folder: Path, whole: int) -> None:
    """Either one line and nothing else, or as many frames as can be decoded, and a line that counts the lost ones."""
    target = folder / "out.mp4"
    result = cli("--json", source, "-o", target)
    lines = result.stderr.splitlines()
    if result.returncode not in (0, 4):
        assert result.returncode in (1, 2) and len(lines) == 1 and lines[0].startswith("segmentation: error: ")
        assert not target.exists()
    else:
        done = report(result, complete=result.returncode == 0)
        assert done["frames"] == len(times(target)) > 0
        assert done["complete"] or done["damaged"] or "reading ended early" in result.stderr
        assert not done["complete"] or done["damaged"] <= 0.01 * (done["frames"] + done["damaged"])
        assert done["frames"] + done["damaged"] >= whole
        assert ("damaged or missing" in result.stderr) == (done["damaged"] > 0)
    assert not [p for p in folder.iterdir() if ".part" in p.name]


@pytest.fixture(scope="module")
def index_first(people: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The same streams, without decoding, in an MP4 whose index comes before the media."""
    return remuxed(people, tmp_path_factory.mktemp("first") / "first.mp4", {"movflags": "+faststart"})


@pytest.fixture(scope="module")
def matroska(people: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return remuxed(people, tmp_path_factory.mktemp("mkv") / "whole.mkv", {})


def remuxed(source: Path, target: Path, options: dict[str, str]) -> bytes:
    with av.open(str(source)) as a, av.open(str(target), "w", container_options=options) as b:
        copies = {s.index: b.add_stream_from_template(s, opaque=True) for s in a.streams}
        for packet in a.demux():
            if packet.size:
                packet.stream = copies[packet.stream_index]
                b.mux(packet)
    return target.read_bytes()


@pytest.mark.parametrize("share", first(2, [0.5, 0.99, 0.1, 0.9]))
def test_cut_off(share: float, people: Path, tmp_path: Path) -> None:
    (tmp_path / "in.mp4").write_bytes(people.read_bytes()[: int(people.stat().st_size * share)])
    check_outcome(tmp_path / "in.mp4", tmp_path, FRAMES)


@pytest.mark.parametrize("share", first(1, [0.1, 0.5, 0.9, 0.99]))
def test_cut_off_after_its_index(share: float, index_first: bytes, tmp_path: Path) -> None:
    (tmp_path / "in.mp4").write_bytes(index_first[: int(len(index_first) * share)])
    fast = ("--preset", "ultrafast")
    done = report(cli("--json", *fast, tmp_path / "in.mp4", "-o", tmp_path / "out.mp4"), complete=False)
    assert 0 < done["frames"] < FRAMES and done["frames"] + done["damaged"] >= FRAMES
    strict = cli("--strict", "-q", *fast, tmp_path / "in.mp4", "-o", tmp_path / "strict.mp4")
    assert strict.returncode == 1 and len(strict.stderr.splitlines()) == 1
    assert "are damaged or missing; without --strict" in strict.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.mp4", "out.mp4"]


@pytest.mark.parametrize("share", first(1, [0.1, 0.5, 0.9, 0.97]))
def test_cut_off_matroska(share: float, matroska: bytes, tmp_path: Path) -> None:
    (tmp_path / "in.mkv").write_bytes(matroska[: int(len(matroska) * share)])
    done = report(cli("--json", tmp_path / "in.mkv", "-o", tmp_path / "out.mp4"), complete=False)
    # Matroska has no index of all frames, only a length: B-frames that are lost before the last frame are not known of.
    assert 0 < done["frames"] < FRAMES and done["damaged"] >= max(1, FRAMES - done["frames"] - 6)


@pytest.mark.parametrize("suffix", [".mkv", ".flv"])
def test_cut_off_where_the_container_alone_states_a_length(suffix: str, people: Path, tmp_path: Path) -> None:
    """As other programs write Matroska, and all FLV. Sound may be longer: a fifth of a second is not counted."""
    path = tmp_path / f"in{suffix}"
    data = remuxed(people, path, {}).replace(b"DURATION", b"NONE....")
    path.write_bytes(data)
    assert probe(str(path)).end is None
    path.write_bytes(data[: len(data) // 3])
    done = report(cli("--json", path, "-o", tmp_path / "out.mp4"), complete=False)
    assert 0 < done["frames"] < FRAMES and abs(FRAMES - done["frames"] - done["damaged"]) <= 12


@pytest.mark.parametrize("end", [slice(-4), slice(None)])
def test_an_flv_whose_end_is_unusual_is_whole(end: slice, tmp_path: Path) -> None:
    """Some programs leave out the length of the last tag, or have bytes behind it."""
    path = tmp_path / "in.flv"
    data = remuxed(SAMPLE, path, {})
    path.write_bytes(data[end] + bytes(100 if end.stop is None else 0))
    assert report(cli("--json", path, "-o", tmp_path / "out.mp4"))["complete"]


@pytest.mark.parametrize("seed", first(1, [3, 0, 1, 2, 4, 5]))
def test_flipped_bytes(seed: int, people: Path, tmp_path: Path) -> None:
    dice = random.Random(seed)
    damaged = bytearray(people.read_bytes())
    for _ in range(10 ** (1 + seed % 4)):
        damaged[dice.randrange(len(damaged))] = dice.randrange(256)
    (tmp_path / "in.mp4").write_bytes(damaged)
    check_outcome(tmp_path / "in.mp4", tmp_path, 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", first(3, range(12)))
def test_flipped_bytes_in_the_header(seed: int, index_first: bytes, tmp_path: Path) -> None:
    """Few frames: a lying index may claim any number of them."""
    dice = random.Random(seed)
    size = struct.unpack(">I", index_first[32:36])[0]
    assert index_first[36:40] == b"moov"
    damaged = bytearray(index_first)
    for _ in range(1 + seed % 4 * 10):
        damaged[dice.randrange(40, 32 + size)] = dice.randrange(256)
    (tmp_path / "in.mp4").write_bytes(damaged)
    code, lines, peak = bounded("--max-frames", "20", tmp_path / "in.mp4", "-o", tmp_path / "out.mp4")
    assert code in (0, 4) or (code in (1, 2) and len(lines) == 1), lines
    assert (tmp_path / "out.mp4").exists() == (code in (0, 4))
    assert peak < MEGABYTES


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        (lambda whole: b"", "the file is empty"),
        (lambda whole: b"This is no video, but text.\n" * 100, "is not a video that FFmpeg can read"),
        (lambda whole: whole[:32], "is not a video"),
        (lambda whole: whole[: whole.rfind(b"moov") - 4], "is not a video"),
        (lambda whole: bytes(100_000), "is not a video"),
        (lambda whole: random.Random(1).randbytes(100_000), "is not a video"),
        (lambda whole: b"ffconcat version 1.0\nfile secret.mp4\n", ""),
    ],
    ids=["empty", "text", "header", "no index", "zeros", "noise", "playlist"],
)
def test_not_a_video(content: Callable[[bytes], bytes], fragment: str, people: Path, tmp_path: Path) -> None:
    (tmp_path / "in.mp4").write_bytes(content(people.read_bytes()))
    result = cli(tmp_path / "in.mp4", "-o", tmp_path / "out.mp4")
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1 and fragment in result.stderr and "in.mp4" in result.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["in.mp4"]


def huge_vp8(folder: Path) -> Path:
    """A keyframe that claims 16383x16383 pixels, in a file that claims 64x48."""
    whole = Synthetic(codec="libvpx", pts=range(3)).write(folder / "whole.webm").read_bytes()
    place = whole.find(b"\x9d\x01\x2a")
    assert place > 0
    (folder / "in.webm").write_bytes(whole[: place + 3] + struct.pack("<HH", 16383, 16383) + whole[place + 7 :])
    return folder / "in.webm"


def huge_boxes(folder: Path) -> Path:
    """A movie whose sample description claims 32000x32000 pixels; its codec has no other word on it."""
    whole = bytearray(Synthetic(codec="qtrle", pix_fmt="rgb24", pts=range(3)).write(folder / "whole.mov").read_bytes())
    place = whole.find(b"rle ")
    assert whole[place + 28 : place + 32] == struct.pack(">HH", 64, 48)
    whole[place + 28 : place + 32] = struct.pack(">HH", 32000, 32000)
    (folder / "in.mov").write_bytes(whole)
    return folder / "in.mov"


def huge_png(folder: Path) -> Path:
    """A picture that claims 60000x60000 pixels in a movie that claims 64x48."""
    whole = bytearray(Synthetic(codec="png", pix_fmt="rgb24", pts=range(3)).write(folder / "whole.mov").read_bytes())
    place = -1
    while (place := whole.find(b"IHDR", place + 1)) >= 0:
        whole[place + 4 : place + 12] = struct.pack(">II", 60000, 60000)
    (folder / "in.mov").write_bytes(whole)
    return folder / "in.mov"


@pytest.mark.slow
@pytest.mark.parametrize("make", first(2, [huge_vp8, huge_boxes, huge_png]))
def test_huge_claims_take_no_memory(make: Callable[[Path], Path], tmp_path: Path) -> None:
    source = make(tmp_path)
    before = {p.name for p in tmp_path.iterdir()}
    _, _, ordinary = bounded(tmp_path / f"whole{source.suffix}", "-o", tmp_path / "ordinary.mp4")
    (tmp_path / "ordinary.mp4").unlink()
    code, lines, peak = bounded(source, "-o", tmp_path / "out.mp4")
    assert code == 1 and len(lines) == 1, lines
    assert {p.name for p in tmp_path.iterdir()} == before
    assert peak < ordinary + 100


def test_decoder_errors_in_the_middle_cost_their_frames_only(tmp_path: Path) -> None:
    """Every frame of MJPEG stands alone: without packets 10 to 12 the others come out, each at its own time."""
    whole = Synthetic(codec="mjpeg", pix_fmt="yuvj420p", pts=range(25)).write(tmp_path / "whole.mkv")
    for name in ("in.mkv", "in.avi"):
        spoil(whole, tmp_path / name, range(10, 13))
        result = cli("--json", tmp_path / name, "-o", tmp_path / f"{name}.mp4")
        done = report(result, complete=False)
        assert (done["frames"], done["damaged"]) == (22, 3)
        assert "3 frames are damaged or missing, 22 were written" in result.stderr
        assert times(tmp_path / f"{name}.mp4") == [Fraction(n, 25) for n in range(25) if not 10 <= n < 13]


@pytest.mark.parametrize("b_frames", [0, 2])
def test_a_cut_off_avi_counts_all_that_is_missing(b_frames: int, tmp_path: Path) -> None:
    """FFmpeg shortens the length by the share of the bytes that is missing."""
    options = {"bf": str(b_frames), "g": "200"}
    whole = Synthetic(codec="mpeg4", pts=range(100), options=options).write(tmp_path / "whole.avi").read_bytes()
    (tmp_path / "in.avi").write_bytes(whole[: len(whole) // 2])
    done = report(cli("--json", tmp_path / "in.avi", "-o", tmp_path / "out.mp4"), complete=False)
    assert 97 <= done["frames"] + done["damaged"] <= 100 and done["damaged"] > 20


def spoil(whole: Path, target: Path, numbers: range) -> None:
    """A copy in which some packets hold nothing that can be decoded."""
    with av.open(str(whole)) as a, av.open(str(target), "w") as b:
        copy = b.add_stream_from_template(a.streams[0], opaque=True)
        for number, packet in enumerate(p for p in a.demux() if p.size):
            other = av.Packet(b"\xff" * 200) if number in numbers else packet
            other.stream = copy
            other.pts, other.dts, other.time_base = packet.pts, packet.dts, packet.time_base
            other.duration, other.is_keyframe = packet.duration, True
            b.mux(other)


def test_size_that_changes_on_the_way(tmp_path: Path) -> None:
    one = Synthetic(codec="mjpeg", pix_fmt="yuvj420p", pts=range(5), size=(64, 48)).write(tmp_path / "one.mkv")
    two = Synthetic(codec="mjpeg", pix_fmt="yuvj420p", pts=range(5), size=(96, 80)).write(tmp_path / "two.mkv")
    with av.open(str(one)) as a, av.open(str(two)) as b, av.open(str(tmp_path / "in.mkv"), "w") as c:
        copy = c.add_stream_from_template(a.streams[0], opaque=True)
        for number, packet in enumerate(p for source in (a, b) for p in source.demux() if p.size):
            packet.stream = copy
            packet.pts = packet.dts = number * 40
            c.mux(packet)
    result = cli(tmp_path / "in.mkv", "-o", tmp_path / "out.mp4")
    assert result.returncode == 0
    assert "changes to 96x80 on the way; kept at 64x48" in result.stderr
    assert [(p.frame.width, p.time) for p in pictures(tmp_path / "out.mp4")] == [
        (64, Fraction(n, 25)) for n in range(10)
    ]


@pytest.mark.parametrize(
    ("codec", "format"),
    first(2, [("libx264", "h264"), ("mpeg2video", "mpeg"), ("gif", "gif"), ("libvpx-vp9", "ivf"), ("libx264", "flv"),
              ("mpeg2video", "mpeg2video"), ("mjpeg", "mjpeg"), ("libx264", "mpegts"), ("libx264", "avi"),
              ("libx265", "hevc")]),
)  # fmt: skip
def test_sound_files_of_vague_containers_are_not_called_damaged(codec: str, format: str, tmp_path: Path) -> None:
    pix_fmt = {"gif": "rgb8", "mjpeg": "yuvj420p"}.get(codec, "yuv420p")
    video = Synthetic(codec=codec, format=format, size=(128, 96), pts=range(60), pix_fmt=pix_fmt)
    source = video.write(tmp_path / f"in.{format}")
    done = report(cli("--json", source, "-o", tmp_path / "out.mp4"))
    assert (done["frames"], done["damaged"]) == (60, 0)


def test_damaged_sound_does_not_stop_the_video(tmp_path: Path) -> None:
    """An audio stream that breaks off: what there is of it is kept."""
    whole = Synthetic(codec="libx264", audio="aac", pts=range(100)).write(tmp_path / "whole.mkv").read_bytes()
    place = len(whole) // 2
    (tmp_path / "in.mkv").write_bytes(whole[:place] + bytes(600) + whole[place + 600 :])
    check_outcome(tmp_path / "in.mkv", tmp_path, 90)


@pytest.mark.parametrize("suffix", first(2, ["mkv", "mp4", "webm", "ts"]))
def test_a_video_that_begins_late_lacks_nothing(suffix: str, tmp_path: Path) -> None:
    """Matroska states its length from zero on."""
    codec = "libvpx-vp9" if suffix == "webm" else "libx264"
    path = Synthetic(codec=codec, pts=range(30), clock=2.0).write(tmp_path / f"in.{suffix}")
    done = report(cli("--json", path, "-o", tmp_path / "out.mkv"))
    assert (done["frames"], done["damaged"]) == (30, 0)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("avcc-short-4.mp4", "the parameters of its h264 video (4 bytes) are damaged or cut off"),
        ("hvcc-short-10.mp4", "the parameters of its hevc video (10 bytes) are damaged or cut off"),
        ("rateslow.y4m", "states 1e-06 frames a second; at least 1e-05 are possible"),
    ],
)
def test_what_ended_the_command_is_one_line(name: str, said: str, tmp_path: Path) -> None:
    """The other input of the command is done."""
    source = SHARED / "faults" / name
    if not source.is_file():
        pytest.skip("../shared/faults is not here")
    done = cli(source, SAMPLE, "-o", tmp_path, "--verify", "--effect", "mask", "--max-frames", 40)
    errors = [line for line in done.stderr.splitlines() if "error: " in line]
    assert done.returncode == 1 and len(errors) == 1 and source.stem in errors[0] and said in errors[0], done.stderr
    assert "1 done, 1 failed" in done.stderr and len(times(tmp_path / f"{SAMPLE.stem}.segmented.mp4")) == 40


@pytest.mark.slow
@pytest.mark.parametrize("rate", ["1:1000000", "1:100001", "0:1", "1:0", "4294967295:1", "1:4294967295"])
def test_rates_that_can_not_be(rate: str, tmp_path: Path) -> None:
    data = Synthetic(codec="rawvideo", format="yuv4mpegpipe", pts=range(3)).write(tmp_path / "a.y4m").read_bytes()
    assert b" F25:1 " in data
    (tmp_path / "in.y4m").write_bytes(data.replace(b" F25:1 ", f" F{rate} ".encode(), 1))
    check_outcome(tmp_path / "in.y4m", tmp_path, 0)


def test_sound_that_states_no_channel_is_copied(tmp_path: Path) -> None:
    """As FFmpeg's own program does. A header states the channels of AAC twice, and here not at all."""
    whole = bytearray(Synthetic(codec="libx264", audio="aac").write(tmp_path / "in.mp4").read_bytes())
    at = whole.find(b"mp4a")
    whole[at + 20 : at + 22] = bytes(2)
    at = whole.find(b"\x05\x80\x80\x80\x05", at)  # AudioSpecificConfig, ISO/IEC 14496-3, 1.6.2.1
    whole[at + 6] &= 0x87
    (tmp_path / "in.mp4").write_bytes(whole)
    done = report(cli("--json", "--effect", "mask", tmp_path / "in.mp4", "-o", tmp_path / "out.mp4"))
    assert done["frames"] == 25 and len(packets(tmp_path / "out.mp4", "audio")) == len(
        packets(tmp_path / "in.mp4", "audio")
    )
