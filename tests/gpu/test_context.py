"""The GPU's libraries where one of them can't be loaded."""

import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("cuda.core", reason="cuda-core is not installed")

TWICE = """
for attempt in range(2):
    try:
        import segmentation.gpu.context
    except Exception as exc:
        print(type(exc).__name__)
"""


def test_a_library_that_failed_is_not_imported_again(tmp_path: Path) -> None:
    """CV-CUDA registers its types first, and ends the process where they are there already."""
    (tmp_path / "cvcuda.py").write_text("print('imported')\nraise MemoryError\n", encoding="utf-8")
    code = f"import sys\nsys.path[:0] = {[str(tmp_path), str(ROOT)]!r}\n{TWICE}"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["imported", "MemoryError", "ModuleNotFoundError"]
