"""Standard input and output as files: `-`, and `/dev/stdin` for the former."""

import os
import stat
import sys
from pathlib import Path
from typing import BinaryIO

from segmentation.cli.console import Stdout
from segmentation.errors import ConfigError, InputError
from segmentation.media.output_stream import OutputStream
from segmentation.options.config import Config

STANDARD = "-"
_STDIN = "/dev/stdin"


def is_stdin(name: str) -> bool:
    """Returns whether an input's name stands for standard input."""
    return name in (STANDARD, _STDIN)


def check_stdout(output: str | None, config: Config, *, json: bool) -> None:
    """Raises `ConfigError` if several things would be written to standard output, or one that can't be."""
    named = {"-o -": output == STANDARD, "--results -": config.results == STANDARD, "--json": json}
    there = [option for option, given in named.items() if given]
    if len(there) > 1:
        raise ConfigError(f"{there[1]}: standard output is taken by {there[0]}; name a file for one of them")
    others: list[tuple[str, str | Path | None]] = [("--also", path) for _, path in config.also]
    others += [("--audit", config.audit), ("--save-masks", config.save_masks), ("--trace", config.trace)]
    for option, path in others:
        if str(path) == STANDARD:
            raise ConfigError(f"{option} -: only -o and --results can be standard output; name a file")
    if config.format is not None and output is None:
        raise ConfigError(f"--format {config.format}: is for pipes; name one, such as -o -")


def video_in(name: str) -> str | BinaryIO:
    """Returns the file object of standard input, and other names as they are.

    Where standard input is a file, as with `<`, its name is enough. Raises `InputError` for a terminal.
    """
    if not is_stdin(name):
        return name
    if sys.stdin is None:
        raise InputError("standard input: is closed")
    if sys.stdin.isatty():
        raise InputError("standard input: is a terminal; lead a video into it, as in: cat video.mkv | segmentation -")
    if stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode):
        return _STDIN
    return sys.stdin.buffer


def video_out(target: Path, config: Config, stdout: Stdout) -> Path | OutputStream:
    """Returns the stream for standard output, and other targets as they are. Raises `OutputError`."""
    if str(target) != STANDARD:
        return target
    file = stdout.open_file.buffer
    if file.isatty():
        raise ConfigError("-o -: standard output is a terminal; lead it to a program or a file")
    return OutputStream("<stdout>", file, config.format or "matroska")
