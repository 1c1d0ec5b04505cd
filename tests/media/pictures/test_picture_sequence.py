"""The temporary folder of numbered pictures, in a folder that others may write."""

import os
from pathlib import Path

import pytest

from segmentation import OutputError
from segmentation.media.pictures.picture_sequence import PendingSequence


def pending(folder: Path, *, overwrite: bool = False) -> PendingSequence:
    made = PendingSequence(folder / "%d.png", overwrite=overwrite)
    made.create()
    for number in (1, 2):
        Path(made.address, f"part-{number}.png").write_text("new")
    return made


def test_pictures_get_their_names_and_modes(tmp_path: Path) -> None:
    (tmp_path / "2.png").write_text("old")
    (tmp_path / "2.png").chmod(0o600)
    assert pending(tmp_path, overwrite=True).commit() == tmp_path / "%d.png"
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"1.png": "new", "2.png": "new"}
    assert (tmp_path / "2.png").stat().st_mode & 0o777 == 0o600


def test_pictures_that_came_into_being_stay(tmp_path: Path) -> None:
    with pending(tmp_path) as pictures:
        (tmp_path / "2.png").write_text("another's")
        with pytest.raises(OutputError, match="came into being in the meantime"):
            pictures.commit()
    assert [path.read_text() for path in tmp_path.iterdir()] == ["another's"]


def test_pictures_of_killed_processes_alone_are_removed(tmp_path: Path) -> None:
    left, folder = tmp_path / ".%d.0123abcd.part.png", tmp_path / ".%d.0123abcd.part.png.pictures"
    left.touch()
    folder.mkdir()
    for name in ("part-1.png", "1.png"):
        (folder / name).touch()
    used = pending(tmp_path)
    pending(tmp_path).discard()
    assert [path.name for path in folder.iterdir()] == ["1.png"]  # somebody's own
    used.commit()
    assert (tmp_path / "1.png").exists()


def test_a_swapped_folder_gets_no_pictures(tmp_path: Path) -> None:
    others = tmp_path / "others"
    others.mkdir()
    with pending(tmp_path) as pictures:
        folder = Path(f"{pictures.path}.pictures")
        folder.rename(tmp_path / "moved")
        folder.symlink_to(others)
        Path(pictures.address, "part-3.png").write_text("new")
    assert not list(others.iterdir()) and len(os.listdir(tmp_path / "moved")) == 3
