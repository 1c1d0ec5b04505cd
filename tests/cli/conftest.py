"""Fixtures of the command line's tests."""

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
