"""Engines, built by TensorRT-RTX on the CPU: their sidecars, when they are built again, and refusals.

Running an engine needs a GPU: see tests/engines/test_inference.py.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from detectors import red_yolo
from marks import first
from networks import (
    RED,
    RED_ONLY,
    broken,
    chain,
    make_model,
    model_of,
    node,
    overflow,
    portrait,
    quantized,
    unbuildable,
)
from onnx import TensorProto
from paths import DATA, ROOT, SAMPLE
from program import TIMEOUT, Program, after, cli, file_limit, run_python

from segmentation import BackendError, Config, ConfigError, EngineError
from segmentation.engines.build import obtain, trust
from segmentation.engines.spec import EngineOptions, EngineSpec, check_machine
from segmentation.engines.variant import Variant, choose, installed, serves
from segmentation.gpu.discovery import GpuInfo
from segmentation.models.graph.comparison import MIN_IOU
from segmentation.models.model import load_model
from segmentation.models.sidecar import Sidecar, digest, load_plan, read_sidecar, sidecar_of
from segmentation.system.cache import engine_folder

sys.path.insert(0, str(ROOT / "tools" / "quality"))  # the tools are programs, not a package
BRIGHT = DATA / "bright-dynamic.onnx"
# By name, so that the tests do the same on machines with a GPU.
PROGRAM = [sys.executable, ROOT / "tools" / "build_engine.py", "--variant", "tensorrt_rtx"]
RTX = Variant("tensorrt_rtx", "1.7.1.116")
ADA = GpuInfo("NVIDIA GeForce RTX 4090", (8, 9))
HOPPER = GpuInfo("NVIDIA H200", (9, 0))
TURING = GpuInfo("Tesla T4", (7, 5))
PASCAL = GpuInfo("NVIDIA GeForce GTX 1080", (6, 1))


pytestmark = pytest.mark.usefixtures("folder")  # engines of these tests go there, and not among the user's


@pytest.fixture
def rtx() -> Variant:
    pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed")
    return choose(None, installed(), "tensorrt_rtx", build=True)


def build(*arguments: str | Path, before: str = "") -> subprocess.CompletedProcess[str]:
    """Runs tools/build_engine.py to its end, after the statements `before`. Whatever it was given, it must not show a
    traceback."""
    if before:
        command = [*after(before), *PROGRAM[1:], *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    else:
        done = run_python(*PROGRAM[1:], *arguments)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def piped(command: Sequence[str | Path]) -> Program:
    return Program(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def spec(rtx: Variant, model: Path | str = BRIGHT, **options: Any) -> EngineSpec:
    return EngineSpec(model=model_of(model), options=EngineOptions(**options), variant=rtx)


def content(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(sidecar_of(path).read_text())
    return value


# What is built


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "first"), [((1, 4, 16), -1), ((4, 4, 4), 4)], ids=["dynamic", "static"])
@pytest.mark.parametrize("name", first(2, ["person", "dynamic", "portrait", "static"]))
def test_engines_of_real_networks(rtx: Variant, name: str, batch: tuple[int, int, int], first: int) -> None:
    path: Path | str = name
    if name == "portrait":
        path = portrait()
    elif name != "person":
        path = DATA / f"bright-{name}.onnx"
    wanted = spec(rtx, path, batch=batch)
    engine, built = obtain(wanted)
    assert built and engine.name == wanted.file_name
    plan, sidecar = load_plan(engine)
    model = wanted.model
    assert len(plan) == sidecar.plan_bytes > 5_000
    assert sidecar.input == {
        "name": model.input_name,
        "dtype": "float32",
        "shape": [first, 3, model.height, model.width],
    }
    assert sidecar.output["name"] == model.output_name and sidecar.output["shape"][0] == first
    assert sidecar.batch == list(batch) and sidecar.precision == "fp16"
    assert sidecar.fp16 is not None and sidecar.fp16["iou"] >= MIN_IOU and 0.02 < sidecar.fp16["covered"] < 0.98
    assert tuple(sidecar.labels) == model.labels and tuple(sidecar.mean) == model.mean
    assert sidecar.build_seconds > 0 and sidecar.versions["onnx"] == onnx.__version__
    assert sidecar.checked.startswith(("not run: ", "run on "))
    assert {p.suffix for p in engine.parent.iterdir()} == {".engine", ".json"}


@pytest.mark.slow
def test_a_model_may_say_everything_from_its_sidecar(rtx: Variant) -> None:
    """An engine is a model: the main program takes its meaning from the sidecar, and options win."""
    engine, _ = obtain(spec(rtx, "person", batch=(2, 2, 2)))
    source, model = model_of("person"), model_of(engine)
    for field in fields(source):
        if field.name not in ("name", "path", "batch", "sizes"):  # an engine has one size
            assert getattr(model, field.name) == getattr(source, field.name), field.name
    assert (model.path, model.batch) == (engine, 2)
    assert model_of(engine, labels=("cat",), classes=("cat",)).labels == ("cat",)


@pytest.mark.slow
def test_precision_shows_in_the_plan(rtx: Variant) -> None:
    half, _ = obtain(spec(rtx, "person"))
    full, _ = obtain(spec(rtx, "person", precision="fp32"))
    assert half.stat().st_size < 0.8 * full.stat().st_size
    assert content(full)["fp16"] is None and content(full)["precision"] == "fp32"


def test_the_options_reach_the_builder(rtx: Variant) -> None:
    plans = {
        digest(obtain(spec(rtx, **options))[0].read_bytes())
        for options in (
            {},
            {"compute_capability": (8, 9)},
            {"compute_capability": (12, 0), "optimization_level": 5, "workspace": 64, "aux_streams": 1},
        )
    }
    assert len(plans) == 3


def test_a_quantized_network_is_built_as_it_is(rtx: Variant, tmp_path: Path) -> None:
    engine, _ = obtain(spec(rtx, quantized(tmp_path / "q.onnx")))
    assert content(engine)["precision"] == "quantized" and content(engine)["fp16"] is None


def test_a_network_in_half_precision_is_built_as_it_is(rtx: Variant, tmp_path: Path) -> None:
    engine, _ = obtain(spec(rtx, make_model(tmp_path / "m.onnx", RED, dtype=TensorProto.FLOAT16)))
    assert content(engine)["precision"] == "fp16" and content(engine)["input"]["dtype"] == "float16"


def test_nodes_kept_in_fp32_are_in_the_sidecar(rtx: Variant, tmp_path: Path) -> None:
    engine, _ = obtain(spec(rtx, overflow(tmp_path / "m.onnx")))
    assert "/huge/Mul" in content(engine)["fp16"]["kept_in_fp32"]


# When it is built


def test_the_second_call_builds_nothing(rtx: Variant) -> None:
    engine, built = obtain(spec(rtx))
    before = engine.stat()
    again, built_again = obtain(spec(rtx))
    assert (built, built_again, again) == (True, False, engine)
    assert again.stat().st_mtime_ns == before.st_mtime_ns and again.stat().st_ino == before.st_ino
    _, forced = obtain(spec(rtx), force=True)
    assert forced and engine.stat().st_ino != before.st_ino


def ingredient_jobs(tmp_path: Path) -> dict[str, EngineSpec]:
    """One spec that differs from `base` in each ingredient."""
    base = EngineSpec(model=model_of("person"), options=EngineOptions(), variant=RTX)
    model, options = base.model, base.options
    other = onnx.load(model.path)
    other.doc_string = "other bytes"
    onnx.save(other, tmp_path / "person.onnx")
    trt = replace(base, variant=Variant("tensorrt", "11.4.0"), gpu=ADA)
    return {
        "base": base,
        "onnx": replace(base, model=replace(model, path=tmp_path / "person.onnx")),
        "input size": replace(base, model=replace(model, height=512)),
        "labels": replace(base, model=replace(model, labels=("human",))),
        "mean": replace(base, model=replace(model, mean=(0.0, 0.5, 0.5))),
        "std": replace(base, model=replace(model, std=(1.0, 0.25, 0.25))),
        "channel order": replace(base, model=replace(model, channel_order="bgr")),
        "activation": replace(base, model=replace(model, activation="sigmoid")),
        "precision": replace(base, options=replace(options, precision="fp32")),
        "frames": replace(base, frames=ROOT / "samples" / "astronaut.mp4"),
        "least batch": replace(base, options=replace(options, batch=(2, 4, 16))),
        "best batch": replace(base, options=replace(options, batch=(1, 8, 16))),
        "largest batch": replace(base, options=replace(options, batch=(1, 4, 32))),
        "optimization level": replace(base, options=replace(options, optimization_level=5)),
        "workspace": replace(base, options=replace(options, workspace=64)),
        "streams": replace(base, options=replace(options, aux_streams=1)),
        "compute capability": replace(base, options=replace(options, compute_capability=(8, 6))),
        "Turing": replace(base, gpu=TURING),
        "version": replace(base, variant=Variant("tensorrt_rtx", "1.8.0")),
        "variant": trt,
        "GPU": replace(trt, gpu=replace(ADA, name="NVIDIA L4")),
        "GPU's capability": replace(trt, gpu=replace(ADA, capability=(12, 0))),
        "hardware compatibility": replace(trt, options=replace(options, hardware_compatibility="ampere-plus")),
        "version compatibility": replace(trt, options=replace(options, version_compatible=True)),
    }


def test_each_ingredient_changes_the_fingerprint(tmp_path: Path) -> None:
    jobs = ingredient_jobs(tmp_path)
    prints = {name: one.fingerprint for name, one in jobs.items()}
    assert len(set(prints.values())) == len(jobs), prints
    assert len({one.file_name for one in jobs.values()}) == len(jobs)
    assert ingredient_jobs(tmp_path)["base"].fingerprint == prints["base"]


def test_what_does_not_change_an_engine_does_not_change_the_fingerprint(tmp_path: Path) -> None:
    base = ingredient_jobs(tmp_path)["base"]
    same = [
        replace(base, gpu=ADA),  # TensorRT-RTX's engines are for all
        replace(base, options=replace(base.options, timing_cache=False)),
        replace(base, model=replace(base.model, name="another name")),
    ]
    assert {one.fingerprint for one in same} == {base.fingerprint}


def test_names_can_be_read() -> None:
    base = EngineSpec(model=model_of("person"), options=EngineOptions(), variant=RTX)
    assert base.file_name == f"person-fp16-b1.16-rtx1.7.1.116-any-{base.fingerprint[:12]}.engine"
    trt = EngineSpec(
        model=model_of("person"),
        options=EngineOptions(batch=(4, 4, 4), precision="fp32"),
        variant=Variant("tensorrt", "11.4.0"),
        gpu=ADA,
    )
    assert trt.file_name == f"person-fp32-b4-trt11.4.0-rtx4090-{trt.fingerprint[:12]}.engine"
    assert replace(base, gpu=TURING).file_name.split("-")[4] == "sm75"


def test_networks_of_single_things_have_no_engine(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"red\.onnx: finds single things, which no engine does here"):
        spec(RTX, red_yolo(tmp_path / "red.onnx"))


def test_where_engines_lie(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert engine_folder() == tmp_path / "engines"
    monkeypatch.delenv("SEGMENTATION_ENGINES")
    assert engine_folder() == ROOT / "engines"


def test_an_engine_that_was_built_otherwise_is_built_again(
    rtx: Variant, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = tmp_path / "mine.engine"
    obtain(spec(rtx), target)
    _, built = obtain(spec(rtx, precision="fp32"), target)
    assert built and "its fingerprint is another" in caplog.text
    assert content(target)["precision"] == "fp32"


@pytest.mark.slow
def test_two_processes_make_one_engine(rtx: Variant, folder: Path) -> None:
    command = [*PROGRAM, "person", "-v"]
    with piped(command) as one, piped(command) as other:
        texts = [process.communicate(timeout=TIMEOUT) for process in (one, other)]
    assert (one.returncode, other.returncode) == (0, 0), texts
    assert texts[0][0] == texts[1][0]
    assert sum("build: TensorRT-RTX" in stderr for _, stderr in texts) == 1, texts
    assert sum("is there already" in stderr for _, stderr in texts) == 1, texts
    assert {p.suffix for p in folder.iterdir()} == {".engine", ".json"} and len(list(folder.iterdir())) == 2


def test_a_waiting_process_takes_what_the_other_has_built(rtx: Variant, folder: Path) -> None:
    """The lock is held until the engine is there, so the one that waits finds it and builds nothing."""
    from segmentation.system.cache import locked

    target = folder / "slow.engine"
    folder.mkdir()
    command = [*PROGRAM, BRIGHT, "-v", "-o", target]
    with piped(command) as waiting:
        with locked(target):
            assert waiting.stderr is not None
            seen = ""
            while "waiting" not in seen:
                line = waiting.stderr.readline()
                assert line, seen
                seen += line
            time.sleep(0.2)
            assert waiting.poll() is None and not target.exists()
        _, rest = waiting.communicate(timeout=TIMEOUT)
    assert waiting.returncode == 0 and target.is_file(), seen + rest


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, *(pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGINT, signal.SIGKILL))],
)
def test_an_interrupted_build_leaves_no_engine(rtx: Variant, folder: Path, number: signal.Signals) -> None:
    command = [*PROGRAM, "person", "-v"]
    with piped(command) as process:
        assert process.stderr is not None
        while line := process.stderr.readline():
            if "fold:" in line:  # then FP16 is compared and the plan built, for half a second
                process.send_signal(number)
                break
        _, stderr = process.communicate(timeout=TIMEOUT)
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number), stderr
    assert "Traceback" not in stderr
    left = [p.name for p in folder.iterdir()]
    # Nobody can tidy up after SIGKILL: the empty lock file stays, and does not keep the next build from its work.
    assert left == [] if number != signal.SIGKILL else all(name.endswith(".lock") for name in left)
    done = build("person")
    assert done.returncode == 0, done.stderr
    assert {p.suffix for p in folder.iterdir()} == {".engine", ".json"}


# What is refused


def test_a_changed_plan_is_refused_and_built_again(rtx: Variant, caplog: pytest.LogCaptureFixture) -> None:
    engine, _ = obtain(spec(rtx))
    plan = bytearray(engine.read_bytes())
    plan[len(plan) // 2] ^= 1
    engine.write_bytes(plan)
    with pytest.raises(EngineError, match="is refused: its SHA-256 is not the one in"):
        model_of(engine)
    _, built = obtain(spec(rtx))
    assert built and "is built again" in caplog.text and "SHA-256" in caplog.text
    assert model_of(engine).labels == ("background", "person")


def test_a_plan_without_a_sidecar_is_refused_until_it_is_trusted(rtx: Variant, tmp_path: Path) -> None:
    engine, _ = obtain(spec(rtx), tmp_path / "foreign.engine")
    sidecar_of(engine).unlink()
    with pytest.raises(EngineError, match=r"foreign\.json is not beside it.*can run any code.*--trust"):
        model_of(engine)
    done = build(BRIGHT, "--trust", engine)
    assert (done.returncode, done.stdout.strip()) == (0, str(engine)), done.stderr
    model = model_of(engine)
    assert (model.labels, model.batch, model.height, model.width) == (("background", "person"), None, 48, 64)
    assert content(engine)["checked"].startswith("not built by this program")
    assert content(engine)["output"]["shape"] == [-1, 2, 48, 64]
    engine.write_bytes(engine.read_bytes() + b"\0")  # trusted was that file, not this one
    with pytest.raises(EngineError, match="is refused"):
        model_of(engine)


def test_help_says_what_trust_means() -> None:
    assert "can run any code with your rights" in " ".join(build("--help").stdout.split())


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("{", "cannot be read as JSON"),
        ("[1]", "is not the sidecar of an engine"),
        ('{"labels": ["person"]}', "is not the sidecar of an engine"),
        (None, "has the format 99, this version reads 3"),
    ],
)
def test_broken_sidecars(rtx: Variant, text: str | None, hint: str) -> None:
    engine, _ = obtain(spec(rtx))
    changed = json.dumps({**content(engine), "engine_format": 99})
    sidecar_of(engine).write_text(changed if text is None else text)
    with pytest.raises(EngineError) as caught:
        read_sidecar(engine)
    assert hint in str(caught.value) and "\n" not in str(caught.value)


def test_an_engine_of_an_older_format_is_built_again(
    rtx: Variant, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Format 1 had other keys. Its sidecar still counts as an engine's, which a build may overwrite."""
    engine, _ = obtain(spec(rtx), tmp_path / "mine.engine")
    old = {**content(engine), "engine_format": 1, "flavour": "tensorrt_rtx"}
    del old["variant"]
    sidecar_of(engine).write_text(json.dumps(old))
    with pytest.raises(EngineError, match=r"has the format 1, this version reads 3; build the engine again$"):
        model_of(engine)
    _, built = obtain(spec(rtx), engine)
    assert built and "is built again" in caplog.text and "has the format 1" in caplog.text
    assert model_of(engine).labels == ("background", "person")


def test_the_description_of_an_onnx_is_not_overwritten(rtx: Variant, tmp_path: Path) -> None:
    path = make_model(tmp_path / "m.onnx", RED)
    path.with_suffix(".json").write_text('{"labels": ["red"]}')
    with pytest.raises(EngineError, match=r"its sidecar would overwrite .*m\.json.*choose another name"):
        obtain(spec(rtx, path), tmp_path / "m.engine")
    with pytest.raises(EngineError, match="would overwrite"):
        (tmp_path / "m.engine").write_bytes(b"plan")
        trust(tmp_path / "m.engine", spec(rtx, path))
    assert model_of(path).labels == ("red",)


def one_line(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The error of a run that must have failed with this code: one line, the last."""
    assert done.returncode == code, done.stderr
    lines = [line for line in done.stderr.splitlines() if "error:" in line]
    assert len(lines) == 1 and done.stderr.splitlines()[-1] == lines[0], done.stderr
    return lines[0].partition("error: ")[2]


def test_an_operator_that_tensorrt_lacks_is_named(rtx: Variant, tmp_path: Path) -> None:
    text = one_line(build(unbuildable(tmp_path / "m.onnx")), 1)
    assert "node /number/Det (Det) can't be built by TensorRT-RTX" in text and "--infer torch" in text


def test_a_static_batch_that_is_too_small(rtx: Variant, tmp_path: Path) -> None:
    nodes = [node("Conv", "x kernel", "s"), node("Reshape", "s shape", "y")]
    path = chain(tmp_path / "m.onnx", nodes, {"kernel": RED_ONLY, "shape": np.int64([1, 1, 32, 48])}, batch=1)
    text = one_line(build(path, "--batch", "4"), 1)
    assert "its batch can't be made 4" in text and "/y/Reshape" in text and "--batch 1" in text
    assert build(path, "--batch", "1").returncode == 0


@pytest.mark.parametrize(("kind", "hint"), [("text", "is not an ONNX model"), ("classifier", "no segmentation model")])
def test_what_is_no_segmentation_model(rtx: Variant, tmp_path: Path, kind: str, hint: str) -> None:
    assert hint in one_line(build(broken(tmp_path / "m.onnx", kind)), 1)


def test_a_broken_file(rtx: Variant, tmp_path: Path) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes(BRIGHT.read_bytes()[:1000])
    assert "cut.onnx: is not an ONNX model" in one_line(build(path), 1)
    assert "no such model" in one_line(build(tmp_path / "nowhere.onnx"), 1)


@pytest.mark.parametrize(
    ("limit", "hint"),
    [
        (1_000_000, "its constants can't be folded in"),  # a step's own file has 10.0 MB, the plan in FP32 12.1 MB
        (11_000_000, "p.engine: cannot be written (File too large); 12."),
    ],
)
def test_no_space(rtx: Variant, tmp_path: Path, limit: int, hint: str) -> None:
    arguments = ("person", "--precision", "fp32", "-o", tmp_path / "p.engine")
    text = one_line(build(*arguments, before=file_limit(limit)), 1)
    assert hint in text and "make room" in text
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_may_not_be_written(rtx: Variant) -> None:
    assert "cannot be made" in one_line(build(BRIGHT, "-o", "/proc/x.engine"), 1)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    first(
        3,
        [
            (["person", "-o", "p.plan"], "the name of an engine ends in .engine"),
            (["person", "-o", "nowhere/p.engine"], "the folder nowhere does not exist"),
            (["person", "--batch", "4,2,8"], "must rise"),
            (["person", "--batch", "1,2"], "one number, or least,best,largest"),
            (["person", "--optimization-level", "9"], "must lie in 0 to 5"),
            (["person", "--workspace", "0"], "must be 1 MiB or more"),
            (["person", "--aux-streams", "99"], "must lie in 0 to 7"),
            (["person", "--compute-capability", "9.0"], "TensorRT-RTX does not serve it"),
            (["person", "--version-compatible"], "run on that release alone"),
            (["person", "--hardware-compatibility", "ampere-plus"], "has no such option"),
            (["person", "--frames", "nowhere.mp4"], "no such file"),
            (["person", "--no-weights"], "that is for fcn_resnet50"),
        ],
    ),
    ids=lambda v: " ".join(v[1:]) if isinstance(v, list) else "",
)
def test_options_out_of_range(rtx: Variant, arguments: list[str], hint: str) -> None:
    assert hint in one_line(build(*arguments), 2)


def test_a_missing_package() -> None:
    program = "import sys; sys.modules['onnx'] = None; from segmentation.cli.build_engine import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", program, "person"], capture_output=True, text=True, cwd=ROOT)
    assert "the package onnx is not installed; pip install" in one_line(done, 3)


def test_no_tensorrt_at_all() -> None:
    program = (
        "import sys; sys.modules['tensorrt'] = sys.modules['tensorrt_rtx'] = None\n"
        "from segmentation.cli.build_engine import main; sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", program, "person"], capture_output=True, text=True, cwd=ROOT)
    assert "pip install tensorrt-rtx" in one_line(done, 3)


# Which variant

BOTH = {"tensorrt": "11.4.0", "tensorrt_rtx": "1.7.1"}


@pytest.mark.parametrize(
    ("gpu", "available", "module"),
    [
        (ADA, BOTH, "tensorrt"),
        (ADA, {"tensorrt_rtx": "1.7.1"}, "tensorrt_rtx"),
        (HOPPER, BOTH, "tensorrt"),
        (TURING, {"tensorrt_rtx": "1.7.1"}, "tensorrt_rtx"),
        (HOPPER, {"tensorrt": "10.13.2.6"}, "tensorrt"),
        (GpuInfo("NVIDIA GeForce RTX 5090", (12, 0)), {"tensorrt_rtx": "1.7.1"}, "tensorrt_rtx"),
    ],
)
def test_the_variant_that_serves(gpu: GpuInfo, available: dict[str, str], module: str) -> None:
    variant = choose(gpu, available)
    assert (variant.module, variant.version) == (module, available[module])
    assert choose(gpu, available, module) == variant


@pytest.mark.parametrize(
    ("gpu", "available", "hints"),
    [
        (HOPPER, {"tensorrt_rtx": "1.7.1"}, ["H200 (compute capability 9.0)", "pip install 'tensorrt-cu13>=10.13'"]),
        (HOPPER, {}, ["pip install 'tensorrt-cu13>=10.13'", "TensorRT-RTX serves compute capability 7.5"]),
        (ADA, {}, ["pip install 'tensorrt-cu13>=10.13'", "pip install tensorrt-rtx"]),
        (PASCAL, BOTH, ["7.5 and newer", "GTX 1080 (compute capability 6.1)"]),
        (None, BOTH, ["needs an NVIDIA GPU", "--infer torch or onnxruntime"]),
        (
            HOPPER,
            {"tensorrt": "8.6.1"},
            ["TensorRT 8.6.1 is too old, 10.13 is the least: pip install 'tensorrt-cu13>="],
        ),
        (HOPPER, {"tensorrt_lean": "10.12.0.36"}, ["lean runtime 10.12.0.36 is too old, 10.13 is the least"]),
    ],
)
def test_why_no_variant_serves(gpu: GpuInfo | None, available: dict[str, str], hints: list[str]) -> None:
    with pytest.raises(BackendError) as caught:
        choose(gpu, available)
    assert all(hint in str(caught.value) for hint in hints) and "\n" not in str(caught.value)


def test_what_tensorrt_rtx_serves() -> None:
    rtx = [c for c in ((7, 0), (7, 5), (8, 0), (8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (12, 0), (12, 1))]
    assert [c for c in rtx if serves("tensorrt_rtx", c)] == [(7, 5), (8, 0), (8, 6), (8, 9), (12, 0), (12, 1)]
    assert [c for c in rtx if not serves("tensorrt", c)] == [(7, 0)]


def test_only_tensorrt_rtx_builds_without_a_gpu() -> None:
    assert choose(None, BOTH, build=True).rtx
    assert choose(HOPPER, BOTH, "tensorrt_rtx", build=True).rtx  # for other machines
    with pytest.raises(BackendError, match="H200"):
        choose(HOPPER, BOTH, "tensorrt_rtx")
    with pytest.raises(BackendError, match="builds for the GPU that it runs on"):
        choose(None, BOTH, "tensorrt", build=True)
    with pytest.raises(ConfigError, match="choose from tensorrt, tensorrt_rtx"):
        choose(None, BOTH, "tensorRT", build=True)


def made_for(variant: Variant, gpu: GpuInfo, **options: Any) -> Sidecar:
    """The sidecar of an engine for a machine that is not this one."""
    wanted = EngineSpec(model=model_of(BRIGHT), options=EngineOptions(**options), variant=variant, gpu=gpu)
    empty: dict[str, Any] = {field.name: None for field in fields(Sidecar)}
    said = {"variant": variant.module, "variant_version": variant.version, "ingredients": wanted.ingredients}
    return Sidecar(**{**empty, **said})


TRT = Variant("tensorrt", "11.4.0")
L4 = GpuInfo("NVIDIA L4", (8, 9))


@pytest.mark.parametrize(
    ("sidecar", "variant", "gpu", "reason"),
    [
        (lambda: made_for(RTX, ADA), RTX, L4, None),
        (lambda: made_for(RTX, ADA), RTX, TURING, "was built for any (8.0 and newer), here is Tesla T4"),
        (lambda: made_for(RTX, TURING), RTX, TURING, None),
        (lambda: made_for(RTX, TURING), RTX, ADA, "was built for any (7.5)"),
        (lambda: made_for(RTX, ADA), Variant("tensorrt_rtx", "1.8.0"), ADA, "tensorrt_rtx 1.7.1.116, here is"),
        (lambda: made_for(TRT, ADA), RTX, ADA, "was built by tensorrt 11.4.0, here is tensorrt_rtx"),
        (lambda: made_for(TRT, ADA), TRT, ADA, None),
        (lambda: made_for(TRT, ADA), TRT, L4, "was built for NVIDIA GeForce RTX 4090 (8.9), here is NVIDIA L4"),
        (lambda: made_for(TRT, ADA, hardware_compatibility="same-compute-capability"), TRT, L4, None),
        (lambda: made_for(TRT, ADA, hardware_compatibility="same-compute-capability"), TRT, HOPPER, "(8.9), here is"),
        (lambda: made_for(TRT, ADA, hardware_compatibility="ampere-plus"), TRT, HOPPER, None),
        (lambda: made_for(TRT, ADA, hardware_compatibility="ampere-plus"), TRT, TURING, "here is Tesla T4"),
        (lambda: made_for(TRT, ADA), Variant("tensorrt", "11.5.0"), ADA, "here is tensorrt 11.5.0"),
        (lambda: made_for(TRT, ADA, version_compatible=True), Variant("tensorrt", "11.5.0"), ADA, None),
        (lambda: made_for(TRT, ADA, version_compatible=True), Variant("tensorrt_lean", "11.5.0"), ADA, None),
        (lambda: made_for(TRT, ADA), Variant("tensorrt_lean", "11.4.0"), ADA, "here is tensorrt_lean 11.4.0"),
    ],
)
def test_an_engine_of_another_machine_is_refused(
    sidecar: Callable[[], Sidecar], variant: Variant, gpu: GpuInfo, reason: str | None
) -> None:
    if reason is None:
        check_machine(Path("e.engine"), sidecar(), variant, gpu)
        return
    with pytest.raises(EngineError) as caught:
        check_machine(Path("e.engine"), sidecar(), variant, gpu)
    assert reason in str(caught.value) and "build it again here" in str(caught.value)


# In the main program


def test_the_plan_says_why_tensorrt_does_not_serve() -> None:
    done = cli("--plan", "--infer", "tensorrt", "--device", "cpu")
    assert done.returncode == 3
    line = done.stderr.strip()
    assert "\n" not in line and "infer can't be served here: tensorrt: " in line
    assert "needs an NVIDIA GPU" in line


def test_only_tensorrt_runs_an_engine(rtx: Variant, tmp_path: Path) -> None:
    engine, _ = obtain(spec(rtx), tmp_path / "b.engine")
    done = cli("--plan", "--model", engine, "--infer", "onnxruntime")
    assert done.returncode == 2 and "can't run the engine" in done.stderr
    done = cli("--plan", "--model", engine, "--device", "cpu")
    assert done.returncode == 3 and "infer can't be served here: tensorrt: " in done.stderr


def test_an_engine_is_no_source_of_an_engine(rtx: Variant, tmp_path: Path) -> None:
    engine, _ = obtain(spec(rtx), tmp_path / "b.engine")
    assert "is an engine already" in one_line(build(engine), 2)
    with pytest.raises(Exception, match="leave out --input-size"):
        load_model(Config(model=str(engine), input_size=(64, 64)))


def test_json_is_the_sidecar(rtx: Variant, tmp_path: Path) -> None:
    target = tmp_path / "b.engine"
    done = build(BRIGHT, "-o", target, "--json")
    assert json.loads(done.stdout) == content(target)
    assert not (tmp_path / "engines").exists()


# The figures in the documentation


def test_the_table_is_made_of_what_was_measured() -> None:
    from compare_fp16 import RESULTS, row

    text = (ROOT / "tools" / "lab" / "engines.md").read_text(encoding="utf-8")
    results = json.loads(RESULTS.read_text())["results"]
    assert {result["model"] for result in results} == {"person.onnx", "person-hq.onnx", "prisma-portrait.onnx"}
    for result in results:
        assert row(result) in text


def test_the_tool_measures_both_precisions(rtx: Variant, tmp_path: Path) -> None:
    output = tmp_path / "engines.json"
    command = [
        sys.executable,
        ROOT / "tools" / "quality" / "compare_fp16.py",
        BRIGHT,
        "--frames",
        SAMPLE,
    ]
    done = subprocess.run([*command, "-o", output], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(output.read_text())["results"]
    assert result["comparisons"].keys() == {"picture in the package", "astronaut.mp4"}
    assert all(c["iou"] >= MIN_IOU and c["largest_difference"] > 0 for c in result["comparisons"].values())
    assert all(engine["bytes"] > 5_000 and engine["build_seconds"] > 0 for engine in result["engines"].values())
