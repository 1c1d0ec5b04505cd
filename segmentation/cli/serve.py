"""The command `segmentation serve`: a page for one's own videos, and jobs over HTTP."""

from __future__ import annotations

import argparse
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import get_args

from platformdirs import user_state_path

from segmentation.cli.console import checks_stdout, lines_as, say
from segmentation.cli.parser import Parser, parse_all, read_time
from segmentation.cli.program import run_program
from segmentation.errors import BackendError, ConfigError, one_line
from segmentation.options.command import LogFormat, is_workers
from segmentation.options.config import Config
from segmentation.options.keywords import FrameOptions
from segmentation.pipeline.planning.parallelism import choose_parallelism
from segmentation.system.installation import install
from segmentation.system.notify import notify

_PROGRAM = "segmentation serve"
_SHORTEST_TOKEN = 16  # characters


@checks_stdout
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code: 0 stopped by a signal, 1 failed, 2 wrong usage, 3 no extra `web`."""
    options = parse_all(make_serve_parser(), arguments)
    with lines_as(options.log_format):
        return run_program(_PROGRAM, partial(_run, options), verbose=options.verbose)


def _run(options: argparse.Namespace) -> int:
    with suppress(KeyboardInterrupt):  # uvicorn passes either signal on when all is closed
        _serve(options)
    return 0


def _serve(options: argparse.Namespace) -> None:
    """Serves until a signal comes, which raises `KeyboardInterrupt`. Raises `SegmentationError`."""
    try:
        from segmentation.web.options import parsed
        from segmentation.web.serve import Settings, serve
    except ModuleNotFoundError as exc:
        raise BackendError(f"{exc.name} is missing; {install('web')}") from exc
    limits = FrameOptions(max_duration=options.max_duration)
    if options.max_pixels is not None:
        limits["max_pixels"] = options.max_pixels
    config = Config(**limits)
    settings = Settings(
        host=options.host,
        port=options.port,
        work=options.work,
        files=options.files,
        streams=options.streams,
        token=_token(options.token_file),
        jobs=options.jobs or choose_parallelism(config).jobs,
        workers=options.workers,
        limits=limits,
        longest_upload=options.max_upload,
        age=options.keep_for,
        size=options.keep_size,
        private="private" in options.allow,
        watch=_watched(options.watch, options.to),
        watch_options=parsed(options.options),
    )

    def started(address: str) -> None:
        say(f"{_PROGRAM}: {address}")
        notify("READY=1")
        if options.open:
            webbrowser.open(address)

    serve(settings, started)


def _watched(folder: Path | None, to: Path | None) -> tuple[Path, Path] | None:
    """Returns both folders, if there are any. Raises `ConfigError`."""
    if folder is None and to is None:
        return None
    if folder is None or to is None:
        raise ConfigError("--watch and --to belong together: the folder of the videos, and the one for their outputs")
    return folder, to


def _token(file: Path | None) -> str | None:
    """Returns the token in a file. Raises `ConfigError`."""
    if file is None:
        return None
    try:
        token = file.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"--token-file {file}: can't be read ({one_line(exc)})") from exc
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise ConfigError(f"--token-file {file}: needs {_SHORTEST_TOKEN} ASCII characters or more on one line")
    return token


def make_serve_parser() -> Parser:
    parser = Parser(
        prog=_PROGRAM,
        usage=f"{_PROGRAM} [OPTION ...]",  # all options would hide the error below them
        description="Serves a page where videos are looked at and rendered, and the same as an HTTP API.",
        epilog="exit codes: 0 stopped by a signal, 1 failed, 2 wrong usage, 3 the extra web is not installed.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on; others than this machine's need --token-file")
    add("--port", type=_port, default=8400, help="(default: 8400; 0: any that is free)")
    add("--open", action="store_true", help="open the page in the browser")
    add("--files", type=Path, metavar="FOLDER", help="videos and pictures that the page may read (default: none)")
    add("--streams", metavar="[HOST]:PORT", help="show the live streams of a run with this --status (default: none)")
    add(
        "--work",
        type=Path,
        metavar="FOLDER",
        default=user_state_path("segmentation") / "serve",
        help="for uploads, results and the queue (default: %(default)s)",
    )
    add("--watch", type=Path, metavar="FOLDER", help="render each video and picture that comes into it (needs --to)")
    add("--to", type=Path, metavar="FOLDER", help="for the outputs of --watch")
    add("--options", default="", metavar="JSON", help='of the jobs of --watch, such as \'{"effect": "blur:40"}\'')
    add("--token-file", type=Path, metavar="FILE", help="holds the token that every request needs (default: none)")
    add("--allow", action="append", default=[], choices=["private"], help="webhooks of private addresses")
    add("--jobs", type=_count, metavar="N", help="jobs at a time (default: 1, with a GPU 5)")
    add(
        "--workers",
        type=_workers,
        metavar="local:N|auto|ray[:ADDRESS]",
        help="cut each job's video into pieces for N processes, one a GPU, or a cluster's (default: none)",
    )
    add("--max-upload", type=_bytes, metavar="BYTES", default=_bytes("4G"), help="longest upload (default: 4G)")
    add("--max-pixels", type=int, metavar="N", help="refuse larger frames (default: 134217728)")
    add("--max-duration", type=read_time, metavar="TIME", help="refuse longer inputs (default: any length)")
    kept = "age of results and uploads (default: 24:00:00)"
    add("--keep-for", type=read_time, metavar="TIME", default=86400.0, help=kept)
    add("--keep-size", type=_bytes, metavar="BYTES", default=_bytes("20G"), help="of both together (default: 20G)")
    add("--log-format", choices=get_args(LogFormat), default="text", help="of the lines on stderr (default: text)")
    add("-v", "--verbose", action="store_true", help="print more")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}: give 1 or more")
    return int(text)


def _workers(text: str) -> str:
    if not is_workers(text):
        raise argparse.ArgumentTypeError(f"{text!r}: write local:N, auto or ray[:ADDRESS]")
    return text


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r}: give 0 to 65535")
    return int(text)


def _bytes(text: str) -> int:
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}.get(text[-1:].upper(), 1)
    digits = text if unit == 1 else text[:-1]
    if not digits.isdecimal() or not int(digits):
        raise argparse.ArgumentTypeError(f"{text!r}: write bytes, or such as 500M or 4G")
    return int(digits) * unit
