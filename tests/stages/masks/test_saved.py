"""Saved masks are exactly the composited masks, and rendering from them gives the same video."""

import json
import signal
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from marks import first
from paths import SAMPLE
from program import TIMEOUT, cli, report, running
from quick import NETWORK
from videos import Synthetic, pictures, same_times, times, video_info

from segmentation import Config, ConfigError, InputError, OutputError, segment
from segmentation.frames import Frame, FrameBatch
from segmentation.frames.sinks import FinishedBatch
from segmentation.media.opening.probe import probe
from segmentation.models.model import load_model
from segmentation.pipeline.report import Report
from segmentation.stages.inference.onnxruntime import OnnxRuntimeInference
from segmentation.stages.masks.quantize import VALUES, quantize
from segmentation.stages.masks.saved import TAG, MaskReader, MaskWriter, intact, ticks

CPU: dict[str, Any] = {"mode": "baseline"}
# Refining would show rounding, and smoothing would show the ends of a stretch.
PLAIN: dict[str, Any] = {"smooth": 0.0, "refine": False}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with `masks.mkv` of the sample's first 40 frames, and the `out.mkv` of that run."""
    folder = tmp_path_factory.mktemp("made")
    direct(folder / "out.mkv", save_masks=folder / "masks.mkv", max_frames=40, **PLAIN)
    return folder


def direct(output: Path, source: Path = SAMPLE, **options: Any) -> Report:
    return segment(source, output, infer="onnxruntime", model=NETWORK, **CPU, **options)


def again(output: Path, masks: Path, source: Path = SAMPLE, **options: Any) -> Report:
    return segment(source, output, masks=masks, **CPU, **options)


def same_video(one: Path, other: Path) -> bool:
    """Returns whether both hold the same packets. Matroska files differ in their random identifiers."""

    def packets(path: Path) -> list[tuple[Any, ...]]:
        with av.open(str(path)) as container:
            return [(p.stream_index, p.pts, p.dts, p.duration, bytes(p)) for p in container.demux()]

    return packets(one) == packets(other) != []


def test_levels_are_those_of_the_composite() -> None:
    """Rounding as postprocess rounds: saving does not change the picture."""
    masks = np.linspace(0, 1, 4097, dtype=np.float32).reshape(1, 1, -1)
    levels, values = quantize(masks)
    assert np.array_equal(levels, (masks * 255 + 0.5).astype(np.uint8))
    assert np.array_equal(quantize(values)[0], levels) and np.array_equal(quantize(values)[1], values)
    assert np.abs(values - masks).max() <= 0.5 / 255 + 1e-6
    assert VALUES.dtype == np.float32 and len(set(VALUES.tolist())) == 256


def test_a_track_is_what_the_network_found(made: Path) -> None:
    """Any player shows each frame's mask at its time, at the network's size."""
    info = probe(str(SAMPLE))
    model = load_model(Config(model=NETWORK), info)
    with av.open(str(made / "masks.mkv")) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.pix_fmt) == ("ffv1", "gray")
        assert (stream.width, stream.height) == (model.width, model.height)
        assert json.loads(container.metadata[TAG]) == {
            "input": "astronaut.mp4", "width": info.width, "height": info.height, "rotation": 0, "mirrored": False,
            "shift": "0", "model": NETWORK.name, "classes": ["person"],
        }  # fmt: skip
        found = [frame.to_ndarray() for frame in container.decode(stream)]
    assert same_times(times(made / "masks.mkv"), times(SAMPLE, limit=40), Fraction(1, 1000))
    from segmentation.stages.decode.pyav import PyAVDecoder
    from segmentation.stages.preprocess.opencv import OpenCVPreprocessor

    infer, preprocess = OnnxRuntimeInference(model, Config()), OpenCVPreprocessor(info, "yuv420p", model, Config())
    frames = list(PyAVDecoder(info, "yuv420p", Config(max_frames=40)))
    for mask, batch in zip(found, frames, strict=True):
        assert np.array_equal(mask, quantize(infer(preprocess(batch)).masks)[0][0])
        assert 0.1 < (mask > 127).mean() < 0.8


@pytest.mark.parametrize(
    "options",
    first(
        2,
        [
            {},
            {"effect": "mask"},
            {"refine": True, "effect": "overlay"},
            {"batch_size": 7},
            {"codec": "ffv1"},
            {"also": True},
        ],
    ),
    ids=str,
)
def test_rendering_again_gives_the_same_file(options: dict[str, Any], tmp_path: Path) -> None:
    suffix = ".mkv" if "codec" in options else ".mp4"
    given = [dict(options), dict(options)]
    if options.get("also"):
        for number, one in enumerate(given):
            one["also"] = [("mask", tmp_path / f"mask{number}.mp4")]
    one, two, masks = tmp_path / f"one{suffix}", tmp_path / f"two{suffix}", tmp_path / "masks.mkv"
    first = direct(one, save_masks=masks, max_frames=25, results=tmp_path / "one.jsonl", rle=True, **given[0])
    second = again(two, masks, max_frames=25, results=tmp_path / "two.jsonl", rle=True, **given[1])
    assert first.frames == second.frames == 25
    assert second.plan["preprocess"] == second.plan["infer"] == "masks" and second.stages["infer"] > 0
    assert same_video(one, two)
    if suffix == ".mp4":
        assert one.read_bytes() == two.read_bytes()
    assert (tmp_path / "one.jsonl").read_text() == (tmp_path / "two.jsonl").read_text()
    if options.get("also"):
        assert (tmp_path / "mask0.mp4").read_bytes() == (tmp_path / "mask1.mp4").read_bytes()


def test_saving_changes_nothing(made: Path, tmp_path: Path) -> None:
    direct(tmp_path / "out.mkv", max_frames=40, **PLAIN)
    assert same_video(tmp_path / "out.mkv", made / "out.mkv")


def test_smoothed_masks_are_saved_smooth(made: Path, tmp_path: Path) -> None:
    direct(tmp_path / "a.mp4", save_masks=tmp_path / "m.mkv", max_frames=40, smooth=1.0)
    again(tmp_path / "b.mp4", tmp_path / "m.mkv", max_frames=40)
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()
    smooth, own = ([p.planes[0] for p in pictures(folder)] for folder in (tmp_path / "m.mkv", made / "masks.mkv"))
    assert len(smooth) == len(own) and any(not np.array_equal(a, b) for a, b in zip(smooth, own, strict=True))


@pytest.mark.parametrize(
    "stretch", [{"start": 0.5, "max_frames": 5}, {"duration": 0.4}, {"start": 0.31, "duration": 0.7}], ids=str
)
def test_a_stretch_of_it(stretch: dict[str, Any], made: Path, tmp_path: Path) -> None:
    direct(tmp_path / "a.mp4", **stretch, **PLAIN)
    again(tmp_path / "b.mp4", made / "masks.mkv", **stretch, refine=False)
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()


@pytest.mark.parametrize(
    "clip",
    [
        Synthetic(pts=[0, 1, 4, 5, 9, 30, 31]),
        Synthetic(size=(64, 48), pts=range(6), codec="libx264", rotation=90),
        Synthetic(pts=[0, 1, 2, 3, 600, 601], time_base=Fraction(1, 600)),  # 1.67 ms apart
        Synthetic(pts=range(5), clock=95_000.2),
    ],
    ids=["variable rate", "turned", "fast", "late clock"],
)
def test_all_kinds_of_clips(clip: Synthetic, tmp_path: Path) -> None:
    source = clip.write(tmp_path / ("in.mov" if clip.rotation else "in.mkv"))
    direct(tmp_path / "a.mkv", source, save_masks=tmp_path / "m.mkv", effect="color", codec="ffv1")
    done = again(tmp_path / "b.mkv", tmp_path / "m.mkv", source, effect="color", codec="ffv1", verify=True)
    assert done.frames == len(clip.pts) and same_video(tmp_path / "a.mkv", tmp_path / "b.mkv")


@pytest.mark.parametrize(
    "name", first(2, ["var_fps_video.mp4", "video_90.mov", "edit_list_positive_shift.mp4", "sample_h264.ts"])
)
def test_real_files(name: str, corpus: Path, tmp_path: Path) -> None:
    direct(tmp_path / "a.mkv", corpus / name, save_masks=tmp_path / "m.mkv", codec="ffv1", max_frames=60)
    again(tmp_path / "b.mkv", tmp_path / "m.mkv", corpus / name, codec="ffv1", max_frames=60)
    assert same_video(tmp_path / "a.mkv", tmp_path / "b.mkv")


@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (32, 32), (33, 480)])
@pytest.mark.parametrize("first", [0, -90, 12345])
def test_any_size_and_any_beginning(shape: tuple[int, int], first: int, tmp_path: Path) -> None:
    """Every level comes back from masks of any size, also where the input's clock begins below 0."""
    info = video_info(time_base=Fraction(1, 90))
    generator = np.random.default_rng(3)
    levels = [generator.integers(0, 256, (n, *shape), np.uint8) for n in (3, 1, 2)]
    batches, pts = [], first
    for number, some in enumerate(levels):
        frames = []
        for _ in some:
            frames.append(Frame(planes=(), pts=pts, duration=1))  # type: ignore[arg-type]
            pts += 7
        batches.append(FrameBatch(frames=tuple(frames), index=0, number=number))
    path = tmp_path / "m.mkv"
    with MaskWriter(path, info, "person", ("person",), overwrite=False) as writer:
        for batch, some in zip(batches, levels, strict=True):
            writer.write(FinishedBatch(frames=batch, levels=some))
        writer.finish(None)
    reader = MaskReader(info, Config(masks=path))
    for batch, some in zip(batches, levels, strict=True):
        assert np.array_equal(reader(batch), VALUES[some])
    reader.check_end()
    begun_later = MaskReader(info, Config(masks=path))
    assert np.array_equal(begun_later(batches[1]), VALUES[levels[1]])
    with pytest.raises(InputError, match=r"next mask at .* where the video is over"):
        begun_later.check_end()


def test_ticks_are_rounded_as_ffmpeg_rounds() -> None:
    assert [ticks(Fraction(n, 2000)) for n in (-3, -1, 0, 1, 2, 3, 2999)] == [-2, -1, 0, 1, 1, 2, 1500]


def test_a_changed_byte_is_found_wherever_it_is(made: Path) -> None:
    with av.open(str(made / "masks.mkv")) as container:
        packet = next(bytes(packet) for packet in container.demux(video=0))
    assert intact(packet)
    for at in range(0, len(packet), 13):
        assert not intact(packet[:at] + bytes([packet[at] ^ 1]) + packet[at + 1 :])


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])


def damaged(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(data)


def one_left_out(path: Path) -> None:
    """Removes the twentieth mask of a file."""
    with av.open(str(path)) as old, av.open(str(path.with_name("new.mkv")), "w") as new:
        copy = new.add_stream_from_template(old.streams.video[0])
        new.metadata.update(old.metadata)
        for number, packet in enumerate(old.demux()):
            if packet.size and number != 19:
                packet.stream = copy
                new.mux(packet)
    path.with_name("new.mkv").rename(path)


def no_media(path: Path) -> None:
    path.write_text("no masks")


def no_track(path: Path) -> None:
    path.write_bytes(SAMPLE.read_bytes())


def no_json(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"rotation"', b'"rutation"'))


def gone(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    ("spoil", "options", "hint"),
    first(
        2,
        [
            (None, {}, "ends where the video's next frame is at 1.333 s; it was saved from astronaut.mp4"),
            (cut_off, {"max_frames": 40}, "ends where the video's next frame is at|is damaged: its mask at"),
            (damaged, {"max_frames": 40}, "is damaged: its mask at 0."),
            (
                one_left_out,
                {"max_frames": 40},
                "has its next mask at 0.667 s where the video's next frame is at 0.633 s",
            ),
            (no_media, {}, "is not a video that FFmpeg can read"),
            (no_track, {}, "holds no masks; name a file that --save-masks has written"),
            (no_json, {}, "holds no masks; name a file that --save-masks has written"),
            (gone, {}, "no such file"),
        ],
    ),
)
def test_what_does_not_fit_is_one_line(
    spoil: Callable[[Path], None] | None, options: dict[str, Any], hint: str, made: Path, tmp_path: Path
) -> None:
    masks = tmp_path / "masks.mkv"
    masks.write_bytes((made / "masks.mkv").read_bytes())
    if spoil is not None:
        spoil(masks)
    before = sorted(tmp_path.iterdir())
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    also = ("--also", f"mask:{tmp_path / 'b.mp4'}")
    result = cli(SAMPLE, "-o", tmp_path / "out.mp4", "--masks", masks, *also, *arguments)
    assert result.returncode == 1 and result.stdout == "" and len(result.stderr.splitlines()) == 1, result.stderr
    assert f"error: {masks}: " in result.stderr and any(part in result.stderr for part in hint.split("|"))
    assert sorted(tmp_path.iterdir()) == before


def test_masks_of_another_video(made: Path, tmp_path: Path) -> None:
    other = Synthetic(size=(640, 352)).write(tmp_path / "other.mkv")
    with pytest.raises(InputError, match=r"holds masks of astronaut\.mp4, whose height is 360; that of .* is 352"):
        again(tmp_path / "a.mp4", made / "masks.mkv", other)
    rate = Synthetic(size=(640, 360)).write(tmp_path / "rate.mkv")  # 25 a second instead of 30
    with pytest.raises(InputError, match=r"has its next mask at 0\.033 s where the video's next frame is at 0\.040 s"):
        again(tmp_path / "a.mp4", made / "masks.mkv", rate)
    short = Synthetic(size=(640, 360), pts=range(0, 6000, 200), time_base=Fraction(1, 6000)).write(tmp_path / "s.mkv")
    with pytest.raises(InputError, match=r"has its next mask at 1\.000 s where the video is over"):
        again(tmp_path / "a.mp4", made / "masks.mkv", short)
    assert not (tmp_path / "a.mp4").exists()


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"smooth": 0.5}, "leave out --smooth"),
        ({"model": "other.onnx"}, "leave out --model"),
        ({"classes": ("person",)}, "leave out --classes"),
        ({"infer": "onnxruntime"}, "leave out --infer"),
        ({"preprocess": "opencv"}, "leave out --preprocess"),
        ({"save_masks": "b.mkv"}, "leave out --save-masks"),
    ],
)
def test_what_saved_masks_leave_nothing_to_do_for(options: dict[str, Any], hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        Config(masks="a.mkv", **options)


def test_masks_are_saved_in_matroska_and_over_nothing(made: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"name a file that ends in \.mkv"):
        direct(tmp_path / "a.mp4", save_masks=tmp_path / "m.mp4")
    (tmp_path / "m.mkv").write_text("mine")
    with pytest.raises(
        OutputError, match="exists already; use -y \\(overwrite=True\\) to replace it, or --save-masks to name another"
    ):
        direct(tmp_path / "a.mp4", save_masks=tmp_path / "m.mkv")
    with pytest.raises(ConfigError, match=r"--save-masks .*: is the output too"):
        direct(tmp_path / "a.mkv", save_masks=tmp_path / "a.mkv")
    with pytest.raises(ConfigError, match=r"-o .*: is what --masks reads"):
        again(made / "masks.mkv", made / "masks.mkv", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["m.mkv"]
    assert (tmp_path / "m.mkv").read_text() == "mine"


def test_the_plan_says_so(made: Path) -> None:
    result = cli(SAMPLE, "--masks", made / "masks.mkv", "--plan", "--baseline")
    lines = [line for line in result.stdout.splitlines() if line.startswith(("preprocess", "infer"))]
    assert result.returncode == 0 and [line.split()[1] for line in lines] == ["masks", "masks"]
    assert "masks.mkv: what bright-dynamic.onnx found of person in astronaut.mp4" in lines[1]


def test_several_inputs_have_theirs_in_a_folder(tmp_path: Path) -> None:
    clips = [Synthetic(pts=range(n)).write(tmp_path / f"{n}.mkv") for n in (2, 3)]
    folders = [tmp_path / name for name in ("a", "b", "masks")]
    for folder in folders:
        folder.mkdir()
    refused = cli(*clips, "--save-masks", tmp_path / "m.mkv")
    assert refused.returncode == 2 and "several inputs need a folder" in refused.stderr
    assert cli(*clips, "-o", folders[0], "--save-masks", folders[2]).returncode == 0
    assert {path.name for path in folders[2].iterdir()} == {f"{n}.segmented.masks.mkv" for n in (2, 3)}
    result = cli(*clips, "-o", folders[1], "--masks", folders[2], "--json")
    assert result.returncode == 0
    assert [json.loads(line)["plan"]["infer"] for line in result.stdout.splitlines()] == ["masks", "masks"]


@pytest.mark.slow
def test_a_signal_leaves_the_masks_of_the_frames_that_are_written(long_people: Path, tmp_path: Path) -> None:
    source, masks = long_people, tmp_path / "m.mkv"
    with running(tmp_path, source, "-o", tmp_path / "a.mp4", "--save-masks", masks, files=2) as process:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130
    count = len(times(tmp_path / "a.mp4"))
    assert 0 < count <= 1200 and len(times(masks)) == count
    done = report(cli(source, "-o", tmp_path / "b.mp4", "--masks", masks, "--max-frames", count, "--json"))
    assert done["frames"] == count


def test_nothing_is_left_of_masks_when_the_run_fails(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no frame at --start"):
        direct(tmp_path / "a.mp4", save_masks=tmp_path / "m.mkv", start=100.0)
    assert not list(tmp_path.iterdir())
