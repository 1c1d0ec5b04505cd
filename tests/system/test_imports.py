"""Threads that want a library at the same time get all of it."""

import gc
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from segmentation.system.imports import imported

# As cuda-core 1.2 does, this module replaces its own description, by which Python tells that it is not complete yet.
MODULE = """
import time

__spec__ = None
time.sleep(0.3)
ready = True
"""


def test_a_second_thread_waits_for_the_whole_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_a_library.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "half_a_library", raising=False)
    with ThreadPoolExecutor(8) as threads:
        found = threads.map(lambda _: imported("half_a_library").ready, range(8))
        assert list(found) == [True] * 8


def test_no_garbage_is_looked_for_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inner_library.py").write_text("import gc\nlooked = gc.isenabled()\n", encoding="utf-8")
    outer = "from segmentation.system.imports import imported\nlooked = imported('inner_library').looked\n"
    (tmp_path / "outer_library.py").write_text(outer + "import gc\nlater = gc.isenabled()\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("inner_library", "outer_library"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert gc.isenabled()
    found = imported("outer_library")
    assert not found.looked and not found.later and gc.isenabled()
    with pytest.raises(ModuleNotFoundError):
        imported("no_library_of_this_name")
    assert gc.isenabled()
