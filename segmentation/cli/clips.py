"""The command line for clips: `segmentation-clips index|show`."""

import argparse
import json
import logging
import math
import signal
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.atomic_file import PendingFile
from segmentation.cli.console import ConsoleHandler, say
from segmentation.cli.parser import Parser, new_parser, parse_all
from segmentation.cli.signals import interrupt_on_signals
from segmentation.clips import Batch, ClipDataset, ClipLoader, Output
from segmentation.errors import ConfigError, OutputError, SegmentationError, one_line, printable

_GAP = 4  # pixels between pictures
_SHADE = np.array([200, 60, 20])  # RGB: what is no person, in a sheet with masks


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code.

    0 done, 1 failed, 2 wrong usage, 130 or 143 stopped by a signal.
    """
    options = parse_all(make_parser(), arguments)
    logging.basicConfig(level=logging.WARNING, handlers=[ConsoleHandler("segmentation-clips")], force=True)
    with interrupt_on_signals() as received:
        try:
            dataset = ClipDataset(
                options.videos, length=options.length, step=options.step, stride=options.stride, masks=options.masks
            )
            print(_index(dataset, as_json=options.json) if options.output is None else _show(dataset, options))
            return 0
        except SegmentationError as exc:
            say(f"segmentation-clips: error: {exc}")
            return exc.exit_code
        except KeyboardInterrupt:
            return received.exit_code or 128 + signal.SIGINT


def make_parser() -> Parser:
    """Returns the command's parser."""
    parser = new_parser(
        "segmentation-clips",
        "VIDEO|FOLDER ...",
        "Indexes videos for training, and lists their frames and clips; with -o, draws clips as a loader makes them.",
        ["segmentation-clips videos/ --length 16", "segmentation-clips videos/ --masks masks/ --size 224x224 -o a.png"],
        "0 done, 1 failed, 2 wrong usage, 130 or 143 stopped by a signal",
    )  # fmt: skip
    add = parser.add_argument
    add("videos", nargs="+", metavar="VIDEO|FOLDER", help="what to index; folders with all that is below them")
    add("--length", type=int, default=16, metavar="N", help="frames of a clip (%(default)s)")
    add("--stride", type=int, default=1, metavar="N", help="frames from one of a clip to the next (%(default)s)")
    add("--step", type=int, metavar="N", help="frames from the beginning of a clip to that of the next (what it spans)")
    add("--masks", type=Path, metavar="FOLDER", help="what --save-masks has written, shown over the pictures")
    add("--json", action="store_true", help="print the list as JSON")
    add("-o", "--output", type=Path, metavar="SHEET.png", help="draw a batch of clips, a row each")
    add("-y", "--overwrite", action="store_true", help="replace the sheet")
    add("--clips", type=int, default=8, metavar="N", help="clips in the sheet (%(default)s)")
    add("--size", type=_size, metavar="WxH", help="crop clips to this size, at random, and mirror half of them")
    add("--seed", type=int, default=0, metavar="N", help="which clips, and which crops (%(default)s)")
    return parser


def _size(text: str) -> tuple[int, int]:
    """`224x128` is width and height; returns height and width."""
    width, _, height = text.partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise argparse.ArgumentTypeError(f"{text!r}: give width and height in pixels, such as 224x128")
    return int(height), int(width)


def _index(dataset: ClipDataset, *, as_json: bool) -> str:
    """Returns a line for each video, and one for all."""
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
    if as_json:
        return json.dumps({"videos": rows, "left_out": dataset.left_out, "clips": len(dataset)}, indent=2)
    lines = [
        f"{printable(str(row['path']))}: {row['frames']} frames of {row['width']}x{row['height']}, "
        + (f"{row['keyframes']} keyframes" if row["keyframes"] else "decoded from the beginning for each clip")
        + f", {row['clips']} clips"
        for row in rows
    ]
    frames = sum(len(index) for index in dataset.videos)
    return "\n".join([*lines, f"{len(rows)} videos, {frames} frames, {len(dataset)} clips"])


def _show(dataset: ClipDataset, options: argparse.Namespace) -> str:
    """Draws the first batch of an epoch; returns the file's name."""
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
        pending.create()
        try:
            pending.path.write_bytes(data.tobytes())
        except OSError as exc:
            raise OutputError(f"{target}: cannot be written ({one_line(exc)})") from exc
        pending.commit()
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
