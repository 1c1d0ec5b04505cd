"""The quotas of control groups, as containers have them, in folders like those of the kernel."""

from pathlib import Path

import pytest

from segmentation.system import cores
from segmentation.system.cgroups import cpu_quota


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def mount(at: Path, root: str, kind: str, options: str) -> str:
    place = str(at).replace(" ", "\\040")
    return f"33 31 0:30 {root} {place} rw,nosuid shared:9 - {kind} {kind} {options}\n"


@pytest.mark.parametrize(
    ("limits", "cores"),
    [
        ({}, None),
        ({"": "max 100000"}, None),
        ({"a/b": "150000 100000"}, 1.5),
        ({"a": "200000 100000", "a/b": "max 100000"}, 2),  # of the group above
        ({"a": "50000 100000", "a/b": "400000 100000"}, 0.5),
        ({"": "300000 100000", "other": "1000 100000"}, 3),
        ({"a/b": "none"}, None),
    ],
)
def test_the_least_quota_of_version_2_counts(limits: dict[str, str], cores: float | None, tmp_path: Path) -> None:
    top = tmp_path / "sys fs"
    for folder, text in limits.items():
        write(top / folder, cpu__max=f"{text}\n")
    write(tmp_path / "proc", cgroup="0::/a/b\n", mountinfo=mount(top, "/", "cgroup2", "rw"))
    assert cpu_quota(tmp_path / "proc") == cores


def test_a_container_sees_its_own_group_as_the_root(tmp_path: Path) -> None:
    """With a namespace for groups, or without one, where the mount begins at the group."""
    write(tmp_path / "sys", cpu__max="250000 100000\n")
    for group, root in (("/", "/"), ("/docker/1234", "/docker/1234"), ("/../../x", "/")):
        write(tmp_path / "proc", cgroup=f"0::{group}\n", mountinfo=mount(tmp_path / "sys", root, "cgroup2", "rw"))
        assert cpu_quota(tmp_path / "proc") == 2.5


def test_version_1(tmp_path: Path) -> None:
    """Beside version 2 without the controller, as in a hybrid hierarchy."""
    cpu, memory = tmp_path / "cpu,cpuacct", tmp_path / "memory"
    write(cpu, cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    write(cpu / "job", cpu__cfs_quota_us="120000\n", cpu__cfs_period_us="50000\n")
    write(memory / "job", cpu__cfs_quota_us="1\n", cpu__cfs_period_us="50000\n")
    lines = [(cpu, "rw,cpu,cpuacct"), (memory, "rw,memory")]
    mounts = "".join(mount(folder, "/", "cgroup", options) for folder, options in lines)
    mounts += mount(tmp_path / "unified", "/", "cgroup2", "rw")
    write(tmp_path / "proc", cgroup="5:cpu,cpuacct:/job\n4:memory:/job\n0::/\n", mountinfo=mounts)
    assert cpu_quota(tmp_path / "proc") == 2.4


def test_without_control_groups_there_is_no_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None


@pytest.mark.parametrize(("quota", "share"), [(0.5, 1), (1.0, 1), (1.5, 2), (1000.0, None), (None, None)])
def test_cores_are_those_of_the_quota(quota: float | None, share: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: set(range(4)), raising=False)
    monkeypatch.setattr(cores, "_quota", lambda: quota)
    assert cores.core_count() == (share or 4)
