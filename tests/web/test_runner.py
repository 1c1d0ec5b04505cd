"""When the queue takes jobs."""

from pathlib import Path

import pytest

from segmentation.web import runner
from segmentation.web.runner import JobRunner
from segmentation.web.store import QUEUED, QueuedJob, Store


def test_it_says_why_it_takes_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    jobs = JobRunner(store, 0, {}, 60, 1 << 30, lambda: None)
    with jobs:
        assert jobs.refusal() == ""
        monkeypatch.setattr(runner, "MOST_QUEUED", 1)
        store.add(QueuedJob("1", "a.mp4", "a.mp4", {}))
        assert store.counts()[QUEUED] == 1 and jobs.refusal() == "1 jobs wait already"
        monkeypatch.setattr(runner, "MOST_QUEUED", 2)
        monkeypatch.setattr(runner, "LEAST_FREE", 1 << 60)
        assert "the disk of the work folder has less than" in jobs.refusal()
    assert jobs.refusal() == "the server is shutting down"
    store.close()
