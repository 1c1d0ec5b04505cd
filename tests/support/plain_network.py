"""Runs networks on crops on the host, as they are converted: without CUDA graphs and streams."""

from typing import Any

import pytest
from converter import need_onnx2torch

from segmentation.stages.inference import crop_network


class PlainNetwork:
    """In place of `GraphedNetwork`."""

    def __init__(self, loaded: Any, gpu: Any, name: str) -> None:
        self.input, self._run = loaded.input, loaded.run
        self.result = loaded.run()

    def run(self) -> Any:
        self.result = self._run()
        return self.result

    def close(self) -> None: ...


def load_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets each `CropNetwork` of a test run on the host."""
    need_onnx2torch()
    monkeypatch.setattr(crop_network, "preload", lambda load, device: load())
    monkeypatch.setattr(crop_network, "GraphedNetwork", PlainNetwork)
