"""The file with the verdict on an engine: what it holds for, and files that are none."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from networks import model_of
from paths import DATA

from engines import ADA, place, spec_of
from segmentation.engines import verdict as verdicts
from segmentation.engines.spec import EngineSpec
from segmentation.engines.variant import Variant
from segmentation.engines.verdict import BEGUN, DECLINED, FAILED, PROVEN, Verdict, VerdictFile, forget
from segmentation.gpu.discovery import GpuInfo

pytestmark = pytest.mark.usefixtures("folder")  # engines of these tests go there, and not among the user's

GOOD = Verdict(outcome=PROVEN, pictures=17, iou=0.9993, largest_difference=0.01, covered=0.5, tensorrt_ms=0.8)


@pytest.fixture
def spec() -> EngineSpec:
    spec = spec_of(model_of(DATA / "bright-dynamic.onnx"))
    place(spec)
    return spec


@pytest.fixture
def file(spec: EngineSpec) -> VerdictFile:
    """With a verdict in it."""
    file = VerdictFile(spec, 16)
    file.write(GOOD)
    return file


def test_what_is_written_is_read(file: VerdictFile) -> None:
    assert file.read() == GOOD
    for other in (replace(GOOD, torch_fp16_ms=1.2), Verdict(outcome=FAILED, reason="ü \udcff 猫")):
        file.write(other)
        assert file.read() == other


def test_verdicts_in_words(file: VerdictFile) -> None:
    said = str(replace(GOOD, date="2026-11-24"))
    assert said == ("proven on 2026-11-24: mask IoU 0.9993 with FP32, 0.80 ms for a batch (torch-fp16: can't run it)")
    declined = Verdict(outcome=DECLINED, reason="it is slow", date="2026-11-24")
    refusal = str(file.refusal(declined))
    assert refusal == f"engine declined on 2026-11-24: it is slow; delete {file.path} to try it again"
    file.path.unlink()
    assert str(file.refusal(declined)) == "engine declined on 2026-11-24: it is slow"


@pytest.mark.parametrize(("outcome", "failed"), [(FAILED, True), (BEGUN, True), (DECLINED, False)])
def test_a_refusal_says_whether_the_engine_failed(file: VerdictFile, outcome: str, failed: bool) -> None:
    assert file.refusal(Verdict(outcome=outcome, reason="the trial has failed to be kind")).failed is failed


def test_it_holds_for_one_engine_one_gpu_and_one_batch_size(file: VerdictFile, spec: EngineSpec) -> None:
    assert VerdictFile(spec, 16).read() == GOOD
    assert VerdictFile(spec, 8).read() is None
    assert VerdictFile(replace(spec, gpu=GpuInfo("NVIDIA L4", ADA.capability)), 16).read() is None
    assert VerdictFile(replace(spec, variant=Variant("tensorrt_rtx", "1.8.0")), 16).read() is None
    other = GpuInfo("NVIDIA Geforce RTX-4090", ADA.capability)  # the same name of the file
    assert VerdictFile(replace(spec, gpu=other), 16).path == file.path
    assert VerdictFile(replace(spec, gpu=other), 16).read() is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("driver_version", lambda: "999.99"),
        ("installed_version", lambda package: "99.0"),
        ("__version__", "99.0"),
        ("ENGINE_FORMAT", 99),
        ("FORMAT", 99),
    ],
)
def test_it_holds_for_one_version_of_everything(
    file: VerdictFile, monkeypatch: pytest.MonkeyPatch, name: str, value: Any
) -> None:
    assert file.read() == GOOD
    monkeypatch.setattr(verdicts, name, value)
    assert file.read() is None


def test_it_holds_for_one_plan(file: VerdictFile) -> None:
    plan = file.engine.read_bytes()
    file.engine.write_bytes(plan + b" ")  # damaged: it is built again
    assert file.read() is None
    file.engine.unlink()
    assert file.read() is None
    file.engine.write_bytes(plan)
    assert file.read() == GOOD
    file.engine.with_suffix(".json").write_text("{}")
    assert file.read() is None


def test_a_verdict_without_an_engine_ends_when_there_is_one(spec: EngineSpec) -> None:
    """After a build that failed, `segmentation-build` may succeed."""
    file = VerdictFile(spec, 16)
    file.engine.unlink()
    failed = Verdict(outcome=FAILED, reason="it can't be built")
    file.write(failed)
    assert file.read() == failed
    place(spec)
    assert file.read() is None


def test_an_engine_that_is_built_again_loses_its_verdicts_alone(file: VerdictFile, spec: EngineSpec) -> None:
    VerdictFile(spec, 1).write(GOOD)
    other = spec_of(spec.model, batch=(4, 4, 4))
    place(other)
    VerdictFile(other, 4).write(GOOD)
    forget(file.engine)
    assert [VerdictFile(spec, batch).read() for batch in (1, 16)] == [None, None]
    assert VerdictFile(other, 4).read() == GOOD
    assert file.engine.is_file() and file.engine.with_suffix(".json").is_file()


CHANGES: list[dict[str, Any]] = [
    {"outcome": "good"},
    {"outcome": ["proven"]},
    {"reason": None},
    {"reason": "two\nlines"},
    {"reason": "two\u2028lines"},
    {"reason": "x" * 1001},
    {"date": 20261124},
    {"iou": None},
    {"iou": "0.99"},
    {"iou": True},
    {"iou": float("nan")},
    {"iou": -1},
    {"tensorrt_ms": float("inf")},
    {"tensorrt_ms": 10**400},
    {"tensorrt_ms": [1]},
    {"more": 1},
    {"about": None},
    {"about": []},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: " ".join(f"{k}={v!s:.9}" for k, v in change.items()))
def test_a_file_that_is_no_verdict_counts_as_none(file: VerdictFile, change: dict[str, Any]) -> None:
    content = json.loads(file.path.read_text())
    file.path.write_text(json.dumps(content))
    assert file.read() == GOOD
    file.path.write_text(json.dumps({**content, **change}))
    assert file.read() is None


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[1]", b"null", b"\xff\xfe", b"[" * 100_000, b"{}", b'{"about": {}}', b"9" * 10_000],
    ids=lambda data: f"{data[:12]!r}",
)
def test_a_file_that_is_no_json_object_counts_as_none(file: VerdictFile, data: bytes) -> None:
    file.path.write_bytes(data)
    assert file.read() is None


def test_what_is_no_file_counts_as_none(file: VerdictFile) -> None:
    file.path.unlink()
    file.path.mkdir()
    assert file.read() is None
    file.path.rmdir()
    os.mkfifo(file.path)  # reading it would wait for a writer
    assert file.read() is None


def test_a_missing_key_counts_as_none(file: VerdictFile) -> None:
    content = json.loads(file.path.read_text())
    for key in content:
        file.path.write_text(json.dumps({name: value for name, value in content.items() if name != key}))
        assert file.read() is None, key


def test_a_verdict_that_cannot_be_written_is_said(
    file: VerdictFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.path = tmp_path / "nowhere" / "v.json"
    file.write(GOOD)
    assert [record.getMessage() for record in caplog.records] == [
        f"{file.path}: the verdict on the engine cannot be written (No such file or directory)"
    ]
