"""Reads how much of the processor the control groups of this process may take, as containers limit it.

Both versions of Linux's control groups are read, see cgroups(7) and `Documentation/admin-guide/cgroup-v2.rst`. Each
group on the way to the process's own may have a quota, and the least one counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

_PROC = Path("/proc/self")
_ESCAPE = re.compile(r"\\([0-7]{3})")  # of blanks in the names of mount points


def cpu_quota(proc: Path = _PROC) -> float | None:
    """Returns how many cores this process's control groups may take at a time; `None` without a limit.

    `proc` is the process's folder.
    """
    try:
        groups = (proc / "cgroup").read_text(encoding="utf-8").splitlines()
        mounts = (proc / "mountinfo").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    quotas = [quota for folder in _folders(groups, mounts) if (quota := _quota(folder)) is not None]
    return min(quotas, default=None)


def _folders(groups: list[str], mounts: list[str]) -> Iterator[Path]:
    """Yields the folders of the process's groups that can limit it, and of those above."""
    own: dict[str, str] = {}  # the group's path in the hierarchy of each version
    for line in groups:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            own["cgroup2"] = path
        elif "cpu" in controllers.split(","):
            own["cgroup"] = path
    for line in mounts:
        place, _, source = line.partition(" - ")
        root, mounted = (_ESCAPE.sub(lambda found: chr(int(found[1], 8)), part) for part in place.split()[3:5])
        kind, _, options = source.split(" ", 2)
        if kind not in own or (kind == "cgroup" and "cpu" not in options.split(",")):
            continue
        group = PurePosixPath(own[kind])
        # In a container the mount may begin at the container's own group, which is its root there.
        below = group.relative_to(root) if group.is_relative_to(root) else PurePosixPath()
        yield Path(mounted)
        for folder in (below, *below.parents):
            yield Path(mounted, folder)


def _quota(folder: Path) -> float | None:
    """Returns the cores that a group may take; `None` if it has no limit."""
    with suppress(OSError, ValueError):
        quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
        return None if quota == "max" else int(quota) / int(period)
    with suppress(OSError, ValueError):
        quota = (folder / "cpu.cfs_quota_us").read_text(encoding="utf-8")
        period = (folder / "cpu.cfs_period_us").read_text(encoding="utf-8")
        return None if int(quota) <= 0 else int(quota) / int(period)
    return None
