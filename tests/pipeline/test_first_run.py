"""The first run on a GPU: all kernels are compiled side by side, and lines say so."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from paths import SAMPLE
from program import start
from videos import video_info

from segmentation import Config
from segmentation.frames import FORMATS
from segmentation.pipeline import first_run

MARK = "preparing the GPU for its first run: "


@pytest.mark.parametrize("interval", [0, 3])
def test_the_programs_of_a_run(interval: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = pytest.importorskip("segmentation.gpu.kernels", reason="cuda-core is not installed")
    from segmentation.interval.kernels import PROPAGATION
    from segmentation.stages.frame_kernels import FRAMES
    from segmentation.stages.inference.compiler.network_kernels import DEPTHWISE, STEM
    from segmentation.stages.masks.mask_kernels import MASKS

    begun: list[Any] = []
    monkeypatch.setattr(kernels, "begin_compiling", begun.extend)
    monkeypatch.setattr(first_run, "arch_of", lambda index: "120")
    plan: Any = SimpleNamespace(infer=SimpleNamespace(name="torch-fp16"), pix_fmt="yuv444p")
    first_run.begin_kernels(plan, video_info(rotation=90), Config(interval=interval), 0)
    assert {program.arch for program in begun} == {"120"} and len(set(begun)) == len(begun)
    frames = [program for program in begun if program.source is FRAMES]
    assert {program.orientation.turns for program in frames} == {0, video_info(rotation=90).orientation.turns}
    assert {program.layout for program in frames} == {FORMATS["yuv444p"]}
    others = {program.source for program in begun} - {FRAMES}
    layers = {STEM, *DEPTHWISE.values()}
    assert others == {MASKS} | layers | ({PROPAGATION} if interval else set())


@pytest.mark.gpu
def test_a_first_run_says_what_it_prepares_and_a_second_one_has_it(folder: Path, tmp_path: Path) -> None:
    """Each program is begun before a stage asks for it: there are as many in the cache as the lines count."""
    said = []
    for name in ("first", "second"):
        with start(SAMPLE, "-o", tmp_path / f"{name}.mp4", "--max-frames", "16") as process:
            assert process.stderr is not None
            stderr = process.stderr.read()  # `communicate` would leave these lines out
            assert process.wait() == 0, stderr
        said.append([line.partition(MARK)[2] for line in stderr.splitlines() if MARK in line])
    kernels = [line for line in said[0] if line.startswith("kernels")]
    assert kernels == [f"kernels {number} of {len(kernels)}" for number in range(1, len(kernels) + 1)]
    assert len(kernels) == 8 and said[1] == []
    assert len([path for path in (folder / "kernels").rglob("*") if path.is_file() and path.stat().st_size > 9999]) == 8
