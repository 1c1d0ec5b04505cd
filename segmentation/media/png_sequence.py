"""A folder of numbered pictures as output. Written aside, then renamed, as `mux.py` does with one file."""

import re
import shutil
from pathlib import Path

import av
from av.container import OutputContainer
from av.stream import Stream

from segmentation.atomic_file import temporary_path
from segmentation.config import Config
from segmentation.errors import OutputError
from segmentation.frames import VideoInfo
from segmentation.media.muxer import Muxer

_NUMBER = re.compile(r"%(0\d+)?d")


def open_output(target: Path, info: VideoInfo, config: Config, option: str = "-o") -> Muxer:
    """What writes `target`: one file, or with a cutout's codec `png` a picture a frame. Raises `OutputError`."""
    return (PictureSequence if target.suffix.lower() == ".png" else Muxer)(target, info, config, option)


class PictureSequence(Muxer):
    """Writes `FOLDER/%05d.png`, numbered from 1. What else is in the source, such as sound, is left out with a line."""

    def _check(self) -> None:
        folder, name = self.target.parent, self.target.name
        if self.codec != "png":
            raise OutputError(f"{self.target}: pictures are written of --effect cutout only; name a video file")
        if len(_NUMBER.findall(name)) != 1:
            raise OutputError(f"{self.target}: needs a place for the number, such as {folder / '%05d.png'}")
        if not folder.is_dir():
            raise OutputError(f"{self.target}: the folder {folder} does not exist")
        parts = _NUMBER.sub("\0", name).replace("%%", "%").split("\0")
        known = re.compile(r"\d+".join(map(re.escape, parts)))
        there = sorted(path.name for path in folder.iterdir() if known.fullmatch(path.name))
        if there and not self._overwrite:
            raise OutputError(
                f"{folder / there[0]}: exists already; use -y to overwrite it, or {self._option} to name others"
            )

    def _begin(self) -> OutputContainer:
        self._temporary = temporary_path(self.place.with_name("pictures"))
        self._temporary.mkdir()
        aside = str(self._temporary).replace("%", "%%")  # only in the name it stands for a number
        return av.open(f"{aside}/{self.target.name}", "w", format="image2")

    def _remove(self) -> None:
        shutil.rmtree(self._temporary, ignore_errors=True)

    def _put_in_place(self) -> None:
        for picture in sorted(self._temporary.iterdir()):
            picture.replace(self._temporary.with_name(picture.name))
        self._temporary.rmdir()

    def _can_hold(self, stream: Stream) -> bool:
        return False
