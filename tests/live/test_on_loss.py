"""What an output shows while its live source is lost, and when that is."""

import json
import re
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import av
import barcode
import numpy as np
import pytest
from numpy.typing import NDArray
from rtsp_server import RtspServer

from segmentation import ConfigError, Report, Segmenter

Luma = NDArray[np.uint8]
LOSS: dict[str, Any] = {"stall": 0.6, "reconnect": "0.1..0.2", "max_delay": 10.0}
REPEATED = 8  # frames after which the source comes back


def nobody(batch: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.zeros((len(batch), 32, 32), np.float32)


def everybody(batch: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.ones((len(batch), 32, 32), np.float32)


@pytest.fixture(params=[False, True], ids=["", "inverted"])
def segmenter(request: pytest.FixtureRequest) -> Iterator[Segmenter]:
    """A session that shows each frame as it is, so that an effect on a part of a frame is one without a mask."""
    options: dict[str, Any] = {"device": "cpu", "input_size": (64, 64), "smooth": 0.0, "effect": "color:#000000"}
    with Segmenter(model=nobody if request.param else everybody, invert=request.param, **options) as made:
        yield made


def run(segmenter: Segmenter, output: Path, **options: Any) -> tuple[Report, list[int]]:
    """Loses the camera after 15 frames, until so many are repeated. Returns the report, and the numbers sent."""
    with RtspServer() as camera:

        def watch(done: int, expected: int) -> None:
            status = segmenter.streams.monitors[-1].status()
            if done >= 15 and not camera_lost:
                camera_lost.append(True)
                camera.refuse()
                camera.hang_up()
            elif status.repeated >= REPEATED and len(camera_lost) == 1:
                camera_lost.append(True)
                camera.accept()

        camera_lost: list[bool] = []
        report = segmenter.run(f"hall={camera.url()}", output, max_frames=40, progress=watch, **LOSS, **options)
        return report, camera.sent


def frames_of(path: Path) -> list[tuple[Luma, float]]:
    with av.open(str(path)) as file:
        return [(frame.to_ndarray(format="gray"), float(frame.time or 0)) for frame in file.decode(video=0)]


def test_the_last_picture_is_repeated_with_the_effect_everywhere(segmenter: Segmenter, tmp_path: Path) -> None:
    report, sent = run(segmenter, tmp_path / "out.mkv", on_loss="freeze", results=tmp_path / "lines.jsonl")
    found = frames_of(tmp_path / "out.mkv")
    assert report.frames == 40 and report.received == 40 + sum(report.dropped.values()) and report.reconnects == 1
    assert report.repeated >= REPEATED and len(found) == 40 + report.repeated
    covered = [luma.max() < 30 for luma, _ in found]  # all black; the bar codes have 220
    assert sum(covered) == report.repeated
    assert [is_covered for is_covered, _ in groupby(covered)] == [False, True, False]
    numbers = [barcode.read(luma)[0] for (luma, _), hidden in zip(found, covered, strict=True) if not hidden]
    assert numbers == sorted(set(numbers)) and set(numbers) <= set(sent)
    times = [time for _, time in found]
    assert all(a < b for a, b in pairwise(times))
    lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert [line["index"] for line in lines] == [number for number, hidden in enumerate(covered) if not hidden]
    _are_as_far_apart_as_frames(times, covered)
    _keep_the_sources_distance(found, covered)


def _are_as_far_apart_as_frames(times: list[float], covered: list[bool]) -> None:
    """As the source's own before: none comes earlier, and most come at once."""
    steps: dict[bool, list[float]] = {True: [], False: []}
    for (a, before), (b, hidden) in pairwise(zip(times, covered, strict=True)):
        if before == hidden and (hidden or b < times[covered.index(True)]):
            steps[hidden].append(b - a)
    usual = sorted(steps[False])[len(steps[False]) // 2]
    assert min(steps[True]) > 0.8 * usual and sorted(steps[True])[len(steps[True]) // 2] < 2 * usual


def _keep_the_sources_distance(found: list[tuple[Luma, float]], covered: list[bool]) -> None:
    """The loss takes as long in the output as it took."""
    shown = [(barcode.read(luma), time) for (luma, time), hidden in zip(found, covered, strict=True) if not hidden]
    ((_, drawn), before), ((_, then), after) = max(pairwise(shown), key=lambda pair: pair[1][1] - pair[0][1])
    assert after - before == pytest.approx(then - drawn, abs=0.3)


def test_a_card_says_that_the_source_is_lost(tmp_path: Path) -> None:
    options: dict[str, Any] = {"device": "cpu", "input_size": (64, 64), "smooth": 0.0}
    also = [("mask", tmp_path / "mask.mkv")]
    with Segmenter(model=everybody, **options) as segmenter:
        report, _ = run(segmenter, tmp_path / "out.mkv", on_loss="card", also=also, save_masks=tmp_path / "m.mkv")
    assert report.repeated >= REPEATED and report.frames == 40
    pictures, masks = ([luma for luma, _ in frames_of(tmp_path / name)] for name in ("out.mkv", "mask.mkv"))
    assert len(pictures) == len(masks) == len(frames_of(tmp_path / "m.mkv")) == 40 + report.repeated
    cards = [luma for luma, mask in zip(pictures, masks, strict=True) if mask.max() < 30]
    assert len(cards) == report.repeated
    for luma in cards:  # dark but for the words, which are in the middle
        assert 0.01 < (luma > 125).mean() < 0.2 and (luma[:60] < 60).all() and (luma[-60:] < 60).all()


def test_by_default_a_loss_is_a_gap(segmenter: Segmenter, tmp_path: Path) -> None:
    with RtspServer() as camera:

        def watch(done: int, expected: int) -> None:
            if done == 15:
                camera.hang_up()

        report = segmenter.run(camera.url(), tmp_path / "out.mkv", max_frames=30, progress=watch, **LOSS)
    assert (report.frames, report.repeated) == (30, 0) and len(frames_of(tmp_path / "out.mkv")) == 30


def test_a_loop_over_frames_has_those_that_arrived_alone(tmp_path: Path) -> None:
    options: dict[str, Any] = {"device": "cpu", "input_size": (64, 64), "on_loss": "freeze"}
    numbers = []
    with Segmenter(model=everybody, **options, **LOSS) as segmenter, RtspServer() as camera:
        for frame in segmenter.frames(camera.url(), max_frames=20, smooth=0.0):
            numbers.append(barcode.read(frame.image[..., 1])[0])
            if len(numbers) == 8:
                camera.hang_up()
    assert len(numbers) == 20 and numbers == sorted(set(numbers))


def test_what_there_is_to_choose(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape("on loss 'frieze' is unknown: choose gap, freeze, card; did you")):
        Segmenter(on_loss="frieze")  # type: ignore[arg-type]
