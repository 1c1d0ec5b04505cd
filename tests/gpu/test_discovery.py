"""Which GPU each of several processes sees."""

from typing import Any

import pytest

from segmentation.gpu import discovery
from segmentation.gpu.discovery import GpuInfo, visible_gpus
from segmentation.options.config import Config


@pytest.mark.parametrize(
    ("variable", "options", "seen"),
    [
        (None, {}, ["0", "1"]),
        ("", {}, ["0", "1"]),
        ("3,5", {}, ["3", "5"]),
        ("3,5", {"device": "cuda:1"}, ["5"]),
        (None, {"device": "cuda:1"}, ["1"]),
        (None, {"device": "cuda"}, ["0", "1"]),
        (None, {"device": "cpu"}, []),
        (None, {"mode": "baseline"}, []),
    ],
)
def test_each_process_sees_one_of_the_gpus(
    variable: str | None, options: dict[str, Any], seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "find_gpu", lambda index=0: GpuInfo("A GPU", (9, 0)) if index < 2 else None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert visible_gpus(Config(**options)) == seen


def test_without_a_gpu_there_is_none_to_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "find_gpu", lambda index=0: None)
    assert visible_gpus(Config()) == []
