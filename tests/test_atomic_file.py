"""Files that appear whole or not at all, and errors quoted in one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

from segmentation import OutputError
from segmentation.atomic_file import PendingFile, write_atomically
from segmentation.errors import one_line


def written(target: Path, *, overwrite: bool = False) -> PendingFile:
    pending = PendingFile(target, overwrite=overwrite)
    pending.path.write_text("new")
    return pending


def test_the_target_is_in_the_folder_that_was_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    pending = written(Path("a.txt"))
    assert pending.path.parent == tmp_path and pending.path.suffix == ".txt" and not Path("a.txt").exists()
    monkeypatch.chdir("other")
    pending.commit()
    pending.discard()  # there is nothing left to remove
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["a.txt"]


def test_a_file_that_came_into_being_stays(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    with written(target) as pending:
        target.write_text("another's")
        with pytest.raises(OutputError, match=r"came into being in the meantime; use -y \(overwrite=True\) to replace"):
            pending.commit()
    assert target.read_text() == "another's" and list(tmp_path.iterdir()) == [target]
    written(target, overwrite=True).commit()
    assert target.read_text() == "new" and list(tmp_path.iterdir()) == [target]


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    written(tmp_path / "a.txt").commit()
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_name_as_long_as_names_can_be(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 251 + ".mkv")
    pending = written(target)
    pending.check("-o")
    pending.commit()
    assert target.is_file()
    with pytest.raises(OutputError, match=r"exists already; use -y \(overwrite=True\) to replace it, or -o to name an"):
        pending.check("-o")
    with pytest.raises(OutputError, match="cannot be written"):
        PendingFile(tmp_path / ("n" * 252 + ".mkv"), overwrite=True).check("-o")


WRITER = """
import sys
from pathlib import Path
from segmentation.atomic_file import PendingFile
pending = PendingFile(Path(sys.argv[1]), overwrite=True)
pending.create(folder=len(sys.argv) > 2)
print(pending.path, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("folder", [False, True])
def test_leftovers_of_killed_processes_alone_are_removed(tmp_path: Path, folder: bool) -> None:
    target = tmp_path / "a (1).mp4"
    command = [sys.executable, "-c", WRITER, target, *(["folder"] if folder else [])]
    writers = [subprocess.Popen(command, cwd=ROOT, stdin=-1, stdout=-1, text=True) for _ in range(2)]
    paths = [Path(writer.stdout.readline().strip()) for writer in writers if writer.stdout is not None]
    try:
        assert all(path.exists() for path in paths)  # each has left the other's alone
        writers[0].kill()
        writers[0].wait()
        others = [tmp_path / name for name in (".a (1).0123abcd.part.mkv", ".b.0123abcd.part.mp4", ".a (1).part.mp4")]
        for other in others:
            other.touch()
        with PendingFile(target, overwrite=True) as pending:
            pending.create(folder=folder)
            assert set(tmp_path.iterdir()) == {paths[1], pending.path, *others}
            if folder:
                pending.path.rmdir()
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()


def test_a_failure_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.bin"
    write_atomically(target, b"old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, os.strerror(28))))
    with pytest.raises(OSError, match="No space left"):
        write_atomically(target, b"new")
    assert target.read_bytes() == b"old" and list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(2, "No such file or directory", "a.mp4"), "No such file or directory"),
        (ValueError("one\n  two"), "one two"),
        (KeyError(), "KeyError"),
        ("x" * 201, "x" * 200 + "..."),
    ],
)
def test_foreign_errors_in_one_line(error: BaseException | str, line: str) -> None:
    assert one_line(error) == line


@pytest.mark.parametrize("place", ["/dev/stdout", "/dev/null", "/dev/fd/1", "/proc/self/fd/1", "/dev/none"])
@pytest.mark.parametrize("link", [False, True])
def test_a_device_never_becomes_a_file(place: str, link: bool, tmp_path: Path) -> None:
    target = Path(place)
    if link:
        (tmp_path / "one").symlink_to(place)
        target = tmp_path / "two"
        target.symlink_to("one")
    with pytest.raises(OutputError, match=r"is a device or a link to one"):
        PendingFile(target, overwrite=True).check("--results")


def test_files_in_memory_and_links_to_files_are_no_devices(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "a.txt")
    for target in (tmp_path / "link", Path("/dev/shm/segmentation-test.txt")):
        PendingFile(target, overwrite=True).check("-o")


def test_a_fragment_replaces_no_complete_file(tmp_path: Path) -> None:
    target = tmp_path / "a.mp4"
    assert written(target, overwrite=True).commit(fragment=True) == target
    target.write_text("complete")
    for _ in range(2):
        assert written(target, overwrite=True).commit(fragment=True) == tmp_path / "a.partial.mp4"
    assert target.read_text() == "complete" and (tmp_path / "a.partial.mp4").read_text() == "new"
