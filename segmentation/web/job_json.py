"""A job as requests and webhooks get it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from segmentation.web.options import command
from segmentation.web.store import QUEUED, RUNNING, QueuedJob


def job_json(job: QueuedJob) -> dict[str, object]:
    """Returns a job without the places of the server's files, and without its webhook, which may hold a password."""
    shown = asdict(job)
    del shown["source"], shown["target"], shown["webhook"]
    if "project" in job.options:
        shown["options"] = job.options | {"project": Path(str(job.options["project"])).name}
    return shown | {"command": command(job.name, job.options), "under_way": job.state in (QUEUED, RUNNING)}
