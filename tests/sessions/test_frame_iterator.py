"""`Segmenter.frames`: a video's frames with their masks, in the caller's own loop."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from paths import SAMPLE
from program import run_tool
from quick import NETWORK
from videos import Synthetic, pictures

from segmentation import BackendError, ConfigError, InputError, Segmenter, segment
from segmentation.sessions.open_video import Moment, OpenVideo
from segmentation.stages.decode.pyav import PyAVDecoder
from segmentation.system.access import Access

BASELINE: dict[str, Any] = {"mode": "baseline", "infer": "onnxruntime", "model": NETWORK}


def test_masks_are_those_of_a_run(tmp_path: Path) -> None:
    segment(SAMPLE, tmp_path / "mask.mkv", effect="mask", codec="ffv1", max_frames=12, **BASELINE)
    shown = [picture.planes[0] > 125 for picture in pictures(tmp_path / "mask.mkv")]
    with Segmenter(**BASELINE) as segmenter:
        found = [frame.mask for frame in segmenter.frames(SAMPLE, max_frames=12)]
        unsmoothed = [frame.mask for frame in segmenter.frames(SAMPLE, max_frames=12, smooth=0)]
    assert len(found) == 12
    for mask, kept in zip(found, shown, strict=True):
        assert mask.dtype == np.float32 and mask.shape == (360, 640)
        assert ((mask > 0.5) & kept).sum() / ((mask > 0.5) | kept).sum() >= 0.99
    assert any(not np.array_equal(a, b) for a, b in zip(found, unsmoothed, strict=True))


def test_pictures_and_times_are_the_videos() -> None:
    with av.open(str(SAMPLE)) as container:
        decoded = [frame for frame, _ in zip(container.decode(video=0), range(5), strict=False)]
    with Segmenter(**BASELINE) as segmenter:
        frames = list(segmenter.frames(SAMPLE, max_frames=5))
    for frame, known in zip(frames, decoded, strict=True):
        assert frame.pts == known.pts and frame.time == known.pts * known.time_base
        assert frame.image.dtype == np.uint8 and frame.image.shape == (360, 640, 3)
        difference = np.abs(frame.image.astype(int) - known.to_ndarray(format="rgb24"))
        assert difference.mean() < 2  # that one takes the nearest chroma
        assert frame.image is frame.image and frame.mask is frame.mask
    assert repr(frames[0]) == f"MaskedFrame(pts={frames[0].pts}, time={frames[0].time!r})"  # without its arrays
    assert frames[0] in {*frames} and frames[0] != frames[1]


def test_a_moment_of_an_open_video_has_the_masks_of_a_run() -> None:
    with Segmenter(**BASELINE) as segmenter, OpenVideo(str(SAMPLE), Access()) as video:
        frames = list(segmenter.frames(SAMPLE, max_frames=12))
        for number in (8, 0, 5):
            around = list(segmenter.frames(Moment(video, Fraction(number, 30), 2, 2)))
            (shown,) = (frame for frame in around if frame.pts == frames[number].pts)
            assert np.array_equal(shown.mask, frames[number].mask)
            assert np.array_equal(shown.image, frames[number].image)


@pytest.mark.parametrize("pix_fmt", ["yuv422p", "yuv420p10le", "gray", "yuv444p"])
def test_other_layouts(tmp_path: Path, pix_fmt: str) -> None:
    video = Synthetic(pts=range(3), pix_fmt=pix_fmt).write(tmp_path / "a.mkv")
    with Segmenter(**BASELINE) as segmenter:
        shapes = [(frame.image.shape, frame.mask.shape) for frame in segmenter.frames(video)]
    assert shapes == [((48, 64, 3), (48, 64))] * 3


def test_frames_stand_upright(tmp_path: Path) -> None:
    lying = Synthetic(codec="libx264", pts=range(2), rotation=90).write(tmp_path / "a.mov")
    with Segmenter(**BASELINE) as segmenter:
        frame = next(segmenter.frames(lying))
    assert frame.image.shape == (64, 48, 3) and frame.mask.shape == (64, 48)
    (stored,) = pictures(lying, limit=1)
    turns = [np.rot90(stored.frame.to_ndarray(format="rgb24"), k).astype(int) for k in (1, 3)]
    differences = [np.abs(frame.image - turned).mean() for turned in turns]
    assert min(differences) < 3 and max(differences) > 3


def test_a_stretch() -> None:
    with Segmenter(**BASELINE) as segmenter:
        times = [frame.time for frame in segmenter.frames(SAMPLE, start=1, duration=0.125)]
        assert list(segmenter.frames(SAMPLE, start=100)) == []
    assert times == [Fraction(30 + i, 30) for i in range(4)]


def test_decoding_is_a_few_frames_ahead_and_ends_with_the_iterator(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[None] = []
    original = PyAVDecoder._planes

    def planes(self: PyAVDecoder, frame: av.VideoFrame) -> Any:
        decoded.append(None)
        return original(self, frame)

    monkeypatch.setattr(PyAVDecoder, "_planes", planes)
    with Segmenter(**BASELINE) as segmenter:
        before = set(threading.enumerate())
        frames = segmenter.frames(SAMPLE)
        assert set(threading.enumerate()) == before and not decoded  # nothing is opened yet
        next(frames)
        deadline = time.monotonic() + 240
        count = 0
        while count < len(decoded) and time.monotonic() < deadline:  # until the queues are full
            count = len(decoded)
            time.sleep(0.5)
        assert len(decoded) < 40
        frames.close()
        deadline = time.monotonic() + 240
        while set(threading.enumerate()) - before and time.monotonic() < deadline:
            time.sleep(0.05)
        assert set(threading.enumerate()) <= before


def test_iterators_runs_and_pictures_may_overlap(tmp_path: Path) -> None:
    def masks(segmenter: Segmenter) -> list[Any]:
        return [frame.mask for frame in segmenter.frames(SAMPLE, max_frames=6)]

    with Segmenter(**BASELINE) as segmenter, ThreadPoolExecutor(4) as pool:
        alone = masks(segmenter)
        image = next(segmenter.frames(SAMPLE)).image
        run = pool.submit(segmenter.run, SAMPLE, tmp_path / "a.mp4", max_frames=6)
        picture = pool.submit(segmenter.masks, image)
        together = [pool.submit(masks, segmenter) for _ in range(2)]
        assert run.result().frames == 6 and picture.result().shape == image.shape[:2]
        for one in together:
            assert all(np.array_equal(a, b) for a, b in zip(one.result(), alone, strict=True))


def test_faults_are_named(tmp_path: Path) -> None:
    with Segmenter(**BASELINE) as segmenter:
        with pytest.raises(InputError, match="no such file"):
            next(segmenter.frames(tmp_path / "none.mp4"))
        with pytest.raises(ConfigError, match="smooth 2"):
            segmenter.frames(SAMPLE, smooth=2)
        with pytest.raises(TypeError, match="effect"):
            segmenter.frames(SAMPLE, effect="mask")  # type: ignore[call-arg]
    with Segmenter(masks="m.mkv") as segmenter, pytest.raises(ConfigError, match="saved masks"):
        segmenter.frames(SAMPLE)


@pytest.mark.slow
def test_damage_is_an_error_where_that_is_asked_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = bytearray(SAMPLE.read_bytes())
    data[60_000:90_000] = bytes(30_000)
    damaged = tmp_path / "damaged.mp4"
    damaged.write_bytes(data)
    with Segmenter(**BASELINE) as segmenter:
        assert sum(1 for _ in segmenter.frames(damaged))
        assert "frames are damaged or missing" in caplog.text
        with pytest.raises(InputError, match="damaged or missing"):
            list(segmenter.frames(damaged, strict=True))


def test_the_sample_program_runs() -> None:
    lines = run_tool("samples/frames.py", SAMPLE).splitlines()
    assert len(lines) == 30 and lines[0].endswith("% of 640x360")


@pytest.mark.slow
def test_instances_become_detections_of_supervision() -> None:
    supervision = pytest.importorskip("supervision")
    with Segmenter(**BASELINE) as segmenter:
        first, *_ = frames = list(segmenter.frames(SAMPLE, max_frames=3, track="balanced"))
        (untracked,) = segmenter.frames(SAMPLE, max_frames=1)
    found = first.to_supervision()
    assert found.tracker_id.tolist() == [one.id for one in first.instances.instances]
    assert set(found["class_name"]) == {"person"} and not found.class_id.any()
    assert found.mask.shape == (len(found), 360, 640)
    together, kept = found.mask.any(axis=0), first.mask > 0.5
    assert (together & kept).sum() / (together | kept).sum() > 0.95
    for mask, box in zip(found.mask, found.xyxy, strict=True):
        rows, columns = np.nonzero(mask)
        edges = [columns.min(), rows.min(), columns.max(), rows.max()]
        assert np.abs(box - edges).max() < 8  # a pixel of the network's mask
    drawn = supervision.MaskAnnotator().annotate(first.image.copy(), found)
    assert (drawn != first.image).any(axis=2)[together].mean() > 0.95
    merged = supervision.Detections.merge([frame.to_supervision() for frame in frames])
    assert len(merged) == sum(len(frame.instances.instances) for frame in frames)
    nobody = replace(first, instances=replace(first.instances, instances=()))
    assert len(nobody.to_supervision()) == 0 and nobody.to_supervision().mask.shape == (0, 360, 640)
    with pytest.raises(ConfigError, match="track='balanced'"):
        untracked.to_supervision()


def test_without_supervision_one_line_names_it() -> None:
    if find_spec("supervision") is not None:
        pytest.skip("supervision is installed")
    with Segmenter(**BASELINE) as segmenter, pytest.raises(BackendError, match="pip install supervision"):
        next(segmenter.frames(SAMPLE, max_frames=1, track="fast")).to_supervision()
