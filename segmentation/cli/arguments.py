"""The arguments of the command line, and the `Config` that they stand for."""

import argparse
import threading
from collections.abc import Sequence
from typing import cast, get_args

from segmentation.cli.jobs import JOBS_ON_GPU, effect_and_file
from segmentation.cli.parser import Parser, add_everyday, new_parser, parse_all
from segmentation.errors import ConfigError
from segmentation.options.config import ACTIVATIONS, CODECS, STAGES, Config
from segmentation.options.devices import DEVICES
from segmentation.options.effect import CHOICES
from segmentation.options.keywords import Format, Interval, OnLoss, Options, Quality, ResultsFormat, Track
from segmentation.options.model_types import SEGMENTATION, TASKS, TYPES
from segmentation.options.times import seconds
from segmentation.pipeline.implementations import IMPLEMENTATIONS
from segmentation.system.access import MAX_DELAY, MAX_PIXELS, STALL

_EXAMPLES = (
    "segmentation input.mp4                                  writes input.segmented.mp4 beside it",
    "segmentation doctor                                     tries all that it needs of this machine",
    "segmentation input.mp4 -o out.mkv --effect color:#00b140",
    "segmentation videos/ -r -o results/ --skip-existing     all videos and pictures in videos/ and its folders",
    "segmentation photo.jpg --effect cutout                  writes photo.segmented.png beside it",
    "ffmpeg -i in.mp4 -f matroska - | segmentation - -o - | ffplay -",
    "segmentation input.mp4 --start 1:30 --duration 10 --also mask:mask.mkv",
)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Returns the arguments, by default those of the process. Exits with a message if they are wrong."""
    return parse_all(make_parser(), arguments)


def config_from(options: argparse.Namespace) -> Config:
    """Returns the options that were given as a `Config`. Raises `ConfigError`."""
    given = options_from(options)
    if "also" in given:
        given["also"] = [effect_and_file(text) for text in options.also]
    return Config(**given)


def options_from(options: argparse.Namespace) -> Options:
    """Returns those of the arguments that were given and are fields of `Config`."""
    known = Options.__optional_keys__
    given = {name: value for name, value in vars(options).items() if name in known and value is not None}
    return cast(Options, given)


# What most people come for; `--help` names these, and where the rest is.
_EVERYDAY = (
    "-o -y -r -q -v --json --plan --skip-existing --jobs --workers --effect --also --anonymize --invert --feather "
    "--classes --start --duration --strict --keep --pick --count --results --no-video --quality --codec --verify "
    "--model --device"
).split()


def make_parser() -> Parser:
    """Returns the parser of `python -m segmentation`."""
    parser = new_parser(
        "segmentation",
        "INPUT ...",
        "Blurs, replaces or masks everything in a video or picture but the people (or other classes) in it.",
        _EXAMPLES,
        "0 done, 1 failed, 2 wrong usage, 3 not on this machine, 4 written but incomplete, "
        "124 out of time, 129, 130, 143 stopped, 141 pipe closed by its reader.",
    )
    add = parser.add_argument
    add(
        "inputs",
        nargs="*",
        metavar="INPUT",
        help="videos, pictures, folders of them, patterns, http(s) addresses, cameras ([NAME=]rtsp://, "
        "/dev/video0, ...), - (standard input)",
    )
    add(
        "-o",
        "--output",
        help="output file, - for standard output, a folder for several inputs, rtsp://, rtmp://, srt:// or udp:// for "
        "cameras (default: INPUT.segmented.mp4; of a picture a picture)",
    )
    add("-r", "--recursive", action="store_true", help="search folders in folders too")
    add("--skip-existing", action="store_true", help="leave out inputs whose output exists")
    add("-y", "--overwrite", action="store_true", help="overwrite an existing output")
    add("-q", "--quiet", action="store_true", help="print errors only")
    add("-v", "--verbose", action="store_true", help="print assumptions and choices too")
    add("--trace", metavar="FILE", help="write the times of all work, as a JSON for ui.perfetto.dev")
    add("--json", action="store_true", help="print a JSON report on stdout, a line for each input")
    add("--plan", action="store_true", help="print the implementation of each stage, and why, and stop")
    _add_sharing(parser)
    _add_effect(parser)
    _add_instances(parser)
    _add_live(parser)
    _add_output(parser)
    _add_model(parser)
    _add_stages(parser)
    add_everyday(parser, *_EVERYDAY)
    return parser


def _add_sharing(parser: argparse.ArgumentParser) -> None:
    """Adds the options of several inputs, and of processes that share them."""
    add = parser.add_argument_group("several inputs, several processes").add_argument
    add(
        "--jobs",
        type=_jobs,
        metavar="N|auto",
        help=f"inputs at a time (default: auto, {JOBS_ON_GPU} with a GPU, else 1)",
    )
    add(
        "--processes",
        type=int,
        default=1,
        metavar="N",
        help="that share the inputs, each with one GPU; one for each 12 videos at a time, or 5 cameras (default: 1)",
    )
    add(
        "--workers",
        metavar="local:N|auto|ray[:ADDRESS]",
        help="cut videos into pieces for N processes, one a GPU, or a cluster's, see docs/scale-out.md (default: none)",
    )
    add("--exact", action="store_true", help="with --workers: leave out those whose libraries or device differ")
    add(
        "--timeout",
        type=_timeout,
        metavar="TIME",
        help="end an input that takes longer, without a file (default: none)",
    )


def _add_effect(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the effect, the mask and the stretch of the input."""
    add = parser.add_argument_group("effect").add_argument
    add("--effect", help=f"{CHOICES}; sizes in pixels of a 1080-line picture (default: blur:25)")
    add("--also", action="append", metavar="EFFECT:FILE", help="another output of the same run, such as mask:mask.mkv")
    add("--anonymize", metavar="faces|people|plates=FILE", help="cover these, by default in black (default: none)")
    add("--keep-metadata", action="store_true", help="with --anonymize: keep titles, places, subtitles and the like")
    add("--mute", action="store_true", help="leave out the sound")
    add("--invert", action="store_true", help="apply the effect to the people, keep the rest")
    add("--threshold", type=float, metavar="T", help="value of the mask where the edge lies, 0 to 1 (default: 0.5)")
    add(
        "--feather",
        type=float,
        metavar="PX",
        help="width of the edge in pixels of a 1080-line picture, 0 to 500 (default: 0)",
    )
    add(
        "--classes",
        type=name_list,
        metavar="NAME,...",
        help="classes to keep (default: person, or all if the model has no person)",
    )
    add("--smooth", type=float, metavar="0..1", help="smoothing of the masks over time (default: 0.5; 0: none)")
    add(
        "--interval",
        type=_interval,
        metavar="N|auto",
        help="frames between two that the network sees, 0 to 30, or auto: as the picture changes (default: 0)",
    )
    add(
        "--refine",
        action=argparse.BooleanOptionalAction,
        help="draw the mask's edge along the picture's edge (default: yes)",
    )
    add("--start", type=_time, metavar="TIME", help="begin there: seconds or [HH:]MM:SS (default: 0)")
    add("--keep-start", action="store_true", help="begin at the time at which the input's clock does, not at 0")
    add(
        "--duration",
        type=_time,
        metavar="TIME",
        help="stop after this long: seconds or [HH:]MM:SS (default: at the end)",
    )
    add("--max-frames", type=int, metavar="N", help="stop after N frames (default: at the end)")
    add("--strict", action="store_true", help="fail if frames of the input are damaged or missing")
    add("--allow", type=name_list, metavar="NAME,...", help="playlists, private (addresses); default: neither")
    add("--max-pixels", type=int, metavar="N", help=f"refuse larger frames (default: {MAX_PIXELS})")
    add("--max-duration", type=_time, metavar="TIME", help="refuse longer inputs (default: any length)")


def _add_instances(parser: argparse.ArgumentParser) -> None:
    """Adds the options of who is who."""
    add = parser.add_argument_group("who is who").add_argument
    add(
        "--track",
        choices=get_args(Track),
        help="tell people apart and give them ids, by overlap, also by motion, also by colors (default: balanced where "
        "another option needs ids, else none)",
    )
    add("--keep", metavar="id:N,...|largest|nearest|first", help="keep these people alone (default: all)")
    add("--pick", metavar="X,Y@TIME", help="keep whoever is at this point then, before and after too (default: all)")
    add(
        "--count",
        action="append",
        metavar="line:X1,Y1,X2,Y2|zone:X1,Y1,...",
        help="count people over a line or in a zone, in pixels of the upright picture, or all in percent, 50%%; may be "
        "repeated (default: none)",
    )


def _add_live(parser: argparse.ArgumentParser) -> None:
    """Adds the options of cameras and streams."""
    add = parser.add_argument_group("live sources").add_argument
    add(
        "--max-delay",
        type=_time,
        metavar="TIME",
        help=f"drop frames that have waited longer for the pipeline (default: {MAX_DELAY:g})",
    )
    add(
        "--max-interval",
        type=int,
        metavar="N",
        help="frames between two that the network sees while the stages are too slow; 0: drop frames (default: 3)",
    )
    add("--stall", type=_time, metavar="TIME", help=f"a source that is silent for longer is lost (default: {STALL:g})")
    add(
        "--reconnect",
        metavar="A..B|never",
        help="seconds between attempts to reconnect, at first and at most; never: the run ends (default: 0.5..10)",
    )
    add(
        "--on-loss",
        choices=get_args(OnLoss),
        help="shown while a source is lost: nothing, the last picture with the effect everywhere, or a card that says "
        "so (default: gap)",
    )
    add(
        "--low-delay",
        action="store_true",
        help="hold back no frame: no smoothing of the masks unless --smooth says so, larger files (default: no)",
    )
    add(
        "--cut-every",
        type=_time,
        metavar="TIME",
        help="go on in a new file; -o takes {name} and strftime's fields then (default: one file)",
    )
    add("--pace", action="store_true", help="play files at their own speed, as if they were cameras (default: no)")
    add(
        "--status",
        metavar="[HOST]:PORT",
        help="serve figures of streams and workers over HTTP, for this machine alone without HOST (default: no)",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the codec and of the other files that a run writes."""
    add = parser.add_argument_group("output").add_argument
    add("--format", choices=get_args(Format), help="container of an output that is a pipe (default: matroska)")
    add("--codec", choices=CODECS, help="the video's codec (default: h264; av1 in .webm)")
    add(
        "--quality",
        type=_quality,
        metavar="N|high",
        help="rate factor, lower is better: h264 and hevc 0 to 51, av1 0 to 63; pictures and mjpeg 1 to 100, higher is "
        "better; high: h264 16, hevc 11, av1 8, mjpeg 95 (default: h264 25, hevc 18, av1 21, for files about as "
        "large as the input; pictures 92, mjpeg 90; on NVENC h264 26, hevc 30, av1 32)",
    )
    add(
        "--preset",
        metavar="NAME",
        help="speed against size: h264 and hevc ultrafast to placebo, av1 0 to 13, NVENC p1 to p7 "
        "(default: h264 superfast, hevc fast, av1 8, NVENC p5)",
    )
    add("--verify", action="store_true", help="check the output afterwards, against the input")
    add(
        "--no-video",
        dest="video",
        action="store_false",
        help="write no video, but --results, --save-masks and --count alone (default: a video)",
    )
    add(
        "--results",
        metavar="FILE|FOLDER|ADDRESS",
        help="also write the classes, areas and boxes of each frame as JSON lines, or post them to an http(s) address",
    )
    add(
        "--results-format",
        choices=get_args(ResultsFormat),
        help="of the results: JSON lines, COCO's JSON or MOT's text (default: lines)",
    )
    add("--rle", action="store_true", help="add the masks to the results, as COCO's run lengths")
    add("--save-masks", metavar="FILE.mkv|FOLDER", help="also write the masks as a video, for --masks")


def _add_model(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the network, or of the masks in its place."""
    group = parser.add_argument_group("model")
    add = group.add_argument
    add("--masks", metavar="FILE.mkv|FOLDER", help="in place of a model: masks that --save-masks wrote for this input")
    add(
        "--model",
        metavar="NAME|FILE.onnx|FILE.engine",
        help="the network; person and person-hq are built in (default: person)",
    )
    add(
        "--then",
        action="append",
        metavar="NAME=FILE.onnx@LABEL",
        help="a further network on each LABEL, such as face=face.onnx@person; may be repeated (default: none)",
    )
    add_meaning(group)


def _add_stages(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the stages' implementations and of the device."""
    group = parser.add_argument_group("stages and device")
    mode = group.add_mutually_exclusive_group()
    mode.add_argument("--baseline", dest="mode", action="store_const", const="baseline", help="the plain stages")
    mode.add_argument("--optimized", dest="mode", action="store_const", const="optimized", help="GPU stages, or fail")
    for stage in STAGES:
        names = " or ".join(IMPLEMENTATIONS[stage])
        group.add_argument(f"--{stage}", metavar="NAME", help=f"{names} (default: the first that can run)")
    group.add_argument(
        "--batch-size", type=int, metavar="N", help="frames at a time (default: 16 on a GPU, 1 on the CPU)"
    )
    group.add_argument("--compile", action="store_true", default=None, help="torch.compile: slow to start, then faster")
    group.add_argument("--device", metavar="NAME", help=f"{DEVICES} (default: auto, an NVIDIA GPU, else the CPU)")


def add_meaning(group: argparse._ArgumentGroup) -> None:
    """Adds the options for the meaning of a network's inputs and outputs."""
    add = group.add_argument
    add("--labels", type=name_list, metavar="NAME,...", help="one for each output channel (default: the model's)")
    add("--mean", type=number_list, metavar="R,G,B", help="subtracted from RGB in 0..1 (default: the model's, else 0)")
    add("--std", type=number_list, metavar="R,G,B", help="divides what is left (default: the model's, else 1)")
    add("--channel-order", choices=("rgb", "bgr"), help="of the input (default: the model's, else rgb)")
    add(
        "--input-size",
        type=picture_size,
        metavar="HxW",
        help="pixels, 8 to 8192 each, for models with a dynamic size (default: the model's, else 512x512)",
    )
    add(
        "--activation",
        choices=ACTIVATIONS,
        help="function that is still to be applied to the output (default: the model's, else by the output's range)",
    )
    add("--model-type", choices=tuple(TYPES), help="what the file does not state (default: as it looks)")
    add(
        "--task",
        choices=(SEGMENTATION, *TASKS),
        help="what the outputs hold: masks of classes, or single things (default: as it looks)",
    )
    add("--model-output", metavar="NAME", help="the output that is the mask (default: the first that can be one)")
    add(
        "--model-input",
        dest="model_inputs",
        action="append",
        metavar="NAME=VALUE",
        help="value of another input, such as downsample_ratio=0.25; may be repeated (default: the model's)",
    )


def name_list(text: str) -> tuple[str, ...]:
    """Returns the names in `person,cat`."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def number_list(text: str) -> tuple[float, ...]:
    """Returns the numbers in `0.5,0.5,0.5`. Raises `ValueError`."""
    return tuple(float(part) for part in text.split(","))


def picture_size(text: str) -> tuple[int, int]:
    """Returns height and width of `256x320`. Raises `ValueError`."""
    height, _, width = text.lower().partition("x")
    return int(height), int(width)


def _jobs(text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}: give 1 or more, or auto")
    return int(text)


def _quality(text: str) -> Quality:
    try:
        return "high" if text == "high" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, or high") from None


def _interval(text: str) -> Interval:
    try:
        return "auto" if text == "auto" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, or auto") from None


def _timeout(text: str) -> float:
    if not 0 < (limit := _time(text)) < threading.TIMEOUT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r}: must be more than 0 seconds")
    return limit


def _time(text: str) -> float:
    try:
        return seconds(text)
    except ConfigError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None
