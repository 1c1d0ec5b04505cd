"""The lock of files that are built once."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from segmentation.cache import locked

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
