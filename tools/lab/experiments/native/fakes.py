"""Stand-ins for what machines without a GPU lack, in host memory: imported before the native decoder."""

import sys
import types
from typing import Any

import torch


class Missing(types.ModuleType):
    """A library that only machines with a GPU have."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


for name in (
    "cvcuda",
    "PyNvVideoCodec",
    "cuda",
    "cuda.core",
    "cuda.core.utils",
    "cuda.bindings",
    "cuda.bindings.driver",
):
    sys.modules[name] = Missing(name)
    if "." in name:
        setattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2], sys.modules[name])
sys.modules["cuda.bindings.driver"].CUresult = types.SimpleNamespace(CUDA_ERROR_NOT_READY=600)  # type: ignore[attr-defined]
sys.modules["PyNvVideoCodec"].__version__ = "0"

from segmentation.gpu import plane_pool  # noqa: E402
from segmentation.stages.decode import nvdec  # noqa: E402


class Event:
    def query(self) -> bool:
        return True


class FakeGpu:
    """`Gpu`, in host memory."""

    index, stream = 0, types.SimpleNamespace(cuda_stream=0)

    def enter(self) -> None: ...
    def wait_event(self, event: Any) -> None: ...
    def record_event(self) -> Event:
        return Event()

    def with_own_stream(self) -> "FakeGpu":
        return self

    def free_bytes(self) -> int:
        return 2**30

    def copy(self, target: Any, source: Any) -> None:
        target[...] = source

    def kernels(self, *_: Any) -> Any:
        handle = types.SimpleNamespace(handle=1)
        return types.SimpleNamespace(_loaded={"unpack": handle})

    def plane_pool(self, shapes: Any, dtype: Any, reader: Any = None) -> Any:
        return plane_pool.PlanePool(self, shapes, dtype, reader)

    def empty_planes(self, shapes: Any, dtype: Any) -> Any:
        return tuple(torch.empty(shape, dtype=dtype) for shape in shapes)


class FakeLog:
    def count(self) -> int:
        return 0


nvdec.nvdec_engines = lambda config, info: 7
nvdec.damage_log = FakeLog
