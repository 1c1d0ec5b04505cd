"""Files that appear whole or not at all, also in folders that others write in; errors quoted in one line."""

import multiprocessing
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import ROOT

from segmentation import OutputError
from segmentation.errors import one_line
from segmentation.system.atomic_file import PendingFile, write_atomically

COMMITS = 100
OTHER = 54321  # a user's number, without an account
by_root = pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives files to other users")


def written(target: Path, *, overwrite: bool = False) -> PendingFile:
    pending = PendingFile(target, overwrite=overwrite)
    pending.create()
    pending.write(b"new")
    return pending


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


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
        with pytest.raises(
            OutputError, match=r"came into being in the meantime; what this run has written is .*a\.part"
        ):
            pending.commit()
    kept = tmp_path / "a.partial.txt"
    assert (target.read_text(), kept.read_text()) == ("another's", "new")
    kept.write_text("kept before")
    with (
        written(target) as pending,
        pytest.raises(OutputError, match=r"came into being in the meantime; use -y \(overwrite=True\) to replace"),
    ):
        pending.commit()
    assert (target.read_text(), kept.read_text()) == ("another's", "kept before")
    written(target, overwrite=True).commit()
    assert target.read_text() == "new" and {*tmp_path.iterdir()} == {target, kept}


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    target = tmp_path / "a.txt"
    written(target).commit()
    assert list(tmp_path.iterdir()) == [target] and target.read_text() == "new"
    target.write_text("another's")
    with written(target) as pending, pytest.raises(OutputError, match="came into being in the meantime"):
        pending.commit()
    assert target.read_text() == "another's" and (tmp_path / "a.partial.txt").read_text() == "new"


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
from segmentation.system.atomic_file import PendingFile
pending = PendingFile(Path(sys.argv[1]), overwrite=True)
pending.create()
print(pending.path, flush=True)
sys.stdin.read()
"""


def test_leftovers_of_killed_processes_alone_are_removed(tmp_path: Path) -> None:
    target = tmp_path / "a (1).mp4"
    command = [sys.executable, "-c", WRITER, target]
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
            pending.create()
            assert set(tmp_path.iterdir()) == {paths[1], pending.path, *others}
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()


def test_a_pipe_named_like_a_temporary_file_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / ".a.0123abcd.part.mp4"
    os.mkfifo(pipe)
    command = [sys.executable, "-c", WRITER, tmp_path / "a.mp4"]
    subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, check=True, timeout=240)
    assert pipe.is_fifo()


def test_links_named_like_temporary_files_are_not_followed(tmp_path: Path) -> None:
    others, folder = tmp_path / "others", tmp_path / "folder"
    folder.mkdir()
    for path in (others, folder / "file"):
        path.write_text("others'")
    links = [tmp_path / ".a.0123abcd.part.mp4", tmp_path / ".a.0123abce.part.mp4"]
    for link, aim in zip(links, (others, folder), strict=True):
        link.symlink_to(aim)
    with written(tmp_path / "a.mp4") as pending:
        pending.commit()
    assert others.read_text() == (folder / "file").read_text() == "others'" and all(link.is_symlink() for link in links)


@by_root
def test_temporary_files_of_other_users_stay(tmp_path: Path) -> None:
    theirs, mine = tmp_path / ".a.0123abcd.part.mp4", tmp_path / ".a.0123abce.part.mp4"
    for path in (theirs, mine):
        path.touch()
    os.chown(theirs, OTHER, OTHER)
    written(tmp_path / "a.mp4").commit()
    assert theirs.exists() and not mine.exists()


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("link", [False, True])
def test_what_was_put_in_the_place_of_a_temporary_file_is_not_committed(
    overwrite: bool, link: bool, tmp_path: Path
) -> None:
    target, others = tmp_path / "a.mp4", tmp_path / "others"
    others.write_text("others'")
    with written(target, overwrite=overwrite) as pending:
        pending.path.unlink()
        if link:
            pending.path.symlink_to(others)
        else:
            pending.path.write_text("others'")
        pending.write(b"newer")
        with pytest.raises(OutputError, match=r"was replaced by another process while it was written"):
            pending.commit()
    assert not target.exists() and pending.path.read_text() == others.read_text() == "others'"


def test_a_folder_that_became_a_link_gets_nothing(tmp_path: Path) -> None:
    folder, other = tmp_path / "folder", tmp_path / "other"
    for path in (folder, other):
        path.mkdir()
    with written(folder / "a.txt") as pending:
        folder.rename(tmp_path / "moved")
        folder.symlink_to(other)
        (other / pending.path.name).write_text("planted")
        with pytest.raises(OutputError, match="was replaced"):
            pending.commit()
    assert [path.read_text() for path in other.iterdir()] == ["planted"]


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with written(tmp_path / "folder/a.txt") as pending:
        shutil.rmtree(tmp_path / "folder")
        with pytest.raises(FileNotFoundError):
            pending.commit()
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("usual_umask")
def test_a_new_file_has_the_usual_mode_and_a_replaced_one_keeps_its_own(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    write_atomically(target, b"new")
    assert mode(target) == 0o644
    for kept in (0o600, 0o400, 0o664, 0o755):
        target.chmod(kept)
        with written(target, overwrite=True) as pending:
            assert mode(pending.path) == 0o600  # nobody reads what is to be private
            pending.commit()
        assert mode(target) == kept


@pytest.mark.usefixtures("usual_umask")
def test_what_replaces_a_link_is_as_private_as_the_file_behind_it(tmp_path: Path) -> None:
    target, private = tmp_path / "a.txt", tmp_path / "private"
    write_atomically(private, b"old")
    private.chmod(0o600)
    target.symlink_to(private)
    written(target, overwrite=True).commit()
    assert not target.is_symlink() and mode(target) == 0o600 and private.read_bytes() == b"old"


@pytest.mark.usefixtures("usual_umask")
@pytest.mark.parametrize("aim", ["nowhere", "."])
def test_what_replaces_a_link_to_no_file_has_the_usual_mode(aim: str, tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.symlink_to(aim)
    written(target, overwrite=True).commit()
    assert not target.is_symlink() and mode(target) == 0o644


def test_other_names_of_a_replaced_file_keep_it(tmp_path: Path) -> None:
    target, other = tmp_path / "a.txt", tmp_path / "b.txt"
    other.write_text("old")
    os.link(other, target)
    written(target, overwrite=True).commit()
    assert (target.read_text(), other.read_text()) == ("new", "old")


@by_root
def test_a_replaced_file_keeps_its_owner_where_that_is_permitted(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    target.chmod(0o640)
    os.chown(target, OTHER, OTHER + 1)
    written(target, overwrite=True).commit()
    there = target.stat()
    assert (there.st_uid, there.st_gid, mode(target)) == (OTHER, OTHER + 1, 0o640)


REPLACE = """
import os, sys
from pathlib import Path
from segmentation.system.atomic_file import write_atomically
os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
write_atomically(Path(sys.argv[1]), b"new")
"""


@by_root
def test_rights_meant_for_others_are_not_handed_on() -> None:
    """The old file lets its owner's group and everyone write. Its owner is no owner of the new one."""
    folder = Path("/dev/shm") / f"segmentation-{os.getpid()}"  # pytest's own may be entered by one user alone
    folder.mkdir()
    try:
        os.chown(folder, OTHER, OTHER)
        target = folder / "a.txt"
        target.write_text("old")
        target.chmod(0o666)
        subprocess.run([sys.executable, "-c", REPLACE, target, str(OTHER)], cwd=ROOT, check=True)
        assert target.read_text() == "new" and target.stat().st_uid == OTHER and mode(target) == 0o604
    finally:
        shutil.rmtree(folder)


@by_root
def test_another_users_file_in_a_folder_for_everyone_is_not_replaced(tmp_path: Path) -> None:
    """As in /tmp. Root could, and would write what another user has chosen to own."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    target = folder / "a.txt"
    target.touch()
    PendingFile(target, overwrite=True).check("-o")
    os.chown(target, OTHER, OTHER)
    with pytest.raises(OutputError, match=r"belongs to another user, in a folder that everyone may write; name anot"):
        PendingFile(target, overwrite=True).check("-o")


def commit_often(target: Path) -> None:
    for _ in range(COMMITS):
        with written(target, overwrite=True) as pending:
            pending.commit()


def leave_often(target: Path) -> None:
    for _ in range(COMMITS):
        written(target, overwrite=True).discard()


def test_runs_on_one_target_lose_no_finished_file(tmp_path: Path) -> None:
    """Each takes the temporary files of the others for leftovers, if these are unlocked for a moment."""
    context, target = multiprocessing.get_context("spawn"), tmp_path / "a.mp4"
    processes = [context.Process(target=work, args=(target,)) for work in (commit_often, commit_often, leave_often)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert list(tmp_path.iterdir()) == [target] and target.read_bytes() == b"new"


def test_a_fragment_replaces_no_file_that_came_into_being(tmp_path: Path) -> None:
    target = tmp_path / "a.mp4"
    with written(target, overwrite=True) as pending:
        target.write_text("complete")
        assert pending.commit(fragment=True) == tmp_path / "a.partial.mp4"
    assert target.read_text() == "complete"


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
