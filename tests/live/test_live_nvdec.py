"""Whole runs of live sources that NVDEC decodes: all frames in order, through losses and on several streams."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import barcode
import numpy as np
import pytest
from numpy.typing import NDArray
from rtsp_server import RtspServer

from segmentation import Report, Segmenter

pytestmark = pytest.mark.gpu

OPTIONS: dict[str, Any] = {"input_size": (64, 64), "smooth": 0.0, "max_delay": 10.0, "encode": "x264"}
QUICK: dict[str, Any] = {"stall": 0.6, "reconnect": "0.1..0.2"}


def keep(batch: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.ones((len(batch), 32, 32), np.float32)


@pytest.fixture(scope="module")
def segmenter() -> Iterator[Segmenter]:
    with Segmenter(model=keep, **OPTIONS) as made:
        made.masks(np.zeros((64, 64, 3), np.uint8))
        yield made


def accounted(report: Report) -> bool:
    return report.received == report.frames + sum(report.dropped.values())


@pytest.mark.parametrize("decode", [None, "live", "live-nvdec"])
def test_all_frames_come_in_order(decode: str | None, camera: RtspServer, tmp_path: Path) -> None:
    with Segmenter(model=keep, decode=decode, **OPTIONS) as segmenter:
        report = segmenter.run(camera.url(), tmp_path / "out.mkv", max_frames=100)
    found = barcode.numbers(tmp_path / "out.mkv")
    assert found == [number for number in camera.sent if found[0] <= number <= found[-1]] and len(found) == 100
    assert report.plan["decode"] == (decode or "live-nvdec")
    assert accounted(report) and report.dropped.keys() <= {"end"} and report.damaged == 0


def _other_size(camera: RtspServer) -> None:
    camera.size = (640, 480)
    camera.hang_up()


@pytest.mark.parametrize("loss", [RtspServer.hang_up, RtspServer.reset, _other_size])
@pytest.mark.parametrize("on_loss", ["gap", "card"])
def test_a_lost_source_comes_back(
    loss: Callable[[RtspServer], None], on_loss: str, camera: RtspServer, segmenter: Segmenter, tmp_path: Path
) -> None:
    def watch(done: int, expected: int) -> None:
        if done == 60:  # NVDEC decodes by then
            loss(camera)

    options: dict[str, Any] = {"on_loss": on_loss, **QUICK}
    report = segmenter.run(camera.url(), tmp_path / "out.mkv", max_frames=100, progress=watch, **options)
    assert report.reconnects >= 1 and report.frames == 100 and accounted(report) and report.complete
    found = barcode.numbers(tmp_path / "out.mkv")
    if on_loss == "gap":
        assert found == sorted(set(found)) and len(found) == 100
    else:
        assert report.repeated > 0 and len(found) == 100 + report.repeated


def test_several_streams_share_a_session(camera: RtspServer, segmenter: Segmenter, tmp_path: Path) -> None:
    def run(number: int) -> Report:
        return segmenter.run(camera.url(), tmp_path / f"{number}.mkv", max_frames=100)

    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(run, range(4)))
    for number, report in enumerate(reports):
        found = barcode.numbers(tmp_path / f"{number}.mkv")
        assert found == sorted(set(found)) and accounted(report) and report.plan["decode"] == "live-nvdec"


@pytest.mark.whole_card
def test_memory_comes_back(camera: RtspServer, segmenter: Segmenter, tmp_path: Path) -> None:
    """Of sessions and planes: later runs of the same kind need no more than the second did."""
    import torch

    used = []
    for number in range(6):
        segmenter.run(camera.url(), tmp_path / f"{number}.mkv", max_frames=60)
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        used.append(total - free)
    assert used[-1] <= used[1] + (16 << 20), used
