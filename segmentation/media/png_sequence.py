"""A folder of numbered pictures as output. They appear together, when the last one is complete."""

import re
import shutil
from pathlib import Path

import av
from av.container import OutputContainer
from av.stream import Stream

from segmentation.atomic_file import PendingFile
from segmentation.config import Config
from segmentation.errors import OutputError
from segmentation.frames import VideoInfo
from segmentation.media.muxer import Muxer

_NUMBER = re.compile(r"%(0\d+)?d")


def open_output(target: Path, info: VideoInfo, config: Config, option: str = "-o") -> Muxer:
    """Opens `target` for writing: one file, or with a name that ends in .png a picture a frame. Raises `OutputError`.

    `option` is the one that names the target.
    """
    return (PictureSequence if target.suffix.lower() == ".png" else Muxer)(target, info, config, option)


class PictureSequence(Muxer):
    """Writes `FOLDER/%05d.png`, numbered from 1, and no other stream of the source: each is named in a warning."""

    def _pending_file(self, overwrite: bool) -> PendingFile:
        if self.codec != "png":
            raise OutputError(f"{self.target}: pictures are written of --effect cutout only; name a video file")
        return _PendingPictures(self.target, overwrite=overwrite)

    def _begin(self) -> OutputContainer:
        self._file.create(folder=True)
        folder = str(self._file.path).replace("%", "%%")  # a single % stands for a number in the name alone
        return av.open(f"{folder}/{self.target.name}", "w", format="image2")

    def _can_hold(self, stream: Stream) -> bool:
        return False


class _PendingPictures(PendingFile):
    """Holds the temporary folder of the pictures. `commit` moves them, one by one, to the target's folder."""

    def __init__(self, target: Path, *, overwrite: bool) -> None:
        """`target` is the pattern of the pictures' names."""
        super().__init__(target.with_name("pictures"), overwrite=overwrite)
        self.target = target

    def check(self, option: str) -> None:
        folder, name = self.target.parent, self.target.name
        if len(_NUMBER.findall(name)) != 1:
            raise OutputError(f"{self.target}: needs a place for the number, such as {folder / '%05d.png'}")
        if not folder.is_dir():
            raise OutputError(f"{self.target}: the folder {folder} does not exist")
        parts = _NUMBER.sub("\0", name).replace("%%", "%").split("\0")
        known = re.compile(r"\d+".join(map(re.escape, parts)))
        there = sorted(path.name for path in folder.iterdir() if known.fullmatch(path.name))
        if there and not self.overwrite:
            raise OutputError(
                f"{folder / there[0]}: exists already; use -y (overwrite=True) to replace it, "
                f"or {option} to name others"
            )

    def commit(self, *, fragment: bool = False) -> Path:
        pictures = sorted(self.path.iterdir())
        replaces = any(self.path.with_name(picture.name).exists() for picture in pictures)
        suffix = ".partial.png" if fragment and replaces else self.target.suffix
        for picture in pictures:
            picture.replace(self.path.with_name(picture.name).with_suffix(suffix))
        self.path.rmdir()
        self._unlock()
        return self.target.with_suffix(suffix)

    def discard(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._unlock()
