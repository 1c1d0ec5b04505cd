"""`--interval`: the network sees the keys alone, and every frame has a mask."""

import json
import threading
import weakref
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from forms import make_rvm
from networks import make_model
from numpy.typing import NDArray
from paths import SAMPLE
from program import cli
from videos import Synthetic, pictures

from segmentation import ConfigError, Segmenter, segment
from segmentation.errors import DeviceMemoryError
from segmentation.interval.auto_interval import LONGEST, longest_gap
from segmentation.interval.key_frames import Seen, rounds
from segmentation.interval.propagation import HostPropagation
from segmentation.stages.inference import onnxruntime
from segmentation.stages.masks.smoothing import CUT

CPU: dict[str, Any] = {"mode": "baseline", "infer": "onnxruntime", "codec": "ffv1", "effect": "mask"}


def changes(lumas: list[float]) -> list[float]:
    return [abs(b - a) for a, b in pairwise(lumas)]


def keys(lumas: Sequence[float], interval: Any, sizes: Sequence[int]) -> list[list[list[int]]]:
    """Returns the numbers of the frames of each stretch of each round, for batches of these sizes."""
    frames = iter([Seen(i, np.empty(0), luma, None) for i, luma in enumerate(lumas)])  # type: ignore[arg-type]
    batches: Iterator[list[Seen[float]]] = ([next(frames) for _ in range(size)] for size in sizes)
    chosen = rounds(batches, changes, lambda: longest_gap(interval))
    return [[[frame.number for frame in stretch] for stretch in one.stretches] for one in chosen]


def test_keys_are_the_first_the_last_and_one_behind_each_interval() -> None:
    assert keys([0] * 10, 3, [1] * 10) == [[[0]], [[1, 2, 3, 4]], [[5, 6, 7, 8]], [[9]]]
    assert keys([0] * 9, 3, [1] * 9) == [[[0]], [[1, 2, 3, 4]], [[5, 6, 7, 8]]]
    assert keys([0], 3, [1]) == [[[0]]]
    assert keys([0, 0], 3, [1, 1]) == [[[0]], [[1]]]
    assert keys([0] * 20, "auto", [1] * 20)[1] == [list(range(1, 1 + LONGEST))]


def test_both_sides_of_a_cut_are_keys() -> None:
    lumas = [0.0] * 6 + [CUT * 1.1] * 6
    assert keys(lumas, 3, [1] * 12) == [[[0]], [[1, 2, 3, 4]], [[5], [6]], [[7, 8, 9, 10]], [[11]]]
    # A cut just behind a key adds one key alone.
    assert keys([0.0] * 5 + [0.5] * 3, 3, [1] * 8) == [[[0]], [[1, 2, 3, 4]], [[5]], [[6, 7]]]
    assert keys([0, 0.5, 0, 0.5], 3, [1] * 4) == [[[0]], [[1]], [[2]], [[3]]]
    slow = [i * CUT * 0.9 for i in range(9)]
    assert keys(slow, 3, [1] * 9) == [[[0]], [[1, 2, 3, 4]], [[5, 6, 7, 8]]]


def test_no_frame_waits_beyond_a_pause() -> None:
    assert keys([0] * 6, 3, [1, 2, 0, 3]) == [[[0]], [[1, 2]], [[3, 4, 5]]]
    assert keys([0] * 4, 3, [1, 0, 1, 1, 0, 1]) == [[[0]], [], [[1, 2]], [[3]]]


def test_stretches_do_not_depend_on_batches() -> None:
    lumas = [0.0] * 7 + [0.5] * 10
    expected = [s for r in keys(lumas, 2, [1] * 17) for s in r]
    for sizes in ([17], [5, 5, 5, 2], [7, 10], [8, 9], [16, 1]):
        assert [s for r in keys(lumas, 2, sizes) for s in r] == expected


def masks_of(path: Path) -> list[NDArray[np.uint8]]:
    return [picture.planes[0] for picture in pictures(path)]


def saved(tmp_path: Path, name: str, **options: Any) -> tuple[Any, list[NDArray[np.uint8]]]:
    """Returns the report of a run on the sample, and the masks that it saved."""
    file = tmp_path / f"{name}.masks.mkv"
    report = segment(options.pop("source", SAMPLE), tmp_path / f"{name}.mkv", save_masks=file, **(CPU | options))
    return report, masks_of(file)


def iou(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> float:
    a, b = a > 127, b > 127
    return float((a & b).sum() / max(1, (a | b).sum()))


@pytest.mark.slow
def test_masks_are_nearly_those_of_a_network_that_sees_every_frame(tmp_path: Path) -> None:
    every, expected = saved(tmp_path, "every", max_frames=42)
    assert every.inferred == 42
    for interval, inferred in ((1, 22), (3, 12), (10, 5)):
        report, found = saved(tmp_path, f"every{interval}", max_frames=42, interval=interval)
        assert (report.frames, report.inferred) == (42, inferred)
        assert np.mean([iou(a, b) for a, b in zip(found, expected, strict=True)]) > 0.97
        assert any(not np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("interval", [3, "auto"])
def test_masks_do_not_depend_on_batches(tmp_path: Path, interval: Any) -> None:
    _, expected = saved(tmp_path, "one", max_frames=30, interval=interval)
    for size in (4, 16):
        _, found = saved(tmp_path, f"of{size}", max_frames=30, interval=interval, batch_size=size)
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("count", [1, 2, 4, 5, 6])
@pytest.mark.parametrize("smooth", [0.0, 0.5])
def test_every_frame_has_a_mask(tmp_path: Path, count: int, smooth: float) -> None:
    report, found = saved(tmp_path, "a", max_frames=count, interval=3, smooth=smooth)
    assert report.frames == len(found) == count
    assert report.inferred == {1: 1, 2: 2, 4: 2, 5: 2, 6: 3}[count]


def visit(path: Path, shown: range) -> Path:
    """Writes a video of 33 frames, in some of which there is something red."""
    ground = np.random.default_rng(0).integers(60, 90, (96, 128, 1)).astype(np.uint8).repeat(3, axis=2)
    frames = []
    for number in range(33):
        picture = ground.copy()
        if number in shown:
            picture[30:70, 40:90] = (250, 120, 120)
        frames.append(av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format="yuv444p"))
    return Synthetic(size=(128, 96), frames=frames, pts=range(33), pix_fmt="yuv444p").write(path)


@pytest.mark.parametrize("shown", [range(11, 15), range(9, 12), range(18, 20), range(13, 14)], ids=str)
def test_who_comes_between_keys_is_found_where_the_picture_decides(tmp_path: Path, shown: range) -> None:
    red = make_model(tmp_path / "red.onnx", [[1.2, -1.2, 0.0]], size=(96, 128))
    source = visit(tmp_path / "visit.mkv", shown)
    options = {"source": source, "model": red, "activation": "none", "smooth": 0.0}
    _, expected = saved(tmp_path, "every", **options)
    assert [i for i, mask in enumerate(expected) if (mask > 127).any()] == list(shown)
    _, missed = saved(tmp_path, "fixed", interval=7, **options)
    assert not any((mask > 127).any() for mask in missed)
    report, found = saved(tmp_path, "auto", interval="auto", **options)
    assert [i for i, mask in enumerate(found) if (mask > 127).any()] == list(shown)
    assert report.inferred < 20
    assert min(iou(found[i], expected[i]) for i in shown) > 0.9


def test_the_classes_between_keys(tmp_path: Path) -> None:
    """An overlay of several classes needs the class map of every frame."""
    network = make_model(
        tmp_path / "two.onnx",
        [[0.0, 0.0, 0.0], [8.0, 0.0, -8.0], [-8.0, 0.0, 8.0]],
        activation="Softmax",
        size=(64, 64),
        metadata={"segmentation.labels": "background,warm,cold"},
    )
    options = CPU | {"effect": "overlay", "model": network, "max_frames": 20, "overwrite": True}
    out = tmp_path / "out.mkv"
    segment(SAMPLE, out, **options)
    expected = [np.stack([p[::2, ::2] for p in (picture.planes[1], picture.planes[2])]) for picture in pictures(out)]
    assert segment(SAMPLE, out, interval=4, **options).inferred == 5
    found = [np.stack([p[::2, ::2] for p in (picture.planes[1], picture.planes[2])]) for picture in pictures(out)]
    for a, b in zip(found, expected, strict=True):
        assert np.mean(np.abs(a.astype(int) - b) > 12) < 0.05


def test_frames_may_be_iterated_over(tmp_path: Path) -> None:
    with Segmenter(mode="baseline", infer="onnxruntime") as segmenter:
        every = [frame.mask for frame in segmenter.frames(SAMPLE, max_frames=12)]
        some = [frame.mask for frame in segmenter.frames(SAMPLE, max_frames=12, interval=3)]
    assert len(some) == 12
    apart = [float(np.abs(a - b).mean()) for a, b in zip(some, every, strict=True)]
    assert 0 < np.mean(apart) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["changes", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gather", "split", "propagate", "join"))],
)
def test_a_gpu_without_memory_is_named_wherever_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(HostPropagation, name, full)
    with pytest.raises(DeviceMemoryError, match="memory is full"):
        segment(SAMPLE, tmp_path / "out.mkv", interval=2, max_frames=12, **CPU)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("interval", [pytest.param(30, marks=pytest.mark.slow), "auto"])
def test_few_frames_wait_with_many_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interval: Any) -> None:
    """The masks are the same with as many workers as a large machine has, and frames do not pile up."""
    _, expected = saved(tmp_path, "two", max_frames=150, interval=interval)
    lumas: list[weakref.ref[Any]] = []
    most = 0
    keep = HostPropagation.keep

    def counted(self: Any, tensor: Any, count: int) -> Any:
        nonlocal most
        rows, kept = keep(self, tensor, count)
        lumas.extend(weakref.ref(luma.values) for luma in kept)
        most = max(most, sum(luma() is not None for luma in lumas))
        return rows, kept

    monkeypatch.setattr(HostPropagation, "keep", counted)
    monkeypatch.setattr(onnxruntime, "core_count", lambda: 16)
    _, found = saved(tmp_path, "many", max_frames=150, interval=interval)
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    assert most < 120


def test_a_network_with_states_needs_every_frame(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"interval 2: .*carries states from frame to frame"):
        segment(SAMPLE, tmp_path / "out.mkv", model=make_rvm(tmp_path / "net.onnx"), interval=2, **CPU)


def test_a_network_that_fails_ends_the_run_once(tmp_path: Path) -> None:
    calls: list[int] = []

    def network(pictures: NDArray[np.float32]) -> NDArray[np.float32]:
        calls.append(len(pictures))
        if len(calls) > 3:
            raise ValueError("out of order")
        return np.zeros((len(pictures), *pictures.shape[2:]), np.float32)

    before = threading.active_count()
    with pytest.raises(ValueError, match="out of order"):
        segment(SAMPLE, tmp_path / "out.mkv", model=network, mode="baseline", interval=2)
    assert list(tmp_path.iterdir()) == []
    assert threading.active_count() <= before + 1


def test_a_run_may_be_stopped(tmp_path: Path) -> None:
    stop = threading.Event()

    def progress(done: int, expected: int) -> None:
        if done >= 6:
            stop.set()

    with Segmenter(**(CPU | {"interval": 3})) as segmenter:
        report = segmenter.run(SAMPLE, tmp_path / "out.mkv", stop=stop, progress=progress)
    assert 6 <= report.frames < 42 and not report.complete
    assert len(masks_of(tmp_path / "out.mkv")) == report.frames


@pytest.mark.parametrize(
    ("interval", "message"),
    [
        (31, "interval 31: must be 0"),
        (-1, "interval -1: must be 0"),
        ("often", "interval 'often': must be a whole number, or 'auto'"),
        (2.5, "interval 2.5: must be a whole number, or 'auto'"),
    ],
)
def test_other_intervals_are_refused(tmp_path: Path, interval: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        segment(SAMPLE, tmp_path / "out.mkv", interval=interval)


def test_the_command_has_it_too(tmp_path: Path) -> None:
    out = tmp_path / "out.mp4"
    done = cli(str(SAMPLE), "-o", str(out), "--interval", "auto", "--max-frames", "42", "--json", "--device", "cpu")
    report = json.loads(done.stdout)
    assert report["frames"] == 42 and 6 <= report["inferred"] < 30
    refused = cli(str(SAMPLE), "-o", str(out), "-y", "--interval", "some")
    assert refused.returncode == 2 and "--interval: 'some' must be a whole number or auto" in refused.stderr
    masks = cli(str(SAMPLE), "-o", str(out), "-y", "--interval", "2", "--masks", str(out))
    assert masks.returncode == 2 and "leave out --interval" in masks.stderr
