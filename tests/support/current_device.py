"""A stand-in for PyTorch's current CUDA device, on machines that have none."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest


class FakeCuda(ModuleType):
    """What of `torch.cuda` keeps and changes the current device."""

    def __init__(self, *, initialized: bool) -> None:
        super().__init__("torch.cuda")
        self.current = 0
        self.is_initialized = lambda: initialized

    def current_device(self) -> int:
        return self.current

    @contextmanager
    def device(self, index: int) -> Iterator[None]:
        before, self.current = self.current, index
        try:
            yield
        finally:
            self.current = before

    def empty_cache(self) -> None: ...


def fake_cuda(monkeypatch: pytest.MonkeyPatch, *, initialized: bool) -> FakeCuda:
    """Puts the stand-in in PyTorch's place."""
    torch, cuda = ModuleType("torch"), FakeCuda(initialized=initialized)
    torch.cuda, torch.Tensor = cuda, type("Tensor", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
    return cuda
