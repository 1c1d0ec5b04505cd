"""Inputs of the command line: the videos and pictures that its arguments stand for, and the files left out."""

import glob
import mimetypes
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import av
import av.error

from segmentation.cli.inputs.standard_streams import is_stdin
from segmentation.errors import ConfigError, InputError, hide_secrets, one_line
from segmentation.frames.byte_source import is_fifo
from segmentation.frames.picture_names import PICTURE_SUFFIXES
from segmentation.frames.source import Source, file_address, named
from segmentation.media.opening.open_input import no_such_file, open_input, video_stream

VIDEO_SUFFIXES = frozenset(
    ".mp4 .m4v .mov .qt .mkv .webm .avi .divx .ts .mts .m2ts .m2t .mpg .mpeg .mpe .m1v .m2v .vob .flv .f4v .wmv .asf "
    ".3gp .3g2 .ogv .ogm .mxf .dv .rm .rmvb .nut .y4m .ivf .obu .h264 .264 .h265 .265 .hevc .mjpeg .mjpg .wtv".split()
)
_TYPES = mimetypes.MimeTypes()
# Demuxers that make a picture of a text, read one picture, or lead to other files.
_NO_VIDEOS = frozenset("tty bin xbin adf idf image2 gif apng hls dash concat sdp rtsp lavfi".split())
_NAMED = 3  # of the files that are left out


@dataclass(frozen=True, slots=True)
class FoundInput:
    """Holds an input, and the folder that it lies in, relative to the folder that was searched for it."""

    source: Source
    folder: Path = Path()


@dataclass(slots=True)
class Inputs:
    """Holds all that the arguments stand for."""

    sources: list[FoundInput] = field(default_factory=list)
    missing: list[tuple[Source, InputError]] = field(default_factory=list)  # arguments without a video
    no_videos: list[str] = field(default_factory=list)
    earlier_outputs: list[str] = field(default_factory=list)
    dangling: list[str] = field(default_factory=list)  # links
    folders: list[str] = field(default_factory=list)  # in folders, unless they are searched too
    pictures: list[str] = field(default_factory=list)  # among videos, with an option that is of videos alone
    of_videos: str = ""  # that option

    @property
    def left_out(self) -> str:
        """Returns a line with the number and some names of what is left out, empty if there are none."""
        kinds = (
            (self.no_videos, "no video or picture"),
            (self.earlier_outputs, "output of an earlier run"),
            (self.dangling, "link that leads nowhere"),
            (self.folders, "folder, which -r searches too"),
            (self.pictures, f"picture, which {self.of_videos} is not for"),
        )
        counts = [f"{len(files)} ({reason}: {_some(files)})" for files, reason in kinds if files]
        return f"left out {', '.join(counts)}" if counts else ""


def find_inputs(arguments: Sequence[str], *, recursive: bool = False) -> Inputs:
    """Returns the videos and pictures of files, folders, patterns and addresses, each once.

    `recursive` searches folders in folders too. Of several inputs, outputs of earlier runs are left out.
    """
    found = Inputs()
    for text in arguments:
        before = len(found.sources)
        path, source = Path(text), Source.parse(text)
        if source.is_url or source.is_live or is_stdin(text) or is_fifo(path):
            found.sources.append(FoundInput(source))
        elif os.path.isdir(text) and not os.access(text, os.R_OK | os.X_OK):
            found.missing.append((source, InputError(f"{text}: the folder may not be read; check its permissions")))
            continue
        elif os.path.isdir(text):
            _add(found, _files(path, recursive=recursive), beside=path)
            if not recursive:
                found.folders += sorted(str(one) for one in path.iterdir() if one.is_dir() and not _hidden(one))
        elif glob.has_magic(text) and not os.path.exists(text):
            matches = (Path(match) for match in sorted(glob.glob(text, recursive=recursive)))
            # `*.gif` says what is wanted; `clips/*` is like the folder.
            named = bool(Path(text).suffix) and not glob.has_magic(Path(text).suffix)
            _add(found, filter(_may_be_input, matches), named=named)
        elif source.is_pattern:
            found.sources.append(FoundInput(source))
        elif os.path.exists(text):  # a device is refused when it is opened
            several = len(arguments) > 1  # a shell's `*.mp4` names earlier outputs too
            _add(found, [path], named=True, may_be_output=not several)
        else:
            found.missing.append((source, _absence(text)))
            continue
        if len(found.sources) == before and not os.path.isfile(text):  # a file is an earlier output, counted as such
            found.missing.append((source, InputError(f"{text}: no videos or pictures there")))
    if not found.sources and not found.missing:
        text = arguments[0]
        found.missing.append(
            (Source.parse(text), InputError(f"{text}: is an output of an earlier run, as all others; name it alone"))
        )
    once = {_place(one.source): one for one in reversed(found.sources)}
    found.sources = list(reversed(once.values()))
    return found


def _place(source: Source) -> str:
    """Returns the whole path of a file, and an address as it is."""
    return source.text if source.is_url or source.is_live else os.path.abspath(source.text)


def paced(found: FoundInput) -> FoundInput:
    """Returns a file as a live source that plays at the file's speed, named after the file.

    Raises `ConfigError` for an input that is no file.
    """
    path = found.source.text
    if found.source.is_live:
        return found
    if not os.path.isfile(path):
        raise ConfigError(f"pace: plays files at their own speed, and {hide_secrets(path)} is none; leave out --pace")
    name = re.sub(r"[^\w.-]+", "-", Path(path).stem).strip("-.") or "video"
    return FoundInput(named(name, file_address(path)), found.folder)


def _absence(path: str) -> InputError:
    """Returns the reason why there is nothing at `path`."""
    try:
        os.stat(path)
    except PermissionError:
        return InputError(f"{path}: a folder on the way may not be searched; check its permissions")
    except (OSError, ValueError) as exc:
        if not isinstance(exc, FileNotFoundError | NotADirectoryError):
            return InputError(f"{path}: cannot be opened ({one_line(exc)})")
    name, _, address = path.partition("=")
    if Source.parse(address).is_live:
        return InputError(f"{path}: {name!r} is no name of a source; use letters, digits, '_', '-' and '.' alone")
    return no_such_file(path)


def can_be_input(path: Path) -> bool:
    """Returns whether a file should be tried: by its suffix, or for an unknown one by what FFmpeg finds in it."""
    if path.suffix.lower() in VIDEO_SUFFIXES | PICTURE_SUFFIXES | {".gif"}:
        return True
    kind, encoding = _TYPES.guess_type(path.name)
    if encoding is not None or kind not in (None, "application/octet-stream"):
        return encoding is None and str(kind).startswith("video/")
    try:
        with open_input(str(path)) as container:
            names = container.format.name.split(",")
            if any(name in _NO_VIDEOS or name.endswith("_pipe") for name in names):
                return False
            video_stream(container, str(path))
            return True
    except (InputError, av.error.FFmpegError):
        return False


def _add(
    found: Inputs,
    files: Iterable[Path],
    *,
    beside: Path | None = None,
    named: bool = False,
    may_be_output: bool = False,
) -> None:
    """Sorts files into those that are tried and those that are left out; `named` ones are videos by the user's word."""
    for path in files:
        if _dangles(path):
            found.dangling.append(str(path))
        elif ".segmented" in path.suffixes and not may_be_output:
            found.earlier_outputs.append(str(path))
        elif named or can_be_input(path):
            folder = path.parent.relative_to(beside) if beside is not None else Path()
            found.sources.append(FoundInput(Source.parse(path), folder))
        else:
            found.no_videos.append(str(path))


def _files(folder: Path, *, recursive: bool) -> Iterator[Path]:
    """Yields what may be an input in a folder, in order. Links to folders are not followed."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if recursive and not _hidden(Path(name)))
        for name in sorted(names):
            path = Path(place, name)
            if _may_be_input(path):
                yield path


def _may_be_input(path: Path) -> bool:
    """Returns whether `path`, if not hidden, is a regular file, or a link that leads nowhere, which is to be named."""
    return not _hidden(path) and (path.is_file() or _dangles(path))


def _dangles(path: Path) -> bool:
    return path.is_symlink() and not os.path.exists(path)


def _hidden(path: Path) -> bool:
    return path.name.startswith(".")


def _some(files: Sequence[str]) -> str:
    names = ", ".join(Path(file).name for file in files[:_NAMED])
    return f"{names} and {len(files) - _NAMED} more" if len(files) > _NAMED else names
