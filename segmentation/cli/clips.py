"""The command line for clips: `segmentation-clips index|show|transcode`."""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.cli.clips_transcode import add_transcode, run_transcode, size
from segmentation.cli.console import checks_stdout, put_out
from segmentation.cli.parser import Parser, add_command, new_parser, parse_all
from segmentation.cli.program import run_program
from segmentation.clips import Batch, ClipDataset, ClipLoader, Output
from segmentation.errors import ConfigError, counted, printable
from segmentation.system.atomic_file import PendingFile

_CODES = "0 done, 1 failed, 2 wrong usage, 130 or 143 stopped by a signal"
_GAP = 4  # pixels between pictures
_SHADE = np.array([200, 60, 20])  # RGB: what is no person, in a sheet with masks


@checks_stdout
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code.

    0 done, 1 failed, 2 wrong usage, 130 or 143 stopped by a signal.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser, commands = _parsers()
    if not given or given[0] not in commands:
        parser.parse_args(given or ["--help"])  # ends the program: --help, --version, or an unknown command
    options = parse_all(commands[given[0]], given[1:])
    return run_program("segmentation-clips", partial(_run, given[0], options), verbose=options.verbose)


def _run(command: str, options: argparse.Namespace) -> int:
    if command == "transcode":
        return run_transcode(options)
    put_out(_index(options) if command == "index" else _show(options))
    return 0


def make_parser() -> Parser:
    """Returns the parser of the program, with those of its commands."""
    return _parsers()[0]


def _parsers() -> tuple[Parser, dict[str, Parser]]:
    parser = new_parser(
        "segmentation-clips",
        "COMMAND ...",
        "Prepares videos for training with segmentation.clips.",
        ["segmentation-clips index videos/", "segmentation-clips transcode --help"],
        _CODES,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    index = add_command(
        commands,
        "segmentation-clips index",
        "VIDEO|FOLDER ...",
        "Indexes videos, and lists their frames and clips.",
        ["segmentation-clips index videos/ --length 16"],
        _CODES,
    )
    _add_clips(index)
    index.add_argument("--json", action="store_true", help="print the list as JSON")
    show = add_command(
        commands,
        "segmentation-clips show",
        "VIDEO|FOLDER ... -o SHEET.png",
        "Draws clips as a loader makes them: a row each.",
        ["segmentation-clips show videos/ --masks masks/ --size 224x224 -o sheet.png"],
        _CODES,
    )
    _add_clips(show)
    add = show.add_argument
    add("-o", "--output", type=Path, metavar="SHEET.png", required=True, help="the picture to write")
    add("-y", "--overwrite", action="store_true", help="replace the sheet")
    add("--clips", type=int, default=8, metavar="N", help="clips in the sheet (%(default)s)")
    add("--size", type=size, metavar="WxH", help="crop clips to this size, at random, and mirror half of them")
    add("--seed", type=int, default=0, metavar="N", help="which clips, and which crops (%(default)s)")
    parsers = {"index": index, "show": show, "transcode": add_transcode(commands)}
    for command in parsers.values():
        command.add_argument("-v", "--verbose", action="store_true", help="show where an internal error comes from")
    return parser, parsers


def _add_clips(parser: Parser) -> None:
    """Adds what a dataset is made of."""
    add = parser.add_argument
    add("videos", nargs="+", metavar="VIDEO|FOLDER", help="videos; folders with all that is below them")
    add("--length", type=int, default=16, metavar="N", help="frames of a clip (%(default)s)")
    add("--stride", type=int, default=1, metavar="N", help="frames from one of a clip to the next (%(default)s)")
    add("--step", type=int, metavar="N", help="frames from the beginning of a clip to that of the next (what it spans)")
    add("--masks", type=Path, metavar="FOLDER", help="what --save-masks has written, shown over the pictures")


def _dataset(options: argparse.Namespace) -> ClipDataset:
    about = {name: getattr(options, name) for name in ("length", "step", "stride", "masks")}
    return ClipDataset(options.videos, **about)


def _index(options: argparse.Namespace) -> str:
    """Returns a line for each video, and one for all."""
    dataset = _dataset(options)
    rows = [
        {
            "path": index.path,
            "frames": len(index),
            "seconds": round(float(index.seconds[-1] - index.seconds[0]), 3),
            "width": index.size[1],
            "height": index.size[0],
            "keyframes": len(np.unique(index.keys)),
            "clips": int((dataset.video == number).sum()),
        }
        for number, index in enumerate(dataset.videos)
    ]
    if options.json:
        return json.dumps({"videos": rows, "left_out": dataset.left_out, "clips": len(dataset)}, indent=2)
    lines = [
        f"{printable(str(row['path']))}: {counted(row['frames'], 'frame')} of {row['width']}x{row['height']}, "
        + (counted(row["keyframes"], "keyframe") if row["keyframes"] else "decoded from the beginning for each clip")
        + f", {counted(row['clips'], 'clip')}"
        for row in rows
    ]
    frames = sum(len(index) for index in dataset.videos)
    whole = [counted(len(rows), "video"), counted(frames, "frame"), counted(len(dataset), "clip")]
    return "\n".join([*lines, ", ".join(whole)])


def _show(options: argparse.Namespace) -> str:
    """Draws the first batch of an epoch; returns the file's name."""
    dataset = _dataset(options)
    target: Path = options.output
    if target.suffix.lower() != ".png":
        raise ConfigError(f"{target}: a sheet is a .png")
    output = (
        Output(size=options.size, crop="random", flip=True, dtype="uint8", layout="NTHWC") if options.size else None
    )
    output = output or Output(size=(135, 240), dtype="uint8", layout="NTHWC")
    count = min(options.clips, len(dataset))
    loader = ClipLoader(dataset, count, outputs={"input": output}, shuffle="full", seed=options.seed, ahead=0)
    with PendingFile(target, overwrite=options.overwrite) as pending:
        pending.check("-o")
        data = cv2.imencode(".png", _sheet(next(iter(loader)))[..., ::-1])[1]
        pending.put(data.tobytes())
    return printable(str(target))


def _sheet(batch: Batch) -> NDArray[np.uint8]:
    """Returns a picture with a row for each clip, of at most eight of its frames. What masks leave out is shaded."""
    pictures = batch["input"].astype(np.float64)
    if "masks" in batch:
        share = batch["masks"].astype(np.float64)[..., None] / 255
        pictures = pictures * (0.4 + 0.6 * share) + _SHADE * 0.6 * (1 - share)
    shown = pictures[:, :: math.ceil(pictures.shape[1] / 8)]
    height, width = shown.shape[2:4]
    sheet = np.full((len(shown) * (height + _GAP), shown.shape[1] * (width + _GAP), 3), 255, np.uint8)
    for row, clip in enumerate(shown):
        for column, picture in enumerate(clip):
            top, left = row * (height + _GAP), column * (width + _GAP)
            sheet[top : top + height, left : left + width] = picture
    return sheet
