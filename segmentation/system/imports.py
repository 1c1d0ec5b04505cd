"""Imports of libraries by threads that may need the same one at once."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from segmentation.errors import BackendError, one_line
from segmentation.system.installation import install

_importing = threading.RLock()  # an import may lead to another one


def imported(name: str) -> ModuleType:
    """Imports a module while no other thread does so here.

    Python makes a second thread wait for a module that is being imported. cuda-core 1.2 undoes that: it replaces its
    module's `__spec__`, and the second thread gets half of it, which ends in an `ImportError`.
    """
    with _importing, _uncollected():
        return import_module(name)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keeps Python from looking for garbage. Modules are none, and looking takes a tenth of PyTorch's import."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def loaded(name: str, attribute: str, extra: str = "gpu") -> Any:
    """Returns an attribute of a module of this package that may need libraries of an extra.

    Raises `BackendError` if one of them is missing or can't be loaded.
    """
    try:
        return getattr(imported(name), attribute)
    except ModuleNotFoundError as exc:
        raise BackendError(f"the package {exc.name} is not installed; {install(extra)}") from exc
    except Exception as exc:  # other errors of loading a GPU library have no common class
        raise BackendError(f"{name} can't be loaded ({one_line(exc)})") from exc
