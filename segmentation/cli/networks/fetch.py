"""The command `segmentation-models`: lists networks of others, and fetches one that the user has agreed to."""

import argparse
import hashlib
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from segmentation.cli.console import checks_stdout, put_out, say
from segmentation.cli.networks.table import NETWORKS, Network
from segmentation.cli.parser import Parser, new_parser, parse_all
from segmentation.cli.program import run_program
from segmentation.errors import ConfigError, ModelError, did_you_mean
from segmentation.media.opening.download import DownloadError, HttpFile
from segmentation.system.access import Access
from segmentation.system.atomic_file import PendingFile

_PROGRAM = "segmentation-models"
_CHUNK = 1 << 20  # bytes of a read


@checks_stdout
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code: 0 done, 1 failed, 2 wrong usage or no consent, 130 or 143 stopped."""
    options = parse_all(make_parser(), arguments)
    return run_program(_PROGRAM, partial(_run, options))


def _run(options: argparse.Namespace) -> int:
    put_out(_list() if options.command == "list" else _fetched(options))
    return 0


def _download(network: Network) -> bytes:
    """Returns a network's file. Raises `ModelError` if it can't be had, or has not the table's SHA-256."""
    data = bytearray()
    try:
        file = HttpFile(network.address, Access(), named=True)
        while len(data) <= network.size and (part := file.read(_CHUNK)):
            data += part
        file.close()
    except DownloadError as exc:
        raise ModelError(f"{network.address}: {exc.strerror}; see {network.origin}") from exc
    if not _is(network, data):
        raise ModelError(
            f"{network.address}: is another file, its SHA-256 is not {network.sha256}; nothing was written, "
            f"see {network.origin}"
        )
    return bytes(data)


def _is(network: Network, data: bytes | bytearray) -> bool:
    return len(data) == network.size and hashlib.sha256(data).hexdigest() == network.sha256


def _fetched(options: argparse.Namespace) -> str:
    """Returns the path of the file, which is there then. Raises `ConfigError` without the user's consent."""
    network = NETWORKS.get(options.name)
    if network is None:
        meant = did_you_mean(options.name, NETWORKS)
        raise ConfigError(f"no network of the name {options.name!r}{meant}; {_PROGRAM} list shows all")
    target: Path = options.output or Path(f"{options.name}.onnx")
    if target.is_file() and target.stat().st_size == network.size and _is(network, target.read_bytes()):
        say(f"{_PROGRAM}: {target} is there already")
        return str(target)
    with PendingFile(target, overwrite=options.overwrite) as file:
        file.check("-o")
        say(f"{_PROGRAM}: {options.name}: {network.finds}, {_megabytes(network)} from {network.address}")
        say(f"{_PROGRAM}: its license is {network.license}, see {network.origin}")
        if not (options.yes or _agreed()):
            raise ConfigError(f"{options.name}: not fetched; --yes agrees to its license and size")
        file.put(_download(network))
    say(f"{_PROGRAM}: use it by: segmentation input.mp4 {network.options}")
    return str(target)


def _agreed() -> bool:
    """Asks on the terminal, where there is one."""
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    say(f"{_PROGRAM}: fetch it? y or n")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _list() -> str:
    """Returns a line for each network."""
    rows = [
        (name, _megabytes(one), one.license, one.finds, f"segmentation input.mp4 {one.options}")
        for name, one in NETWORKS.items()
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _megabytes(network: Network) -> str:
    return f"{network.size / 1e6:.1f} MB"


def make_parser() -> Parser:
    """Returns the parser of `segmentation-models`."""
    parser = new_parser(
        _PROGRAM,
        "list | fetch NAME",
        "Networks of others, with their licenses. Nothing is fetched before it is agreed to.",
        (f"{_PROGRAM} list", f"{_PROGRAM} fetch prisma-portrait"),
        "0 done, 1 failed, 2 wrong usage or not agreed to, 130 or 143 stopped.",
    )
    add = parser.add_argument
    add("command", metavar="list|fetch", choices=("list", "fetch"), help="print a line for each network; or get one")
    add("name", metavar="NAME", nargs="?", default="", help=f"one of {', '.join(NETWORKS)}")
    add("-o", "--output", type=Path, metavar="FILE.onnx", help="where it goes (default: NAME.onnx here)")
    add("-y", "--overwrite", action="store_true", help="replace another file of that name")
    add("--yes", action="store_true", help="agree to its license and size without being asked")
    return parser
