"""The folder of an output's pieces, in a folder that others may write."""

import os
from pathlib import Path

import pytest

from segmentation import OutputError
from segmentation.scale.piece_folder import PieceFolder
from segmentation.scale.plan import VideoPlan

PLAN: VideoPlan = None  # type: ignore[assignment]  # a refused folder gets none


def test_a_planted_link_leads_nowhere(tmp_path: Path) -> None:
    others = tmp_path / "others"
    others.mkdir()
    for name in ("file", "plan.json", "000000.piece"):
        (others / name).touch()
    folder = PieceFolder.beside(tmp_path / "out.mp4")
    folder.path.symlink_to(others)
    with pytest.raises(OutputError, match=r"\.out\.mp4\.pieces: is no folder, but has the name of one that is needed"):
        folder.begin(PLAN)
    with pytest.raises(OutputError, match="is no folder"):
        folder.plan()
    folder.remove()
    assert len(list(others.iterdir())) == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives files to other users")
def test_another_users_folder_is_refused(tmp_path: Path) -> None:
    folder = PieceFolder.beside(tmp_path / "out.mp4")
    folder.path.mkdir()
    os.chown(folder.path, 54321, 54321)
    with pytest.raises(OutputError, match="belongs to another user; remove it, or name another output"):
        folder.begin(PLAN)


def test_files_of_others_in_the_folder_stay(tmp_path: Path) -> None:
    folder = PieceFolder.beside(tmp_path / "out.mp4")
    folder.path.mkdir()
    for name in ("file", "plan.json", "000000.piece", ".000001.0123abcd.part.piece"):
        (folder.path / name).touch()
    folder.lock()
    folder.remove()
    assert [path.name for path in folder.path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("names", "stays"),
    [
        (("plan.json", "000001.piece"), True),
        (("plan.json", ".000001.0123abcd.part.piece"), False),  # of a worker that was killed
        (("000001.piece",), False),  # made while another thread removed the folder
    ],
)
def test_a_folder_is_left_with_a_complete_piece_alone(names: tuple[str, ...], stays: bool, tmp_path: Path) -> None:
    folder = PieceFolder.beside(tmp_path / "out.mp4")
    folder.path.mkdir()
    for name in names:
        (folder.path / name).touch()
    folder.lock()
    folder.leave()
    assert folder.path.exists() == stays


def test_one_driver_at_a_time(tmp_path: Path) -> None:
    first, second = (PieceFolder.beside(tmp_path / "out.mp4") for _ in range(2))
    first.path.mkdir()
    first.lock()
    with pytest.raises(OutputError, match="another process is at work on this output; wait for its end"):
        second.lock()
    first.release()
    second.lock()
    second.remove()
    assert not first.path.exists()
