"""onnx2torch for tests, on machines too where the torchvision that it imports does not fit PyTorch."""

import sys
from types import ModuleType

import pytest


def need_onnx2torch() -> None:
    """Skips the test where there is no PyTorch or no onnx2torch. Imports the latter."""
    pytest.importorskip("torch", minversion="2", reason="PyTorch is not installed")
    if "onnx2torch" in sys.modules:
        return
    stand_ins = {} if _has_torchvision() else {name: ModuleType(name) for name in ("torchvision", "torchvision.ops")}
    for module in stand_ins.values():
        module.ops, module.roi_align = stand_ins["torchvision.ops"], None  # type: ignore[attr-defined]
    sys.modules.update(stand_ins)
    try:
        pytest.importorskip("onnx2torch", reason="onnx2torch is not installed")
    finally:
        for name in stand_ins:
            del sys.modules[name]


def _has_torchvision() -> bool:
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError):
        return False
    return True
