"""A folder of numbered pictures as output. They appear together, when the last one is complete."""

import os
import re
from contextlib import suppress
from pathlib import Path

import av
from av.container import OutputContainer
from av.stream import Stream

from segmentation.errors import OutputError, OutputExists
from segmentation.frames.picture_names import NUMBER, name_pattern, numbered_name
from segmentation.media.muxer import Muxer
from segmentation.system.atomic_file import PendingFile
from segmentation.system.safe_files import SAFE, address_of, keep_rights, move_new, open_folder, remove_folder

_BESIDE = ".pictures"  # behind the name of a temporary file: its folder
_MARK = "part-"  # before the names of pictures in the temporary folder


class PictureSequence(Muxer):
    """Writes `FOLDER/%05d.png`, .jpg or .webp, numbered from 1. The source's other streams are left out with a line."""

    def _pending_file(self, overwrite: bool) -> PendingFile:
        assert isinstance(self.target, Path)
        return PendingSequence(self.target, overwrite=overwrite)

    def _begin(self) -> OutputContainer:
        self._file.create()
        folder = self._file.address.replace("%", "%%")  # a single % stands for a number in the name alone
        return av.open(f"{folder}/{_MARK}{self._file.target.name}", "w", format="image2")

    def _can_hold(self, stream: Stream) -> bool:
        return False


class PendingSequence(PendingFile):
    """Holds the temporary folder of numbered files. `commit` moves them, one by one, to the target's folder.

    `target` is the pattern of their names. The temporary file of that name is empty, and is locked for the
    folder beside it: NFS has no locks for folders.
    """

    _folder: int | None = None  # descriptor of the temporary folder, where the system has such

    def __init__(self, target: Path, *, overwrite: bool) -> None:
        super().__init__(target, overwrite=overwrite)
        self._own = re.compile(re.escape(_MARK) + name_pattern(target.name).pattern)  # names in the folder

    @property
    def address(self) -> str:
        return (self._folder is not None and address_of(self._folder)) or str(self._beside)

    @property
    def _beside(self) -> Path:
        return Path(f"{self.path}{_BESIDE}")

    def _named(self, name: str) -> Path:
        """Returns how a name in the temporary folder is written beside `dir_fd`."""
        return self._beside / name if self._folder is None else Path(name)

    def check(self, option: str) -> None:
        folder, name = self.target.parent, self.target.name
        if len(NUMBER.findall(name)) != 1:
            several = folder / f"%05d{self.target.suffix}"
            raise OutputError(f"{self.target}: holds one picture, and this is no single one; name {several} or a video")
        if not folder.is_dir():
            raise OutputError(f"{self.target}: the folder {folder} does not exist")
        known = name_pattern(name)
        there = sorted(path.name for path in folder.iterdir() if known.fullmatch(path.name))
        if there and not self.overwrite:
            raise OutputExists(
                f"{folder / there[0]}: exists already; use -y (overwrite=True) to replace it, "
                f"or {option} to name others"
            )

    def create(self) -> None:
        super().create()
        self._beside.mkdir(mode=0o700)
        self._folder = open_folder(self._beside)

    def add(self, number: int, data: bytes) -> None:
        """Writes the file of this number to the temporary folder. Raises `OSError`."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFE
        name = self._named(f"{_MARK}{numbered_name(self.target.name, number)}")
        descriptor = os.open(name, flags, 0o666, dir_fd=self._folder)
        with open(descriptor, "wb") as file:
            file.write(data)

    def commit(self, *, fragment: bool = False) -> Path:
        there = os.listdir(self._beside if self._folder is None else self._folder)
        names = sorted(name for name in there if self._own.fullmatch(name))
        places = [self.place.with_name(name.removeprefix(_MARK)) for name in names]
        replaces = any(os.path.lexists(place) for place in places)
        if replaces and not self.overwrite:
            raise self._came_into_being()
        suffix = f".partial{self.target.suffix}" if fragment and replaces else self.target.suffix
        for name, place in zip(names, places, strict=True):
            self._move(name, place.with_suffix(suffix))
        self.discard()
        self._close()
        return self.target.with_suffix(suffix)

    def _move(self, name: str, place: Path) -> None:
        """Gives a picture its name. Raises `OSError`, and `OutputError` if it must not replace the one of that name."""
        if not self.overwrite:
            try:
                move_new(self._named(name), place, self._folder)
            except FileExistsError:
                raise self._came_into_being() from None
            return
        with suppress(FileNotFoundError):
            old = place.stat()
            picture = os.open(self._named(name), os.O_RDONLY | SAFE, dir_fd=self._folder)
            try:
                keep_rights(picture, old)
            finally:
                os.close(picture)
        os.replace(self._named(name), place, src_dir_fd=self._folder)

    def discard(self) -> None:
        with suppress(OSError):  # there is no folder yet, or no more
            # Not `_beside`: an interrupt may come at each call of a function, and what stands here would be left out.
            remove_folder(Path(f"{self.path}{_BESIDE}"), self._own)
        super().discard()

    def _clear(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            remove_folder(Path(f"{path}{_BESIDE}"), self._own)

    def _close(self) -> None:
        folder, self._folder = self._folder, None
        if folder is not None:
            os.close(folder)
        super()._close()
