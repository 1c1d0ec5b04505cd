"""Exceptions of GPU libraries are translated by their types, and by their texts where a library has no types."""

import gc
import sys
import weakref
from types import ModuleType

import pytest

from segmentation.errors import DeviceError, DeviceMemoryError, InputError
from segmentation.gpu.errors import gpu_errors, translate_gpu_error


class Payload:
    """Stands for the memory of a failed run."""


@pytest.fixture
def fake_torch(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    torch = ModuleType("torch")
    vars(torch).update(
        OutOfMemoryError=type("OutOfMemoryError", (RuntimeError,), {}),
        AcceleratorError=type("AcceleratorError", (RuntimeError,), {}),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


def test_the_type_decides_where_a_library_has_one(fake_torch: ModuleType) -> None:
    assert type(translate_gpu_error(fake_torch.OutOfMemoryError("no words of it"))) is DeviceMemoryError
    assert type(translate_gpu_error(fake_torch.AcceleratorError("no words of it"))) is DeviceError
    assert type(translate_gpu_error(fake_torch.AcceleratorError("CUDA error: out of memory"))) is DeviceMemoryError
    of_another = type("AcceleratorError", (RuntimeError,), {})
    assert translate_gpu_error(of_another("no words of it")) is None


def test_the_drivers_own_errors_are_known_by_type() -> None:
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
    from segmentation.gpu.cuda_calls import DriverError

    assert type(translate_gpu_error(DriverError("no words of it"))) is DeviceError
    memory = translate_gpu_error(DriverError("CUDA_ERROR_OUT_OF_MEMORY where an event is made"))
    assert type(memory) is DeviceMemoryError


def test_a_failed_compilation_is_no_failure_of_the_gpu() -> None:
    pytest.importorskip("cuda.core", reason="cuda-core is not installed")
    from cuda.core._utils.cuda_utils import CUDAError, NVRTCError

    assert type(translate_gpu_error(CUDAError("unknown"))) is DeviceError
    assert translate_gpu_error(NVRTCError("NVRTC_ERROR_COMPILATION")) is None


def test_translated_errors_come_from_their_originals() -> None:
    original = RuntimeError("CUDA error: an illegal memory access was encountered")
    with pytest.raises(DeviceError, match="illegal memory access") as caught, gpu_errors():
        raise original
    assert caught.value.__cause__ is original


@pytest.mark.parametrize(
    "original",
    [ValueError("shapes don't match"), InputError("CUDA error.mp4: no such file"), DeviceError("the GPU failed")],
)
def test_other_errors_pass_unchanged(original: Exception) -> None:
    with pytest.raises(type(original)) as caught, gpu_errors():
        raise original
    assert caught.value is original and original.__cause__ is None


@pytest.mark.parametrize("text", ["CUDA out of memory", "shapes don't match"])
def test_what_the_failed_frame_held_is_free_without_the_collector(text: str) -> None:
    alive: list[weakref.ref[Payload]] = []

    def fail() -> None:
        payload = Payload()
        alive.append(weakref.ref(payload))
        with gpu_errors():
            raise RuntimeError(text)

    gc.collect()
    gc.disable()
    try:
        with pytest.raises((DeviceError, RuntimeError)) as caught:
            fail()
        del caught
        assert alive[0]() is None
    finally:
        gc.enable()
