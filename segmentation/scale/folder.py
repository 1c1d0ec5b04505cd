"""The folder `.<target>.pieces/` beside an output: the plan and the pieces so far, from which the work goes on."""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path

from segmentation.atomic_file import write_atomically
from segmentation.errors import InputError, OutputError, one_line
from segmentation.scale.piece_file import PieceFile
from segmentation.scale.plan import VideoPlan

_PLAN = "plan.json"
_NAME = 200  # characters of the target's name, so that the folder's name is not too long


class PieceFolder:
    """The pieces of one output. Raises `OutputError` where the folder can't be written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    @staticmethod
    def beside(target: Path) -> PieceFolder:
        """Returns the folder of an output, which need not exist."""
        return PieceFolder(target.absolute().with_name(f".{target.name[:_NAME]}.pieces"))

    def begin(self, plan: VideoPlan) -> VideoPlan:
        """Makes the folder, or goes on with what it holds of the same work. Returns the plan to follow.

        The folder is locked until `release` or `remove`.
        """
        try:
            self.path.mkdir(exist_ok=True)
            self.lock()
            if (known := self._known()) is not None and known.is_same_work(plan):
                return known
            for file in self.path.iterdir():
                file.unlink()
            write_atomically(self.path / _PLAN, plan.as_json().encode())
            return plan
        except OSError as exc:
            raise OutputError(f"{self.path}: cannot be written ({one_line(exc)})") from exc

    def plan(self) -> VideoPlan:
        """Returns the plan. Raises `InputError` where there is none."""
        known = self._known()
        if known is None:
            raise InputError(f"{self.path}: holds no plan of this version; make it with segmentation-pieces plan")
        return known

    def file(self, number: int) -> Path:
        """Returns the path of a piece."""
        return self.path / f"{number:06}.piece"

    def done(self, plan: VideoPlan, numbers: range | None = None) -> set[int]:
        """Returns the numbers of the pieces that are there, of all or of some. Removes damaged ones."""
        found = set()
        for number in numbers or range(len(plan.pieces)):
            if self.file(number).exists():
                try:
                    with PieceFile(self.file(number)):
                        found.add(number)
                except OutputError:
                    self.file(number).unlink()
        return found

    def lock(self) -> None:
        """Keeps other drivers out. Raises `OutputError` if one is at work."""
        self._lock = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise OutputError(f"{self.path}: another process is at work on this output; wait for its end") from None
        except OSError:  # a file system without locks
            pass

    def release(self) -> None:
        """Leaves the folder for the next command."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def leave(self) -> None:
        """Leaves the folder for the next command, if there is a piece in it to go on with."""
        if self._lock is None or any(self.path.glob("*.piece")):
            self.release()
        else:
            self.remove()

    def remove(self) -> None:
        """Removes the folder, when the output is complete."""
        with suppress(OSError):  # what is left of it harms nobody
            shutil.rmtree(self.path)
        self.release()

    def _known(self) -> VideoPlan | None:
        try:
            return VideoPlan.from_json((self.path / _PLAN).read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError):
            return None
