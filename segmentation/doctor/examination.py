"""All checks in their order, each in a process of its own: a library that crashes or hangs costs one finding."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from segmentation.doctor.finding import FAILED, OK, REPORT, Finding, Request
from segmentation.system.child_process import child_environment

_LONGEST = 1200  # seconds of a check: an engine takes minutes to build
# Implementations that are tried one at a time amid the CPU's own, by stage.
_ON_GPU = {
    "decode": ("nvdec-native", "nvdec"),
    "preprocess": ("cuda",),
    "infer": ("torch-fp16", "tensorrt", "onnxruntime-cuda"),
    "postprocess": ("cvcuda",),
    "encode": ("nvenc", "x264-segments", "jpeg"),
}
_ELSEWHERE = ("openvino", "coreml", "directml", "migraphx", "rocm")  # as in `options.devices`, which needs no library


def examine(device: str | None) -> Iterator[Finding]:
    """Yields the findings, as they come. `device` is that of `Config`; what it names has to work."""
    with TemporaryDirectory(prefix="segmentation-doctor-") as folder:
        request, gpu = Request(device=device, folder=folder), False
        for name in ("machine", "libraries", "codecs"):
            for finding in _run(name, request):
                yield finding
                if finding.name == "GPU":
                    gpu = finding.outcome == OK
        yield from _stages(request, gpu)
        if gpu:
            yield from _run("NVENC", request)
        else:
            yield from _run("engine", request)


def _stages(request: Request, gpu: bool) -> Iterator[Finding]:
    """Yields the findings of runs over a clip: the CPU's, and each other implementation amid the CPU's."""
    reference = list(_run("clip", request))
    yield from reference
    if any(finding.outcome == FAILED for finding in reference):
        return
    tried = [("infer", name) for name in _ELSEWHERE]
    if gpu:
        tried = [(stage, name) for stage, names in _ON_GPU.items() for name in names] + tried + [("run", "auto")]
    for stage, implementation in tried:
        yield from _run("stage", replace(request, stage=stage, implementation=implementation))


def _run(name: str, request: Request) -> Iterator[Finding]:
    """Yields the findings of one check, and one more where its process crashes or hangs."""
    path = Path(request.folder) / "findings"
    path.write_text("", encoding="utf-8")
    command = [sys.executable, "-P", "-m", "segmentation.doctor.check", name, json.dumps(asdict(request)), str(path)]
    how = ""
    try:
        done = subprocess.run(
            command, env=child_environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=_LONGEST
        )
        if done.returncode:
            how = _death(done.returncode, done.stderr.decode(errors="replace"))
    except subprocess.TimeoutExpired:
        how = f"takes longer than {_LONGEST} s, and was ended"
    for line in path.read_text(encoding="utf-8").splitlines():
        yield Finding(**json.loads(line))
    if how:
        title = " ".join(filter(None, (request.stage or name, request.implementation)))
        yield Finding(name=title, outcome=FAILED, detail=how, mend=REPORT)


def _death(code: int, stderr: str) -> str:
    """Says how a process ended, with the last line that it wrote."""
    how = f"its process was ended by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"ended with {code}"
    last = " ".join(stderr.split("\n")[-2:]).strip()
    return f"{how}: {last[:200]}" if last else how
