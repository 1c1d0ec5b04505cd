"""The folder `.<target>.pieces/` beside an output: the plan and the pieces so far, from which the work goes on."""

from __future__ import annotations

import logging
import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from segmentation.errors import InputError, OutputError, one_line
from segmentation.scale.piece_file import DamagedPiece, PieceFile
from segmentation.scale.plan import VideoPlan
from segmentation.system.atomic_file import write_atomically
from segmentation.system.safe_files import is_at, is_own, lock, open_lock, remove_files

log = logging.getLogger(__name__)

_PLAN = "plan.json"
_LOCK = "lock"
# All that this program writes into the folder, but for the lock. Whatever else lies there is somebody's own.
_OWN = re.compile(r"plan\.json|\d{6,}\.piece|\.(?:plan|\d{6,})\.[0-9a-f]{8}\.part\.(?:json|piece)")
_COMPLETE = re.compile(r"\d{6,}\.piece")
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
            with suppress(FileExistsError):
                self.path.mkdir(mode=0o700)
            self.lock()
            if (known := self._known()) is not None and known.is_same_work(plan):
                return known
            remove_files(self.path, _OWN)
            write_atomically(self.path / _PLAN, plan.as_json().encode())
            return plan
        except OSError as exc:
            raise OutputError(f"{self.path}: cannot be written ({one_line(exc)})") from exc

    def plan(self) -> VideoPlan:
        """Returns the plan. Raises `InputError` where there is none."""
        try:
            self._check()
            known = self._known()
        except FileNotFoundError:
            known = None
        except OSError as exc:
            raise InputError(f"{self.path}: can't be read ({one_line(exc)})") from exc
        if known is None:
            raise InputError(f"{self.path}: holds no plan of this version; make it with segmentation-pieces plan")
        return known

    def file(self, number: int) -> Path:
        """Returns the path of a piece."""
        return self.path / f"{number:06}.piece"

    def piece(self, plan: VideoPlan, number: int) -> PieceFile:
        """Opens a piece. Raises as `PieceFile`."""
        return PieceFile(self.file(number), plan.digest, number)

    def done(self, plan: VideoPlan, numbers: range | None = None) -> set[int]:
        """Returns the numbers of the pieces that are there, of all or of some. Removes damaged ones."""
        found = set()
        for number in range(len(plan.pieces)) if numbers is None else numbers:
            if self.file(number).exists():
                try:
                    with self.piece(plan, number):
                        found.add(number)
                except DamagedPiece as exc:
                    log.warning("%s: is made again", exc)
                    self.file(number).unlink()
        return found

    def lock(self) -> None:
        """Keeps other drivers out, if it does not so far. Raises `OutputError` if one is at work, and `OSError`."""
        with suppress(OSError):  # of a share that was lost
            if self._lock is not None and is_at(self.path / _LOCK, self._lock):
                return
        self.release()
        self._check()
        self._lock = open_lock(self.path / _LOCK)
        try:
            free = lock(self._lock)
        except OSError as exc:
            log.warning("%s: has no locks (%s); begin no other command on this output", self.path, one_line(exc))
            return
        if not free:
            self.release()
            raise OutputError(f"{self.path}: another process is at work on this output; wait for its end")
        if not is_at(self.path / _LOCK, self._lock):  # the last holder has removed the folder since
            self.lock()

    def release(self) -> None:
        """Leaves the folder for the next command."""
        lock, self._lock = self._lock, None
        if lock is not None:
            with suppress(OSError):  # of a share that was lost
                os.close(lock)

    def leave(self) -> None:
        """Leaves the folder for the next command, if there may be a complete piece in it to go on with."""
        with suppress(OSError):  # a folder that can't be reached may hold pieces
            if self._lock is not None and not self.holds_pieces():
                self.remove()
        self.release()

    def holds_pieces(self) -> bool:
        """Returns whether there are complete pieces to go on with. Raises `OSError`."""
        names = os.listdir(self.path)
        return _PLAN in names and any(map(_COMPLETE.fullmatch, names))

    def remove(self) -> None:
        """Removes the folder, when the output is complete."""
        with suppress(OSError):  # what is left of it harms nobody
            remove_files(self.path, _OWN)
            (self.path / _LOCK).unlink()  # the last one: until then others keep out
            self.path.rmdir()
        self.release()

    def _check(self) -> None:
        """Raises `OutputError` for a link, and for another user's folder, and `OSError`."""
        if not stat.S_ISDIR(self.path.lstat().st_mode):
            raise OutputError(f"{self.path}: is no folder, but has the name of one that is needed; remove it")
        if not is_own(self.path):
            raise OutputError(f"{self.path}: belongs to another user; remove it, or name another output")

    def _known(self) -> VideoPlan | None:
        """Returns the plan, if there is one of this version. Raises `OSError`."""
        try:
            return VideoPlan.from_json((self.path / _PLAN).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
