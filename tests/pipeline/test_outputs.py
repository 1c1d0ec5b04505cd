"""Several outputs of one run: each is what a run of its own would have written."""

import itertools
import signal
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from marks import first
from paths import SAMPLE
from program import TIMEOUT, file_limit, report, running, start
from quick import cli, segment
from videos import Synthetic, packets, pictures, same_packets, same_times, times

from segmentation import ConfigError, DeviceError, OutputError
from segmentation.frames import FrameBatch
from segmentation.media.muxer import Muxer
from segmentation.options.also import effect_and_file
from segmentation.pipeline.report import Report
from segmentation.stages.encode.pyav import PyAVEncoder
from segmentation.stages.encode.segments import Layout
from segmentation.stages.postprocess.opencv import OpenCVPostprocessor

CPU: dict[str, Any] = {"mode": "baseline", "infer": "onnxruntime"}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def run(folder: Path, *also: tuple[str, str], output: str = "out.mp4", **options: Any) -> Report:
    given = [(effect, folder / name) for effect, name in also]
    return segment(SAMPLE, folder / output, also=given, **CPU, **options)


@pytest.mark.slow
@pytest.mark.parametrize("options", first(1, [{"smooth": 0.5, "batch_size": 3}, {}, {"refine": True}]), ids=str)
def test_each_is_what_a_run_of_its_own_writes(tmp_path: Path, options: dict[str, Any]) -> None:
    wanted = [("mask", "mask.mp4"), ("blur:40", "soft.mp4"), ("color:#ff0000", "red.mp4")]
    done = run(tmp_path, *wanted, max_frames=12, **options)
    assert done.frames == 12 and done.also == tuple(str(tmp_path / name) for _, name in wanted)
    for effect, name in [("blur", "out.mp4"), *wanted]:
        run(tmp_path, output=f"alone.{name}", effect=effect, max_frames=12, **options)
        assert (tmp_path / name).read_bytes() == (tmp_path / f"alone.{name}").read_bytes()


def test_sound_and_metadata_are_in_each(tmp_path: Path) -> None:
    clip = Synthetic(
        codec="libx264", audio="aac", subtitles=[(0.1, 0.5, "hej")], chapters=[(0, 0.5, "one")], rotation=90,
        subtitle_codec="mov_text", metadata={"title": "a title"},
    ).write(tmp_path / "in.mp4")  # fmt: skip
    segment(clip, tmp_path / "a.mp4", also=[("mask", tmp_path / "b.mp4")], **CPU)
    for kind in ("audio", "subtitle"):
        assert packets(tmp_path / "b.mp4", kind) == packets(tmp_path / "a.mp4", kind) != []
    with av.open(str(tmp_path / "a.mp4")) as a, av.open(str(tmp_path / "b.mp4")) as b:
        assert a.metadata == b.metadata and b.metadata["title"] == "a title"
        assert a.chapters() == b.chapters() != []
    assert next(pictures(tmp_path / "b.mp4")).frame.rotation == next(pictures(clip)).frame.rotation == 90


def test_containers_have_their_own_codecs_and_share_the_layout(tmp_path: Path, caplog: Any) -> None:
    """AV1 has 4:2:0 only, so all have."""
    clip = Synthetic(pix_fmt="yuv444p", pts=range(6)).write(tmp_path / "in.mkv")
    done = segment(clip, tmp_path / "a.mp4", also=[("mask", tmp_path / "b.webm"), ("mask", tmp_path / "c.mkv")], **CPU)
    frames = {name: [p.frame for p in pictures(tmp_path / name)] for name in ("a.mp4", "b.webm", "c.mkv")}
    assert {name: len(found) for name, found in frames.items()} == dict.fromkeys(frames, done.frames)
    assert {frame.format.name for found in frames.values() for frame in found} == {"yuv420p"}
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said.count(f"{clip}: yuv444p is converted to yuv420p") == 1
    segment(clip, tmp_path / "d.mkv", also=[("mask", tmp_path / "e.mkv")], codec="ffv1", **CPU)
    assert {p.pix_fmt for p in pictures(tmp_path / "e.mkv")} == {"yuv444p"}


def test_a_container_that_cannot_hold_the_codec_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"b\.webm: \.webm files can't hold ffv1"):
        run(tmp_path, ("mask", "b.webm"), output="a.mkv", codec="ffv1")
    assert not names(tmp_path)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("mask:mask.mkv", ("mask", "mask.mkv")),
        ("blur:40:soft.mp4", ("blur:40", "soft.mp4")),
        ("blur:soft.mp4", ("blur", "soft.mp4")),
        ("color:#00b140:green.mp4", ("color:#00b140", "green.mp4")),
        ("overlay:/tmp/a:b/c.mp4", ("overlay", "/tmp/a:b/c.mp4")),
        ("color:00b140:./12:30.mp4", ("color:00b140", "./12:30.mp4")),
        ("mask:../a:b.mp4", ("mask", "../a:b.mp4")),
        ("mask:a@b.mp4", ("mask", "a@b.mp4")),
        ("overlay@face:ids.mp4", ("overlay@face", "ids.mp4")),
        ("blur:40@face:cover:soft.mp4", ("blur:40@face:cover", "soft.mp4")),
        ("color:red@face:./12:30.mp4", ("color:red@face", "./12:30.mp4")),
        ("image:beach.jpg,contain:out.mp4", ("image:beach.jpg,contain", "out.mp4")),
        ("video:/tmp/sea.mp4:/tmp/a:b.mp4", ("video:/tmp/sea.mp4", "/tmp/a:b.mp4")),
    ],
)
def test_an_effect_ends_where_its_file_begins(text: str, parsed: tuple[str, str]) -> None:
    assert effect_and_file(text) == parsed


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("mask", "write EFFECT:FILE"),
        ("mask:", "write EFFECT:FILE"),
        ("color:#00b140", "write EFFECT:FILE"),
        ("image:beach.jpg", "write EFFECT:FILE"),
        ("blur:40@face", "write EFFECT:FILE"),
        ("mask:a:b.mp4", "effect 'mask:a' is unknown"),
        ("blur:900:a.mp4", "the strength of blur must lie above 0"),
        ("color:#00b14:a.mp4", "write the color as #RRGGBB"),
        ("sparkle:a.mp4", "effect 'sparkle' is unknown"),
    ],
)
def test_what_is_no_effect_and_file_is_one_line(text: str, hint: str, tmp_path: Path) -> None:
    result = cli(SAMPLE, "-o", tmp_path / "out.mp4", "--also", text)
    assert result.returncode == 2 and len(result.stderr.splitlines()) == 1
    assert f"--also {text}: " in result.stderr and hint in result.stderr
    assert not names(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("--also", "mask:out.mp4"), "--also out.mp4: is the output too; name another file"),
        (("--also", "mask:a.mp4", "--also", "blur:./a.mp4"), "--also a.mp4: is the file of --also too"),
        (("--also", "mask:a.mp4", "--results", "a.mp4"), "--results a.mp4: is the file of --also too"),
        (("--also", "mask:in.mp4", "-y"), "--also in.mp4: is the input itself"),
        (("--also", "mask:link.mp4", "-y"), "--also link.mp4: is the input itself"),
    ],
)
def test_no_file_is_written_twice_or_over_the_input(arguments: tuple[str, ...], hint: str, tmp_path: Path) -> None:
    (tmp_path / "in.mp4").write_bytes(SAMPLE.read_bytes())
    (tmp_path / "link.mp4").symlink_to("in.mp4")
    result = cli("in.mp4", "-o", "out.mp4", *arguments, cwd=tmp_path)
    assert result.returncode == 2 and hint in result.stderr and len(result.stderr.splitlines()) == 1
    assert names(tmp_path) == {"in.mp4", "link.mp4"} and (tmp_path / "in.mp4").read_bytes() == SAMPLE.read_bytes()


@pytest.mark.parametrize(
    ("output", "options", "line"),
    [
        ("bg.mp4", {"effect": "video:bg.mp4"}, "-o bg.mp4: is what --effect reads; name another file"),
        ("link.mp4", {"effect": "image:bg.mp4,contain"}, "-o link.mp4: is what --effect reads; name another file"),
        ("bg.mp4", {"also": [("video:bg.mp4", "a.mp4")]}, "-o bg.mp4: is what --also reads; name another file"),
        ("a.mp4", {"effect": "video:bg.mp4", "results": "bg.mp4"}, "--results bg.mp4: is what --effect reads"),
    ],
)
def test_what_effects_read_stays(
    output: str, options: dict[str, Any], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bg.mp4").write_bytes(SAMPLE.read_bytes())
    Path("link.mp4").symlink_to("bg.mp4")
    with pytest.raises(ConfigError, match=line):
        segment(SAMPLE, output, overwrite=True, max_frames=1, **options, **CPU)
    assert names(tmp_path) == {"bg.mp4", "link.mp4"} and Path("bg.mp4").read_bytes() == SAMPLE.read_bytes()


@pytest.mark.parametrize(
    ("options", "read", "option"),
    [
        ({"model": "net.onnx"}, "net.onnx", "--model"),
        ({"model": "net.onnx"}, "net.json", "--model"),
        ({"model": "link.onnx"}, "net.onnx", "--model"),
        ({"then": ("face=net.onnx@person",)}, "net.onnx", "--then"),
        ({"anonymize": "plates=net.onnx"}, "net.onnx", "--anonymize"),
        ({"anonymize": "faces,plates=net.onnx"}, "net.onnx", "--anonymize"),
        ({"anonymize": "faces", "review": "review.txt"}, "review.txt", "--review"),
    ],
)
def test_networks_and_reviews_stay(
    options: dict[str, Any], read: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("net.onnx", "net.json", "review.txt"):
        Path(name).write_text("leave id:1")
    Path("link.onnx").symlink_to("net.onnx")
    with pytest.raises(ConfigError, match=f"--results {read}: is what {option} reads; name another file"):
        segment(SAMPLE, "out.mp4", results=read, overwrite=True, mode="baseline", **{"model": "person", **options})
    assert Path(read).read_text() == "leave id:1"


@pytest.mark.parametrize("name", ["a\0b.mp4", "a\ud800b.mp4"], ids=ascii)
@pytest.mark.parametrize("option", ["output", "also", "results", "save_masks", "trace"])
def test_a_name_that_no_file_can_have_is_one_line(name: str, option: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"output": tmp_path / "a.mp4", option: tmp_path / name}
    if option == "also":
        given["also"] = [("mask", tmp_path / name)]
    with pytest.raises(ConfigError, match=r"b\.mp4: cannot be written \(") as caught:
        segment(SAMPLE, **given, **CPU)
    assert "\n" not in str(caught.value) and not names(tmp_path)


def test_existing_files_stay(tmp_path: Path) -> None:
    (tmp_path / "mask.mp4").write_text("mine")
    with pytest.raises(
        OutputError,
        match=r"mask\.mp4: exists already; use -y \(overwrite=True\) to replace it, or --also to name anoth",
    ):
        run(tmp_path, ("mask", "mask.mp4"), max_frames=2)
    assert names(tmp_path) == {"mask.mp4"} and (tmp_path / "mask.mp4").read_text() == "mine"


@pytest.mark.slow
def test_several_inputs_put_them_into_a_folder(tmp_path: Path) -> None:
    clips = [Synthetic(pts=range(n)).write(tmp_path / f"{n}.mkv") for n in (2, 3)]
    refused = cli(*clips, "--also", f"mask:{tmp_path}/a.mkv")
    assert refused.returncode == 2 and "several inputs need a folder" in refused.stderr
    (tmp_path / "out").mkdir()
    done = cli(*clips, "-o", tmp_path / "out", "--also", f"mask:{tmp_path}/out", "--also", f"blur:9:{tmp_path}/out")
    assert done.returncode == 0, done.stderr
    expected = {f"{n}.segmented{what}.mp4" for n in (2, 3) for what in ("", ".mask", ".blur")}
    assert names(tmp_path / "out") == expected
    assert [len(times(tmp_path / "out" / f"{n}.segmented.mask.mp4")) for n in (2, 3)] == [2, 3]
    assert cli(tmp_path / "out").returncode == 1  # none of them is an input


def test_a_video_device_is_the_first_output(tmp_path: Path) -> None:
    done = cli(SAMPLE, "-o", "a.mp4", "--also", "mask:/dev/video9", cwd=tmp_path)
    assert done.returncode == 2 and "/dev/video9: is a video device, which -o alone can name" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_report_and_what_is_said_name_all(tmp_path: Path) -> None:
    mask = tmp_path / "mask.mkv"
    result = cli(SAMPLE, "-o", tmp_path / "a.mkv", "--also", f"mask:{mask}", "--json", "--max-frames", 3, "--verify")
    done = report(result)
    assert done["also"] == [str(mask)] and done["verified"]["frames"] == 3
    assert result.stderr.startswith(f"{tmp_path / 'a.mkv'}, {mask}: 3 frames in ")
    alone = report(cli(SAMPLE, "-o", tmp_path / "b.mkv", "--json", "--max-frames", 3))
    assert alone["also"] == []


@pytest.mark.slow
def test_what_is_said_of_the_input_is_said_once(tmp_path: Path) -> None:
    clip = Synthetic(size=(63, 47), pts=range(2)).write(tmp_path / "in.mkv")
    result = cli(clip, "-o", tmp_path / "a.mp4", "--also", f"mask:{tmp_path / 'b.mp4'}", "-q", "-v")
    alone = cli(clip, "-o", tmp_path / "c.mp4", "-q", "-v")
    assert result.returncode == 0 and result.stderr == alone.stderr


def test_each_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encode = PyAVEncoder.encode
    encoders: list[PyAVEncoder] = []

    def dropping(self: PyAVEncoder, batch: FrameBatch) -> list[Any]:
        if self not in encoders:
            encoders.append(self)
        if self is encoders[-1] and len(encoders) == 2 and batch.index == 4:
            return []
        return encode(self, batch)

    monkeypatch.setattr(PyAVEncoder, "encode", dropping)
    with pytest.raises(OutputError, match=r"b\.mp4: verification failed, the file is kept: frame 4"):
        run(tmp_path, ("blur:40", "b.mp4"), output="a.mp4", verify=True, max_frames=10)
    assert names(tmp_path) == {"a.mp4", "b.mp4"}


@pytest.mark.parametrize("workers", [(), pytest.param(("--workers", "local:1"), marks=pytest.mark.slow)], ids=str)
def test_each_is_verified_by_the_masks_that_it_shows(tmp_path: Path, workers: tuple[str, ...]) -> None:
    """Edges by color, which a new background gets, keep other pixels than a blur does."""
    also = ("--also", f"color:red:{tmp_path / 'b.mkv'}", "--also", f"blur:40:{tmp_path / 'c.mkv'}", "--quality", 0)
    done = cli(SAMPLE, "-o", tmp_path / "a.mkv", *also, *workers, "--max-frames", 3, "--verify", "--json")
    assert report(done)["verified"]["compared"] == (1 if workers else 3)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_an_error_in_one_leaves_none(which: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The full disk of one of three, on the way; the error shown is that one's."""
    write = Muxer.write
    calls = itertools.count()

    def failing(self: Muxer, packets: list[Any]) -> None:
        if self.target.name == f"{which}.mp4" and next(calls) == 5:
            raise self._error(OSError(28, "No space left on device"))
        write(self, packets)

    monkeypatch.setattr(Muxer, "write", failing)
    with pytest.raises(OutputError, match=rf"{which}\.mp4: cannot be written \(No space left on device\)"):
        run(tmp_path, ("mask", "1.mp4"), ("blur:9", "2.mp4"), output="0.mp4")
    assert not names(tmp_path)


@pytest.mark.slow
def test_a_full_disk_leaves_none(tmp_path: Path) -> None:
    arguments = (SAMPLE, "-o", tmp_path / "a.mp4", "--also", f"mask:{tmp_path / 'b.mp4'}")
    with start(*arguments, before=file_limit(30_000)) as process:
        _, stderr = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 1 and "cannot be written (" in stderr and len(stderr.splitlines()) == 1
    assert not names(tmp_path)


def test_a_device_that_fails_on_the_way_leaves_all_playable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from segmentation.stages.postprocess.opencv import OpenCVPostprocessor

    original, calls = OpenCVPostprocessor.__call__, itertools.count()

    def failing(self: Any, *arguments: Any) -> Any:
        if next(calls) == 41:  # in one output's stage, with the other's done
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return original(self, *arguments)

    monkeypatch.setattr(OpenCVPostprocessor, "__call__", failing)
    with pytest.raises(DeviceError, match=r"frames before are in .*a\.mp4, .*b\.mkv") as caught:
        run(tmp_path, ("mask", "b.mkv"), output="a.mp4")
    assert names(tmp_path) == {"a.mp4", "b.mkv"}
    counts = [len(times(tmp_path / name)) for name in ("a.mp4", "b.mkv")]
    assert counts[0] == counts[1] > 0 and f"the {counts[0]} frames before" in str(caught.value)


@pytest.mark.slow
def test_an_encoder_that_cannot_go_on_leaves_no_gap_in_those_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first output's encoder is ahead when the second's fails: it ends where what is written ends, but for frames
    between the last ones that refer to each other."""
    original = PyAVEncoder.encode
    calls: dict[int, int] = {}

    def encode(self: PyAVEncoder, batch: FrameBatch) -> Any:
        calls[id(self)] = calls.get(id(self), 0) + 1
        if list(calls).index(id(self)) == 1:
            time.sleep(0.02)
            if calls[id(self)] == 25:
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return original(self, batch)

    monkeypatch.setattr(PyAVEncoder, "encode", encode)
    with pytest.raises(DeviceError, match=r"what was finished before is in .*a\.mp4, .*b\.mkv"):
        run(tmp_path, ("mask", "b.mkv"), output="a.mp4", batch_size=4)
    assert names(tmp_path) == {"a.mp4", "b.mkv"}
    source = times(SAMPLE)
    first, second = (times(tmp_path / name) for name in ("a.mp4", "b.mkv"))
    assert len(second) == 96 and same_times(second, source[:96], Fraction(1, 1000))
    assert 24 < len(first) <= 96 and first[-1] <= source[95]
    assert same_times(first[:-4], source[: len(first) - 4], Fraction(1, 1000))


@pytest.mark.slow
def test_an_encoder_on_a_lost_device_is_asked_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encode, calls = PyAVEncoder.encode, itertools.count()

    def lost(*_: Any) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def on_the_gpu(self: PyAVEncoder, batch: FrameBatch) -> Any:
        monkeypatch.setattr(self, "memory", "cuda", raising=False)
        return lost() if next(calls) == 100 else encode(self, batch)

    monkeypatch.setattr(PyAVEncoder, "encode", on_the_gpu)
    monkeypatch.setattr(PyAVEncoder, "flush", lost)
    with pytest.raises(DeviceError, match=r"illegal memory access .* what was finished before is in .*a\.mp4"):
        run(tmp_path, output="a.mp4")
    assert names(tmp_path) == {"a.mp4"}
    assert 20 < len(times(tmp_path / "a.mp4")) <= 100


@pytest.mark.slow
def test_all_begin_again_where_memory_does_not_suffice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from segmentation.stages.postprocess.opencv import OpenCVPostprocessor

    original, calls = OpenCVPostprocessor.__call__, itertools.count()

    def greedy(self: Any, batch: Any) -> Any:
        if next(calls) > 7 and len(batch) > 2:
            raise RuntimeError("CUDA error: out of memory")
        return original(self, batch)

    monkeypatch.setattr(OpenCVPostprocessor, "__call__", greedy)
    done = run(tmp_path, ("mask", "b.mkv"), output="a.mp4", batch_size=4, max_frames=30)
    assert "starting again with --batch-size 2" in caplog.text and done.frames == 30
    assert names(tmp_path) == {"a.mp4", "b.mkv"}
    assert [len(times(tmp_path / name)) for name in ("a.mp4", "b.mkv")] == [30, 30]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_a_signal_leaves_all_playable(number: int, code: int, long_people: Path, tmp_path: Path) -> None:
    source = long_people
    targets = [tmp_path / "a.mp4", tmp_path / "b.mkv"]
    arguments = ("-o", targets[0], "--also", f"mask:{targets[1]}", "--quality", "high")
    with running(tmp_path, source, *arguments, files=2) as process:
        process.send_signal(number)
        _, stderr = process.communicate(timeout=TIMEOUT)
    assert process.returncode == code, stderr
    assert names(tmp_path) == {"a.mp4", "b.mkv"}
    first, second = (times(target) for target in targets)
    assert 0 < len(first) == len(second) < 1200 and f"stopped, {len(first)} frames" in stderr
    for target in targets:
        assert same_times(times(target), times(source, limit=len(first)), Fraction(1, 1000))
        sound = packets(target, "audio")
        assert sound and same_packets(sound, packets(source, "audio")[: len(sound)])


@pytest.mark.slow
def test_a_second_signal_leaves_none(long_people: Path, tmp_path: Path) -> None:
    arguments = ("-o", tmp_path / "a.mkv", "--also", f"mask:{tmp_path / 'b.mkv'}", "--codec", "hevc", "--quality", "0")
    with running(tmp_path, long_people, *arguments, files=2) as process:
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)  # two signals at one moment are one
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130 and len(stderr.splitlines()) <= 1 and not names(tmp_path)


def test_strict_leaves_none(tmp_path: Path) -> None:
    broken = tmp_path / "broken.mp4"
    data = bytearray(SAMPLE.read_bytes())
    data[len(data) // 10 : len(data) // 6] = bytes(len(data) // 6 - len(data) // 10)
    broken.write_bytes(data)
    options = ["--also", f"mask:{tmp_path / 'b.mp4'}", "--strict", "--max-frames", "40"]
    failed = cli(broken, "-o", tmp_path / "a.mp4", *options)
    assert failed.returncode == 1 and "damaged" in failed.stderr and names(tmp_path) == {"broken.mp4"}


def test_a_wrong_effect_is_found_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="effect 'sparkle' is unknown"):
        run(tmp_path, ("sparkle", "b.mp4"))
    assert not names(tmp_path)


def test_segment_encoders_share_the_memory(tmp_path: Path) -> None:
    """As many frames wait in all of them together as in one alone."""
    large = 32 << 20
    alone, shared = (Layout.of(large * outputs, 30, 16, 0) for outputs in (1, 4))
    assert 4 * shared.waiting <= alone.waiting


@pytest.mark.slow
@pytest.mark.parametrize("codec", first(1, ["h264", "hevc"]))
def test_outputs_in_segments(tmp_path: Path, codec: str) -> None:
    options: dict[str, Any] = {"encode": "x264-segments", "codec": codec, "preset": "ultrafast"}
    run(tmp_path, ("mask", "b.mkv"), output="a.mkv", max_frames=40, **options)
    run(tmp_path, effect="mask", output="c.mkv", max_frames=40, **options)
    for ours, theirs in zip(pictures(tmp_path / "b.mkv"), pictures(tmp_path / "c.mkv"), strict=True):
        assert ours.time == theirs.time
        assert all(np.array_equal(a, b) for a, b in zip(ours.planes, theirs.planes, strict=True))


@pytest.mark.parametrize("main", ["blur", "cutout"])
def test_a_cutout_beside_another_effect(main: str, tmp_path: Path) -> None:
    """Each has an encoder of its own kind; options of codecs are the other's."""
    output = "main.mp4" if main == "blur" else "main.mkv"
    options: dict[str, Any] = {"preset": "ultrafast", "quality": 30, "verify": True} if main == "blur" else {}
    run(tmp_path, ("cutout", "cut.mkv"), ("blur", "soft.mp4"), output=output, effect=main, max_frames=4, **options)
    layouts = {path.name: layout(path) for path in tmp_path.iterdir()}
    assert layouts.pop(output) == ("yuv420p" if main == "blur" else "yuva420p")
    assert layouts == {"cut.mkv": "yuva420p", "soft.mp4": "yuv420p"}


def layout(path: Path) -> str | None:
    with av.open(str(path)) as container:
        return container.streams.video[0].codec_context.pix_fmt


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_current_folder_may_change_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    """All is beside what the names meant in the beginning, and none of it is lost; messages keep these names."""
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    (here / "in.mp4").write_bytes(SAMPLE.read_bytes())
    monkeypatch.chdir(here)
    wanted = {"o.mp4", "m.mkv", "r.jsonl", "t.json", "s.mkv"}
    if overwrite:
        for name in wanted:
            (here / name).write_text("old")
    records: dict[str, Any] = {"results": "r.jsonl", "trace": "t.json", "save_masks": "s.mkv"}

    def away(done: int, expected: int) -> None:
        monkeypatch.chdir(there)

    options: dict[str, Any] = {"max_frames": 6, "overwrite": overwrite, **records, **CPU}
    done = segment("in.mp4", "o.mp4", also=[("mask", "m.mkv")], verify=True, progress=away, **options)
    assert done.frames == 6 and done.verified is not None and done.verified.compared == 6
    assert done.output == "o.mp4" and names(here) == {"in.mp4", *wanted} and not names(there)
    assert len(times(here / "o.mp4")) == len(times(here / "m.mkv")) == 6
    assert all((here / name).read_bytes() != b"old" for name in wanted)


def test_pictures_and_messages_when_the_current_folder_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here / "50%d", there):
        folder.mkdir(parents=True)

    def away(done: int, expected: int) -> None:
        (here / "m.mkv").write_text("precious")
        monkeypatch.chdir(there)

    monkeypatch.chdir(here)
    options: dict[str, Any] = {"effect": "cutout", "max_frames": 3, "progress": away, **CPU}
    with pytest.raises(OutputError, match=r"^m\.mkv: came into being in the meantime"):
        segment(SAMPLE, "50%d/%02d.png", also=[("mask", "m.mkv")], **options)
    assert names(here / "50%d") == {"01.png", "02.png", "03.png"} and not names(there)
    assert names(here) == {"50%d", "m.mkv", "m.partial.mkv"} and (here / "m.mkv").read_text() == "precious"


def test_names_lead_over_links_and_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`..` behind a link to a folder is that folder's parent; a link to a file is replaced, not what it leads to."""
    (tmp_path / "far" / "deep").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "link").symlink_to(tmp_path / "far" / "deep")
    (tmp_path / "far" / "old.mp4").write_text("precious")
    (tmp_path / "here" / "b.mp4").symlink_to(tmp_path / "far" / "old.mp4")
    monkeypatch.chdir(tmp_path / "here")
    segment(SAMPLE, "link/../a.mp4", also=[("mask", "b.mp4")], max_frames=2, overwrite=True, **CPU)
    assert names(tmp_path / "far") == {"deep", "old.mp4", "a.mp4"} and names(tmp_path / "here") == {"link", "b.mp4"}
    assert (tmp_path / "far" / "old.mp4").read_text() == "precious" and not (tmp_path / "here" / "b.mp4").is_symlink()


def test_stages_of_all_outputs_get_the_size_of_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those on a GPU allocate memory for a batch by it."""
    sizes = []
    make = OpenCVPostprocessor.__init__

    def spy(self: OpenCVPostprocessor, *arguments: Any) -> None:
        sizes.append(arguments[3].batch_size)
        make(self, *arguments)

    monkeypatch.setattr(OpenCVPostprocessor, "__init__", spy)
    run(tmp_path, ("mask", "mask.mp4"), max_frames=2)
    assert sizes == [1, 1]
