"""The records of implementations, by which the plan chooses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from segmentation import BackendError, Config
from segmentation.gpu.discovery import find_gpu
from segmentation.pipeline.planning.implementations import IMPLEMENTATIONS, candidates
from segmentation.pipeline.planning.plan import make_plan


@pytest.mark.parametrize(
    ("mode", "instances", "names"),
    [
        ("baseline", False, ("torch", "onnxruntime")),
        ("optimized", False, ("tensorrt", "torch-fp16")),
        ("auto", False, ("tensorrt", "torch-fp16", "onnxruntime-cuda", "torch", "onnxruntime")),
        ("baseline", True, ("instances",)),
        ("optimized", True, ("torch-instances",)),
        ("auto", True, ("torch-instances", "onnxruntime-cuda", "instances")),
    ],
)
def test_the_best_that_can_infer_is_tried_first(mode: str, instances: bool, names: tuple[str, ...]) -> None:
    assert candidates("infer", mode, instances=instances) == names


@pytest.mark.parametrize("stage", IMPLEMENTATIONS)
def test_a_record_names_others_of_its_stage(stage: str) -> None:
    known = IMPLEMENTATIONS[stage]
    for one in known.values():
        assert {one.live, one.substitute, one.fallback} - {""} <= known.keys()


def test_the_environment_stays_as_it_is_until_a_session_begins() -> None:
    name = "PYTORCH_CUDA_ALLOC_CONF"
    program = f"""
import os
from segmentation.sessions.session import Segmenter
assert {name!r} not in os.environ
Segmenter().close()
assert "pinned_num_register_threads" in os.environ[{name!r}]
"""
    environment = {key: value for key, value in os.environ.items() if key != name}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


def test_a_run_on_the_cpu_does_not_import_pytorch(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("from pathlib import Path; Path(__file__).with_suffix('.asked').touch()")
    program = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(tmp_path)!r})
from segmentation.options.config import Config
from segmentation.pipeline.planning.plan import make_plan
assert make_plan(Config(device="cpu")).infer.name == "onnxruntime"
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    assert not (tmp_path / "torch.asked").exists()


@pytest.mark.skipif(find_gpu() is not None, reason="there is a GPU")
def test_a_reason_of_several_is_said_once() -> None:
    with pytest.raises(BackendError) as caught:
        make_plan(Config(mode="optimized"))
    assert str(caught.value).startswith("--optimized: infer can't be served here: tensorrt, torch-fp16: there is no ")
    assert str(caught.value).count("NVIDIA driver") == 1
