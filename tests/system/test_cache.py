"""The lock of files that are built once."""

import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from segmentation.system.cache import keep, locked, read_kept

HOLDERS, ROUNDS = 16, 50


def test_a_lock_that_many_want_has_one_holder_at_a_time(tmp_path: Path) -> None:
    """Each holder removes the lock's file, while others wait for it, open it and make it anew."""
    path, count = tmp_path / "file", tmp_path / "count"
    count.write_text("0")

    def work(_: int) -> None:
        for _ in range(ROUNDS):
            with locked(path):
                number = int(count.read_text())
                time.sleep(0.0001)
                count.write_text(str(number + 1))

    with ThreadPoolExecutor(HOLDERS) as pool:
        list(pool.map(work, range(HOLDERS)))
    assert int(count.read_text()) == HOLDERS * ROUNDS and list(tmp_path.iterdir()) == [count]


@pytest.mark.parametrize("link", [False, True])
def test_what_has_the_name_of_a_lock_is_not_trusted(link: bool, tmp_path: Path) -> None:
    planted = tmp_path / ".file.lock"
    planted.symlink_to(tmp_path / "made") if link else os.mkfifo(planted)
    with pytest.raises(OSError, match=r"symbolic links|is no regular file"), locked(tmp_path / "file"):
        pass
    assert list(tmp_path.iterdir()) == [planted]


def test_a_file_is_read_if_it_is_the_one_that_was_kept(tmp_path: Path) -> None:
    path = tmp_path / "cache/folder/file"
    assert read_kept(path) is None
    keep(path, b"data")
    assert read_kept(path) == b"data"
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in (path.parent, path.parent.parent)} == {0o700}
    path.write_bytes(b"date")
    assert read_kept(path) is None
    path.write_bytes(b"data")
    path.with_name("file.sha256").unlink()
    assert read_kept(path) is None
