"""A folder of numbered pictures as output. They appear together, when the last one is complete."""

import shutil
from pathlib import Path

import av
from av.container import OutputContainer
from av.stream import Stream

from segmentation.atomic_file import PendingFile
from segmentation.errors import OutputError
from segmentation.frames import VideoInfo
from segmentation.media.containers import NUMBER, PICTURES, name_pattern
from segmentation.media.gif import GifMuxer
from segmentation.media.muxer import Muxer
from segmentation.media.output_stream import OutputAddress, OutputStream, Target
from segmentation.media.parts_muxer import PartsMuxer
from segmentation.media.push_muxer import PushMuxer
from segmentation.media.stream_muxer import StreamMuxer
from segmentation.options.config import Config


def open_output(target: Target, info: VideoInfo, config: Config, option: str = "-o") -> Muxer:
    """Opens `target` for writing: a stream, one file, several in turn, or by its suffix a picture for each frame.

    A .webp without a place for numbers is an animation.

    `option` is the one that names the target. Raises `OutputError`.
    """
    if isinstance(target, OutputAddress):
        return PushMuxer(target, info, config, option)
    if isinstance(target, OutputStream):
        return StreamMuxer(target, info, config, option)
    if config.cut_every is not None:
        return PartsMuxer(target, info, config, option)
    suffix = target.suffix.lower()
    several = suffix in PICTURES and (suffix != ".webp" or NUMBER.search(target.name) is not None)
    if several:
        return PictureSequence(target, info, config, option)
    return (GifMuxer if suffix == ".gif" else Muxer)(target, info, config, option)


class PictureSequence(Muxer):
    """Writes `FOLDER/%05d.png`, .jpg or .webp, numbered from 1. The source's other streams are left out with a line."""

    def _pending_file(self, overwrite: bool) -> PendingFile:
        assert isinstance(self.target, Path)
        return _PendingPictures(self.target, overwrite=overwrite)

    def _begin(self) -> OutputContainer:
        self._file.create(folder=True)
        folder = str(self._file.path).replace("%", "%%")  # a single % stands for a number in the name alone
        return av.open(f"{folder}/{self._file.target.name}", "w", format="image2")

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
        if len(NUMBER.findall(name)) != 1:
            several = folder / f"%05d{self.target.suffix}"
            raise OutputError(f"{self.target}: holds one picture, and this is no single one; name {several} or a video")
        if not folder.is_dir():
            raise OutputError(f"{self.target}: the folder {folder} does not exist")
        known = name_pattern(name)
        there = sorted(path.name for path in folder.iterdir() if known.fullmatch(path.name))
        if there and not self.overwrite:
            raise OutputError(
                f"{folder / there[0]}: exists already; use -y (overwrite=True) to replace it, "
                f"or {option} to name others"
            )

    def commit(self, *, fragment: bool = False) -> Path:
        pictures = sorted(self.path.iterdir())
        replaces = any(self.path.with_name(picture.name).exists() for picture in pictures)
        suffix = f".partial{self.target.suffix}" if fragment and replaces else self.target.suffix
        for picture in pictures:
            picture.replace(self.path.with_name(picture.name).with_suffix(suffix))
        self.path.rmdir()
        self._unlock()
        return self.target.with_suffix(suffix)

    def discard(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._unlock()
