"""Nothing is lost: what lies in the way stays, what fails leaves nothing, what is stopped is playable."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import av
import pytest
from marks import first
from paths import SAMPLE
from program import TIMEOUT, file_limit, report, running, start
from quick import cli, segment
from videos import Synthetic, packets, same_packets, same_times, times, video_info

from segmentation import Config, OutputError
from segmentation.flow import trace
from segmentation.frames import VideoInfo
from segmentation.media import muxer
from segmentation.media.pictures import picture_sequence
from segmentation.pipeline.planning.implementations import IMPLEMENTATIONS, Implementation
from segmentation.pipeline.result_files import results
from segmentation.stages.decode.pyav import PyAVDecoder
from segmentation.stages.encode.pyav import PyAVEncoder
from segmentation.stages.inference.onnxruntime import OnnxRuntimeInference
from segmentation.stages.masks import saved
from segmentation.stages.postprocess.opencv import OpenCVPostprocessor
from segmentation.stages.preprocess.opencv import OpenCVPreprocessor
from segmentation.system import atomic_file


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    """A short video in a folder of its own."""
    made = Synthetic(codec="libx264", pix_fmt="yuv420p10le", pts=range(30), size=(200, 200))
    return made.write(tmp_path / "clip.mp4")


def fails(result: subprocess.CompletedProcess[str], fragment: str, code: int = 1) -> None:
    """One line, which says what is wrong."""
    assert result.returncode == code and result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if "is kept; some players" not in line]
    assert len(lines) == 1 and lines[0].startswith("segmentation: error: "), result.stderr
    assert fragment in lines[0]


def names(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()}


def test_an_existing_file_stays(clip: Path) -> None:
    target = clip.with_name("out.mp4")
    target.write_text("precious")
    fails(
        cli(clip, "-o", target),
        "exists already; use -y (overwrite=True) to replace it, or -o to name another, or --skip",
    )
    assert target.read_text() == "precious" and names(clip.parent) == {"clip.mp4", "out.mp4"}
    assert cli(clip, "-y", "-o", target).returncode == 0
    assert len(times(target)) == 30


def test_a_failed_overwrite_leaves_the_old_file(clip: Path) -> None:
    target = clip.with_name("out.mp4")
    target.write_text("precious")
    clip.write_bytes(b"not a video at all" * 100)
    fails(cli(clip, "-y", "-o", target), "is not a video")
    assert target.read_text() == "precious" and names(clip.parent) == {"clip.mp4", "out.mp4"}


def test_a_file_that_comes_into_being_meanwhile_stays(clip: Path) -> None:
    target = clip.with_name("out.mp4")
    with pytest.raises(OutputError, match=r"came into being in the meantime; what this run has written is .*partial"):
        segment(clip, target, progress=lambda done, expected: target.write_text("precious") and None)
    kept = target.with_suffix(".partial.mp4")
    assert target.read_text() == "precious" and names(clip.parent) == {"clip.mp4", "out.mp4", kept.name}
    whole = segment(clip, clip.with_name("whole.mp4")).output
    assert whole is not None and kept.read_bytes() == Path(whole).read_bytes()


@pytest.mark.parametrize("link", [None, os.symlink, os.link], ids=["itself", "symlink", "hard link"])
@pytest.mark.parametrize("overwrite", first(1, [[], ["-y"]]), ids=["", "-y"])
def test_never_over_its_own_input(link: Callable[..., None] | None, overwrite: list[str], clip: Path) -> None:
    content, target = clip.read_bytes(), clip
    if link is not None:
        target = clip.with_name("other.mp4")
        link(clip, target)
    fails(cli(*overwrite, clip, "-o", target), "is the input itself", code=2)
    fails(cli(*overwrite, target, "-o", clip), "is the input itself", code=2)
    assert clip.read_bytes() == content


def test_a_dangling_link_is_not_replaced(clip: Path) -> None:
    target = clip.with_name("out.mp4")
    target.symlink_to("nowhere.mp4")
    fails(cli(clip, "-o", target), "exists already")
    assert target.is_symlink()


def test_temporaries_of_a_killed_run_do_not_matter(clip: Path) -> None:
    """Even one of this very process, whose id comes again in containers."""
    seen: list[str] = []
    for name in ("one.mp4", "two.mp4"):
        segment(clip, clip.with_name(name), max_frames=3, progress=lambda *_: seen.extend(names(clip.parent)))
        for part in {n for n in seen if ".part" in n}:
            (clip.parent / part.replace("one", "two")).write_text("left behind")
    assert len(times(clip.with_name("two.mp4"))) == 3


def test_the_longest_name(clip: Path) -> None:
    target = clip.with_name("n" * 251 + ".mp4")
    assert segment(clip, target, max_frames=3).frames == 3
    assert names(clip.parent) == {"clip.mp4", target.name}


def test_no_such_folder(clip: Path) -> None:
    fails(cli(clip, "-o", clip.parent / "none" / "out.mp4"), "none does not exist")
    fails(cli(clip, "-o", clip / "out.mp4"), "does not exist")  # a file is no folder
    assert names(clip.parent) == {"clip.mp4"}


def test_read_only_folder(clip: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root writes into read-only folders")
    clip.parent.chmod(0o555)
    try:
        fails(cli(clip, "-o", clip.with_name("out.mp4")), "cannot be written (Permission denied)")
    finally:
        clip.parent.chmod(0o755)
    assert names(clip.parent) == {"clip.mp4"}


def test_a_folder_that_takes_no_files(clip: Path) -> None:
    folder = Path("/proc/self")  # not even root creates files there
    if not folder.is_dir():
        pytest.skip("there is no /proc here")
    fails(cli(clip, "-o", folder / "out.mp4"), "is a device or a link to one")


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0, 3_000, 100_000])
@pytest.mark.parametrize("suffix", first(1, [".mp4", ".mkv"]))
def test_full_disk(limit: int, suffix: str, people: Path, tmp_path: Path) -> None:
    arguments = (people, "--max-frames", "60", "--quality", "high", "-o", tmp_path / f"out{suffix}")
    with start(*arguments, before=file_limit(limit)) as process:
        stdout, stderr = process.communicate(timeout=TIMEOUT)
    fails(subprocess.CompletedProcess([], process.returncode, stdout, stderr), "cannot be written (")
    assert not names(tmp_path)


@pytest.mark.parametrize(
    ("name", "options", "fragment"),
    [
        ("out", (), "has no suffix; name a file such as out.mp4, or a folder, out/"),
        ("out.y4m", (), ".y4m files can't hold h264; mp4 and mkv hold it"),
        ("out.ogv", (), ".ogv files can't hold h264; mp4 and mkv hold it"),
        ("out.gxf", ("--codec", "hevc"), ".gxf files can't hold hevc; mp4 and mkv hold it"),
        (".mp4", (), "has no suffix; name a file such as .mp4.mp4, or a folder, .mp4/"),
        ("out.xyz", (), "FFmpeg knows no container for .xyz; name a file such as out.mp4"),
        ("out.txt", (), "FFmpeg knows no container for .txt; name a file such as out.mp4"),
        (
            "out.m3u8",
            (),
            "out.m3u8: a .m3u8 comes with further files, which are not written; name a file such as out.mp4",
        ),
        ("out.mpd", (), "out.mpd: a .mpd comes with further files, which are not written; name a file such as out.mp4"),
        ("out.wav", (), "can't hold h264; mp4 and mkv hold it"),
        ("out.webm", ("--codec", "h264"), "can't hold h264; mp4 and mkv hold it"),
        ("out.webm", ("--codec", "ffv1"), "can't hold ffv1; mkv holds it"),
        ("out.tiff", (), "pictures are written as .png, .jpg, .jpeg or .webp"),
    ],
)
def test_unwritable_container(name: str, options: tuple[str, ...], fragment: str, clip: Path) -> None:
    fails(cli(*options, clip, "-o", clip.with_name(name)), fragment)
    assert names(clip.parent) == {"clip.mp4"}


@pytest.mark.parametrize(
    ("suffix", "options", "fragment"),
    [
        (".webm", ("--quality", "60", "--preset", "12"), None),
        (".mp4", ("--quality", "60"), "quality 60: h264 takes 0 (best) to 51"),
        (".mp4", ("--preset", "12"), "preset '12' is unknown for h264"),
        (".webm", ("--preset", "fast"), "preset 'fast' is unknown for av1"),
    ],
)
def test_the_suffix_decides_what_a_codec_takes(
    suffix: str, options: tuple[str, ...], fragment: str | None, tmp_path: Path
) -> None:
    done = cli(SAMPLE, "-o", tmp_path / f"a{suffix}", "--max-frames", "3", *options)
    assert done.returncode == (0 if fragment is None else 2) and (fragment or "") in done.stderr
    assert names(tmp_path) == ({"a.webm"} if fragment is None else set())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("suffix", [".mp4", pytest.param(".mkv", marks=pytest.mark.slow)])
def test_a_signal_leaves_a_playable_file(
    number: int, code: int, suffix: str, long_people: Path, tmp_path: Path
) -> None:
    source, target = long_people, tmp_path / f"out{suffix}"
    with running(tmp_path, source, "-o", target, "--quality", "high") as process:
        process.send_signal(number)
        _, stderr = process.communicate(timeout=TIMEOUT)
    assert process.returncode == code, stderr
    *advice, said = stderr.splitlines()  # none if the run has ended by itself before it is printed
    again = "another Ctrl-C" if number == signal.SIGINT else f"another {signal.Signals(number).name}"
    assert all(f"{again} ends at once" in line for line in advice), stderr
    assert said.startswith(f"{target}: stopped, "), stderr
    after = times(target)
    assert 0 < len(after) < 1200 and f"stopped, {len(after)} frames" in stderr
    assert same_times(after, times(source, limit=len(after)), Fraction(1, 1000))
    sound = packets(target, "audio")
    assert same_packets(sound, packets(source, "audio")[: len(sound)])
    assert sound[-1].time is not None and abs(sound[-1].time - after[-1]) < 0.06
    assert names(tmp_path) == {target.name}


@pytest.mark.slow
def test_the_second_signal_ends_at_once(long_people: Path, tmp_path: Path) -> None:
    """The first one would wait for what x265 has begun, some seconds."""
    slow = ("-o", tmp_path / "out.mkv", "--codec", "hevc", "--quality", "0")
    with running(tmp_path, long_people, *slow) as process:
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)  # two signals at one moment are one
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130 and len(stderr.splitlines()) <= 1 and not names(tmp_path)


def interrupted(call: Callable[[], object], at: int) -> bool:
    """Calls it, interrupted when the `at`-th call from the modules of outputs returns: that is when Python looks for
    signals. Returns whether it came so far. What takes back is not interrupted."""
    ours = {module.__file__ for module in (atomic_file, saved, muxer, results, picture_sequence, trace)}
    calls = itertools.count()

    def watch(frame: FrameType, event: str, _: Any) -> None:
        caller = frame.f_back if event == "return" else frame if event == "c_return" else None
        if caller is None or caller.f_code.co_filename not in ours:
            return
        if caller.f_code.co_name not in ("__exit__", "discard", "__del__", "_close") and next(calls) == at:
            raise KeyboardInterrupt

    sys.setprofile(watch)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


NOBODY: Any = SimpleNamespace(seconds=None)  # who is asked only when there are frames
RECORDS: dict[str, Callable[[VideoInfo, Config], Any]] = {
    "a.mp4": lambda info, config: muxer.Muxer(Path("a.mp4"), info, config),
    "%d.png": lambda info, config: picture_sequence.PictureSequence(
        Path("%d.png"), info, replace(config, effect="cutout")
    ),
    "a.json": lambda info, config: trace.Trace(Path("a.json"), info.path, overwrite=False),
    "a.jsonl": lambda info, config: results.Results(NOBODY.seconds, info, [], replace(config, results="a.jsonl")),
    "a.mkv": lambda info, config: saved.MaskWriter("a.mkv", info, "nobody", (), overwrite=config.overwrite),
}


@pytest.mark.parametrize("name", RECORDS)
def test_an_interrupt_leaves_nothing_unfinished(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    alone = name in ("a.json", "a.jsonl")  # complete without any frame

    def made() -> None:
        with RECORDS[name](video_info(), Config()) as record:
            if alone:
                record.finish(None) if name == "a.jsonl" else record.finish()

    for at in itertools.count():
        came = interrupted(made, at)
        assert names(tmp_path) <= ({name} if alone else set()), at
        if not came:
            break
        (tmp_path / name).unlink(missing_ok=True)  # it was in its place already
    assert at > 10 and names(tmp_path) == ({name} if alone else set())


class Broken(Exception):
    """What no stage expects."""


def broken(implementation: type[Any]) -> type[Any]:
    """The stage, but its fifth call fails; others wait in vain."""
    calls = itertools.count()

    def failing(self: Any, *arguments: Any) -> Any:
        if next(calls) == 4:
            raise Broken("on purpose")
        return original(self, *arguments)

    name = next(n for n in ("encode", "_frames", "__call__") if n in vars(implementation))
    original = getattr(implementation, name)
    if name == "_frames":

        def frames(self: Any) -> Iterator[Any]:
            yield from itertools.islice(original(self), 4)
            raise Broken("on purpose")

        return type("BrokenStage", (implementation,), {name: frames})
    return type("BrokenStage", (implementation,), {name: failing})


STAGES = {
    "decode": PyAVDecoder,
    "preprocess": OpenCVPreprocessor,
    "infer": OnnxRuntimeInference,
    "postprocess": OpenCVPostprocessor,
    "encode": PyAVEncoder,
}


@pytest.mark.parametrize("stage", STAGES)
def test_an_error_in_a_stage_surfaces_once_and_leaves_nothing(
    stage: str, people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    globals()["BrokenStage"] = broken(STAGES[stage])
    monkeypatch.setitem(IMPLEMENTATIONS[stage], "broken", Implementation(f"{__name__}:BrokenStage"))
    before = set(threading.enumerate())
    with pytest.raises(Broken, match="on purpose"):
        segment(people, tmp_path / "out.mp4", **{"infer": "onnxruntime", stage: "broken"})
    assert not names(tmp_path)
    assert not [thread for thread in set(threading.enumerate()) - before if thread.is_alive() and not thread.daemon]


def test_several_inputs_one_of_them_broken(clip: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    bad = tmp_path / "bad.mp4"
    bad.write_text("no video")
    other = Synthetic(pts=range(5)).write(tmp_path / "other.mkv")
    result = cli("--max-frames", "4", bad, clip, other, "-o", folder)
    assert result.returncode == 1
    assert names(folder) == {"clip.segmented.mp4", "other.segmented.mp4"}
    assert [line for line in result.stderr.splitlines() if "error" in line] == [
        f"segmentation: error: {bad}: is not a video that FFmpeg can read, or its header is cut off or damaged"
    ]
    assert all(len(times(path)) == 4 for path in folder.iterdir())


class Ranged(SimpleHTTPRequestHandler):
    """Answers range requests, as real servers do."""

    def do_GET(self) -> None:
        content = Path(self.translate_path(self.path)).read_bytes()
        asked = self.headers.get("Range", "bytes=0-").removeprefix("bytes=")
        begin, _, end = asked.partition("-")
        part = content[int(begin) : int(end) + 1 if end else None]
        self.send_response(206)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Range", f"bytes {begin}-{int(begin) + len(part) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, *arguments: Any) -> None:
        pass


class Plain(SimpleHTTPRequestHandler):
    """Gives whole files only."""

    def log_message(self, *arguments: Any) -> None:
        pass


class HalfWay(BaseHTTPRequestHandler):
    """Promises a whole file and hangs up in the middle."""

    def do_GET(self) -> None:
        content = self.server.content  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2])

    def log_message(self, *arguments: Any) -> None:
        pass


@contextmanager
def served(handler: Any, content: bytes = b"") -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients may hang up
        server.content = content  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("handler", [Ranged, Plain])
def test_http(handler: Any, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    fragments = {"movflags": "+frag_keyframe+empty_moov"}
    clip = Synthetic(codec="libx264", audio="aac", container_options=fragments).write(tmp_path / "there" / "a.mp4")
    assert clip.read_bytes().count(b"moof") > 1
    with served(partial(handler, directory=str(clip.parent))) as address:
        done = report(cli("--json", f"{address}/a.mp4?token=1", cwd=tmp_path))
    assert (done["frames"], done["damaged"], done["output"]) == (25, 0, "a.segmented.mp4")
    assert times(tmp_path / "a.segmented.mp4") == times(clip)
    assert same_packets(packets(tmp_path / "a.segmented.mp4", "audio"), packets(clip, "audio"))


def test_http_with_the_index_at_the_end(people: Path, tmp_path: Path) -> None:
    assert people.read_bytes().find(b"moov") > people.stat().st_size // 2
    with served(partial(Ranged, directory=str(people.parent))) as address:
        done = report(cli("--json", "--start", "2", "--max-frames", "10", f"{address}/{people.name}", cwd=tmp_path))
    assert (done["frames"], done["damaged"]) == (10, 0)


def test_http_errors_are_one_line(tmp_path: Path) -> None:
    with served(partial(Plain, directory=str(tmp_path))) as address:
        fails(cli(f"{address}/none.mp4", cwd=tmp_path), "none.mp4: no such file")
    fails(cli(f"{address}/gone.mp4", cwd=tmp_path), "refuses the connection; does a server run there?")
    assert not names(tmp_path)


@pytest.mark.slow
def test_http_that_breaks_off_is_counted(tmp_path: Path) -> None:
    whole = Synthetic(codec="libx264", pts=range(200)).write(tmp_path / "whole.mkv")
    with av.open(str(whole)) as a, av.open(str(tmp_path / "in.mp4"), "w", options={"movflags": "+faststart"}) as b:
        copy = b.add_stream_from_template(a.streams[0], opaque=True)
        for packet in a.demux():
            if packet.size:
                packet.stream = copy
                b.mux(packet)
    with served(HalfWay, (tmp_path / "in.mp4").read_bytes()) as address:
        done = report(cli("--json", f"{address}/in.mp4", "-o", tmp_path / "out.mp4"), complete=False)
    assert 0 < done["frames"] < 200 and done["frames"] + done["damaged"] >= 200
