"""Runs of files on a GPU start one after the other; whoever else has to wait for somebody keeps none waiting."""

from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from segmentation import Config
from segmentation.frames.source import Source
from segmentation.pipeline.resources import Resources


class _Bytes:
    name, seekable = "bytes", False

    def open(self) -> Any:
        return BytesIO()


def _locked(resources: Resources, source: Source) -> bool:
    """Whether another run of a file has to wait while one of this source starts."""
    with resources.turn_to_start(source):
        free = resources._starting.acquire(blocking=False)
        if free:
            resources._starting.release()
        return not free


@pytest.mark.parametrize(("given", "waits"), [("file", True), ("rtsp://camera/1", False), ("pipe", False)])
def test_only_starts_of_files_take_turns(given: str, waits: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes(b"1")
    source = Source.of_bytes(_Bytes()) if given == "pipe" else Source.parse(path if given == "file" else given)
    resources = Resources(Config())
    assert not _locked(resources, source)  # nothing is on a GPU yet: the first ones load the network together
    resources._gpu = object()  # type: ignore[assignment]
    assert _locked(resources, source) == waits
    assert not resources._starting.locked()
