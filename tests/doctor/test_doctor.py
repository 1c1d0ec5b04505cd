"""`segmentation doctor` as users start it: on this machine, without libraries, with ones that crash or lie."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import standin
from marks import first
from paths import ROOT
from program import cli

from segmentation.doctor.finding import ABSENT, FAILED, OK, Finding, Request, anonymous, failed, refused, report
from segmentation.doctor.pictures import limited_lumas, luma, lumas, moving, psnr, write

CODECS = ("libx264", "libx265", "libsvtav1", "ffv1")
Findings = dict[str, dict[str, Any]]


def examined(*arguments: str | Path, code: int = 0) -> Findings:
    """The findings of the command, by name."""
    return findings_of(cli("doctor", "--json", *arguments), code)


def findings_of(done: subprocess.CompletedProcess[str], code: int = 0) -> Findings:
    assert done.returncode == code, done.stdout + done.stderr
    content = json.loads(done.stdout)
    assert (content["outcome"] == FAILED) == bool(code)
    return {finding["name"]: finding for finding in content["findings"]}


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns a function that puts a module in a library's place."""
    folder = tmp_path / "broken"
    folder.mkdir()

    def breaks(module: str, statements: str) -> None:
        (folder / f"{module}.py").write_text(statements)
        paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))

    return breaks


# Leaves out the two longest checks, which are tested by themselves.
SHORTER = """
import sys
from segmentation.cli.doctor import main
from segmentation.doctor import examination
run = examination._run
examination._run = lambda name, to: () if name == "engine" or to.implementation == "openvino" else run(name, to)
sys.exit(main(sys.argv[1:]))
"""


def test_the_cpus_side_works_and_the_file_names_nobody(tmp_path: Path) -> None:
    file = tmp_path / "doctor.json"
    command = [sys.executable, "-c", SHORTER, "--json", "--device", "cpu", "-o", file]
    findings = findings_of(subprocess.run(command, capture_output=True, text=True, cwd=ROOT))
    assert findings["GPU"]["outcome"] == ABSENT
    assert {findings[name]["outcome"] for name in (*CODECS, "av", "onnxruntime", "run on the CPU")} == {OK}
    run = findings["run on the CPU"]["figures"]
    assert run["frames"] == 48 and 0.2 < run["covered"] < 0.8 and min(run["stages"].values()) > 0
    text = file.read_text()
    assert {one["name"]: one for one in json.loads(text)["findings"]} == findings
    for name in (str(ROOT), str(tmp_path), sys.prefix, os.uname().nodename, str(Path.home())):
        assert name not in text or name == "/", name


def test_the_cpus_part_alone_lacks_no_engine(broken: Any, tmp_path: Path) -> None:
    """As `pip install .` leaves a machine: without the packages that build engines."""
    for module in ("onnx", "tensorrt", "tensorrt_rtx", "tensorrt_lean"):
        broken(module, f"raise ModuleNotFoundError('it is not there', name={module!r})")
    findings, request = tmp_path / "findings", json.dumps({"folder": str(tmp_path)})
    command = [sys.executable, "-P", "-m", "segmentation.doctor.check", "engine", request, str(findings)]
    subprocess.run(command, check=True)
    found = json.loads(findings.read_text())
    assert found["outcome"] == ABSENT and found["detail"] == "TensorRT-RTX is not installed", found


@pytest.mark.slow
def test_openvino_runs_and_an_engine_is_built_where_they_are_installed() -> None:
    pytest.importorskip("openvino")
    pytest.importorskip("tensorrt_rtx")
    findings = examined("--device", "openvino")
    stage = findings["infer openvino"]
    assert stage["outcome"] == OK and stage["figures"]["plan"]["infer"] == "openvino"
    assert stage["figures"]["iou"] > 0.99 and stage["figures"]["covered"] > 0.2
    assert findings["engine"]["outcome"] == OK


@pytest.mark.parametrize("module", first(1, ["numpy", "av", "onnxruntime", "cv2"]))
def test_a_library_that_cannot_be_imported_is_named_with_what_mends_it(module: str, broken: Any) -> None:
    broken(module, f"raise ModuleNotFoundError('it is not there', name={module!r})")
    done = cli("doctor", "--device", "cpu")
    assert done.returncode == 3 and not done.stderr, done.stderr
    rows = done.stdout.splitlines()
    named = [(row, rows[i + 1]) for i, row in enumerate(rows) if row.startswith("failed") and module in row]
    assert named and all("mend: pip install " in mend for _, mend in named), done.stdout
    assert rows[-1].startswith(f"{sum(row.startswith('failed') for row in rows)} failed: ")


def test_the_program_itself_names_the_doctor(broken: Any) -> None:
    broken("av", "raise ImportError('its own library is missing')")
    done = cli("video.mp4")
    assert done.returncode == 3 and len(done.stderr.splitlines()) == 1
    assert "its own library is missing" in done.stderr and "segmentation doctor" in done.stderr


@pytest.mark.slow
def test_a_library_that_crashes_costs_one_finding(broken: Any) -> None:
    broken("lap", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    found = examined("--device", "cpu", code=3)
    assert found["libraries"]["outcome"] == FAILED and "signal 11" in found["libraries"]["detail"]
    assert found["av"]["outcome"] == found["libx264"]["outcome"] == OK  # before and after


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--device", "cdua"), 2, "device 'cdua'"),
        (("-o", "there.json"), 1, "exists already"),
        (("-o", "nowhere/doctor.json"), 1, "does not exist"),
        (("video.mp4",), 2, "unrecognized arguments"),
    ],
)
def test_what_cannot_be_done_is_said_before_any_check(
    arguments: tuple[str, ...], code: int, words: str, tmp_path: Path
) -> None:
    (tmp_path / "there.json").write_text("mine")
    done = cli("doctor", *arguments, cwd=tmp_path)
    assert done.returncode == code and words in done.stderr and not done.stdout
    assert (tmp_path / "there.json").read_text() == "mine"


@pytest.mark.slow
def test_a_gpu_that_is_asked_for_has_to_be_there() -> None:
    if standin.has_driver():
        pytest.skip("there is a driver")
    found = examined("--device", "cuda", code=3)["GPU"]
    assert found["outcome"] == FAILED and "libcuda.so.1" in found["detail"] and "install it" in found["mend"]


@pytest.mark.slow
def test_nvenc_encodes_and_its_default_qualities_are_measured(tmp_path: Path) -> None:
    """By the stand-in, behind which x264, x265 and libaom encode."""
    standin.build()
    findings = tmp_path / "findings"
    request = json.dumps({"folder": str(tmp_path)})
    smaller = "nvenc._SIZES, nvenc._COUNT, nvenc._SIZE = ((640, 360), (4224, 160)), 12, (320, 192)"  # quick to encode
    program = f"from segmentation.doctor import check, nvenc; {smaller}; check.main()"
    command = [sys.executable, "-c", program, "NVENC", request, str(findings)]
    env = {**standin.environment(LOG=str(tmp_path / "log")), "SEGMENTATION_ENGINES": str(tmp_path / "engines")}
    subprocess.run(command, env=env, check=True)
    found = [json.loads(line) for line in findings.read_text().splitlines()]
    assert [one["name"] for one in found] == ["h264_nvenc", "hevc_nvenc", "av1_nvenc"]
    for one in found:
        assert one["outcome"] == OK and "640x360" in one["detail"], one
        figures = one["figures"]
        assert figures["psnr"] > 35 and figures["cpu_psnr"] > 35 and min(figures["kbits"], figures["cpu_kbits"]) > 20
    assert ["4224x160" in one["detail"] for one in found] == [False, True, True]  # H.264's limit is 4096
    served = [session for session in standin.sessions(tmp_path) if session["submitted"]]
    assert {session["submitted"] for session in served} == {3, 12}  # those of sizes, and those of qualities


@pytest.mark.slow
def test_a_stage_with_another_result_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from segmentation.doctor import stages
    from segmentation.pipeline.planning.implementations import IMPLEMENTATIONS, Implementation
    from segmentation.stages.postprocess.opencv import OpenCVPostprocessor

    class Blind(OpenCVPostprocessor):
        """Applies the effect to people, too."""

        def __call__(self, batch: Any) -> Any:
            batch.masks[:] = 0
            return super().__call__(batch)

    monkeypatch.setattr(stages, "blind", Blind, raising=False)
    monkeypatch.setitem(IMPLEMENTATIONS["postprocess"], "blind", Implementation("segmentation.doctor.stages:blind"))
    request = Request(folder=str(tmp_path), device="cpu")
    assert [finding.outcome for finding in stages.make_clip(request)] == [OK]
    right, wrong = (
        next(stages.check(Request(folder=str(tmp_path), device="cpu", stage="postprocess", implementation=name)))
        for name in ("opencv", "blind")
    )
    assert right.outcome == OK and right.figures["psnr"] == 99
    assert wrong.outcome == FAILED and "dB" in wrong.detail and wrong.mend


def test_remedies_stand_behind_the_last_semicolon() -> None:
    assert refused("a", "x is old; y is new; install y") == Finding(
        name="a", outcome=FAILED, detail="x is old; y is new", mend="install y"
    )
    assert refused("a", "memory is full", ABSENT) == Finding(name="a", outcome=ABSENT, detail="memory is full")


def test_reports_have_no_paths_and_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "erika")
    text = "/home/erika/My.engine: libcuda.so.1 of '/usr/lib/x86_64/libcuda.so.1', erika's 3/4, NVIDIA/CUDA"
    assert anonymous(text) == "PATH: libcuda.so.1 of 'libcuda.so.1', USER's 3/4, NVIDIA/CUDA"
    finding = Finding(name="a", outcome=FAILED, detail="~/x fails", mend=r"delete C:\erika\x", figures={"at": ["/x/y"]})
    content = report([finding], "1")
    assert content["findings"] == [
        {"name": "a", "outcome": FAILED, "detail": "PATH fails", "mend": "delete PATH", "figures": {"at": ["PATH"]}}
    ]
    assert failed([finding]) and content["outcome"] == FAILED


def test_full_range_is_compared_as_limited(tmp_path: Path) -> None:
    frames = list(moving(3, (320, 180)))
    path = tmp_path / "full.mkv"
    write(path, [frame.reformat(format="yuvj420p") for frame in frames], "mjpeg", {"qscale": "2"})
    expected = [luma(frame) for frame in frames]
    assert psnr(expected, limited_lumas(path)) > 35 > psnr(expected, lumas(path))


@pytest.mark.gpu
def test_each_stage_runs_on_the_gpu() -> None:
    done = cli("doctor", "--json", "--device", "cuda", timeout=900)
    found = {one["name"]: one for one in json.loads(done.stdout)["findings"]}
    stages = ("decode nvdec", "preprocess cuda", "infer torch-fp16", "postprocess cvcuda", "encode jpeg", "run auto")
    assert {name: found[name]["detail"] for name in stages if found[name]["outcome"] != OK} == {}
