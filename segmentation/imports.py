"""Imports of libraries by threads that may want the same one at once."""

import threading
from importlib import import_module
from types import ModuleType

_importing = threading.RLock()  # an import may lead to another one


def imported(name: str) -> ModuleType:
    """Imports a module while no other thread does so here.

    Python makes a second thread wait for a module that is being imported. cuda-core 1.2 undoes that: it replaces its
    module's `__spec__`, and the second thread gets half of it, which ends in an `ImportError`.
    """
    with _importing:
        return import_module(name)
