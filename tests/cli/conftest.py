"""Fixtures of the command line's tests."""

import logging
from collections.abc import Iterator

import pytest
from fake_session import FakeSegmenter

from segmentation.cli import main as module


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> type[FakeSegmenter]:
    """The class that takes the place of the session."""
    monkeypatch.setattr(FakeSegmenter, "made", [], raising=False)
    monkeypatch.setattr(FakeSegmenter, "during", staticmethod(lambda stop: None), raising=False)
    monkeypatch.setattr(module, "Segmenter", FakeSegmenter)
    return FakeSegmenter


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """The command sets the level and the handlers of the process's log, which later tests read."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    root.handlers[:] = handlers
