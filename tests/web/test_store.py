"""What the work folder keeps, and for how long."""

from pathlib import Path

import pytest

from segmentation.errors import OutputError
from segmentation.web.store import DONE, QueuedJob, Store, StoredInput


def test_the_oldest_goes_first_and_what_a_job_reads_stays(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number in range(4):
        with store.new_folder("inputs") as folder:
            (folder / "input").write_bytes(bytes(1000))
            upload = store.add_input(StoredInput(folder.name, f"{number}.mp4", str(folder / "input")))
        store.add(QueuedJob(str(number), upload.name, upload.path, {}))
        if number:
            (tmp_path / "jobs" / str(number)).mkdir()
            (tmp_path / "jobs" / str(number) / "out.mp4").write_bytes(bytes(1000))
            store.end(str(number), DONE, output="out.mp4")
    store.tidy(age=3600, size=5500)
    assert [one.name for one in store.inputs()] == ["3.mp4", "2.mp4", "0.mp4"]
    assert [job.id for job in store.jobs()] == ["3", "2", "1", "0"]
    asked: list[str] = []
    store._rows.set_trace_callback(asked.append)
    store.tidy(age=3600, size=5500)
    assert len(asked) == 2  # however many there are: a thousand jobs looked through all jobs for each input
    store.tidy(age=3600, size=0)
    assert [one.name for one in store.inputs()] == ["0.mp4"]
    assert [job.id for job in store.jobs()] == ["0"] and list((tmp_path / "jobs").iterdir()) == []
    store.close()


def test_files_are_removed_where_rows_cannot_be(tmp_path: Path) -> None:
    """A full disk has to be freed first."""
    store = Store(tmp_path)
    store.add(QueuedJob("1", "a.mp4", "a.mp4", {}))
    (tmp_path / "jobs" / "1").mkdir()
    (tmp_path / "jobs" / "1" / "out.mp4").write_bytes(bytes(1000))
    store.end("1", DONE, output="out.mp4")
    store._rows.execute("PRAGMA query_only = ON")
    with pytest.raises(OutputError, match=r"the work folder can't be written \(attempt to write a readonly database\)"):
        store.forget("1")
    assert list((tmp_path / "jobs").iterdir()) == []
    store._rows.execute("PRAGMA query_only = OFF")
    store.forget("1")
    assert store.jobs() == []
    store.close()
