"""Threads that want a library at the same time get all of it."""

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
