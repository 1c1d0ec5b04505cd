"""The arguments of the command line, made from the table of options, and the `Config` that they stand for."""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast, get_args

from segmentation.cli.console import checks_stdout
from segmentation.cli.parser import Parser, add_everyday, new_parser, parse_into, read_time
from segmentation.errors import ConfigError
from segmentation.options.also import effect_and_file
from segmentation.options.command import Arguments
from segmentation.options.config import OPTIONS, Config
from segmentation.options.keywords import Options
from segmentation.options.table import GROUPS, Option, rows_of, words_of
from segmentation.pipeline.planning.implementations import IMPLEMENTATIONS

_EXAMPLES = (
    "segmentation input.mp4                                  writes input.segmented.mp4 beside it",
    "segmentation input.mp4 --anonymize faces                covers each face",
    "segmentation doctor                                     tries all that it needs of this machine",
    "segmentation serve                                      a page in the browser (needs the extra web)",
    "segmentation input.mp4 -o out.mkv --effect color:#00b140",
    "segmentation videos/ -r -o results/ --skip-existing     all videos and pictures in videos/ and its folders",
    "segmentation photo.jpg --effect cutout                  writes photo.segmented.png beside it",
    "ffmpeg -i in.mp4 -f matroska - | segmentation - -o - | ffplay -",
    "segmentation input.mp4 --start 1:30 --duration 10 --also mask:mask.mkv",
)


def parse(arguments: Sequence[str] | None = None) -> Arguments:
    """Returns the arguments, by default those of the process. Exits with a message if they are wrong."""
    parser = make_parser()
    options = parse_into(Arguments(), parser, arguments)
    for name, row in rows_of(Arguments).items():
        try:
            row.checked(getattr(options, name))
        except ConfigError as exc:
            parser.error(f"argument {row.flag}: {exc}")
    return options


@checks_stdout
def show(arguments: Sequence[str] | None = None) -> int:
    """Prints what --help and its like ask for, and exits. Returns 0 where nothing does, 1 for a broken stdout."""
    parse(arguments)
    return 0


def config_from(options: argparse.Namespace) -> Config:
    """Returns the options that were given as a `Config`. Raises `ConfigError`."""
    given = options_from(options)
    if "also" in given:
        given["also"] = [effect_and_file(text) for text in options.also]
    return Config(**given)


def options_from(options: argparse.Namespace) -> Options:
    """Returns those of the arguments that were given and are fields of `Config`."""
    return cast(
        Options, {name: value for name, value in vars(options).items() if name in OPTIONS and value is not None}
    )


def command_rows(config: type = Config) -> dict[str, Option]:
    """Returns the rows of all options of `segmentation`, with the names of the implementations of stages."""
    rows: Mapping[str, Option] = {**rows_of(Arguments), **rows_of(config)}
    return {name: _of_stage(row) if name in IMPLEMENTATIONS else row for name, row in rows.items()}


def _of_stage(row: Option) -> Option:
    names = tuple(IMPLEMENTATIONS[row.name])
    return replace(row, words=names, help=f"{row.help}: {' or '.join(names)}")


def make_parser(config: type = Config) -> Parser:
    """Returns the parser of `python -m segmentation`, with the rows of `config`."""
    rows = command_rows(config)
    parser = new_parser(
        "segmentation",
        "INPUT ...",
        "Blurs, replaces or masks everything in a video or picture but the people (or other classes) in it.",
        _EXAMPLES,
        "0 done, 1 failed, 2 wrong usage, 3 not on this machine, 4 written but incomplete, "
        "124 out of time, 129, 130, 143 stopped, 141 pipe closed by its reader.",
    )
    parser.add_argument(
        "inputs",
        nargs="*",
        metavar="INPUT",
        help="videos, pictures, folders of them, patterns, http(s) addresses, cameras ([NAME=]rtsp://, "
        "/dev/video0, ...), - (standard input)",
    )
    add_options(parser, rows.values())
    add_everyday(parser, *(flag for row in rows.values() if row.everyday for flag in row.spelled))
    return parser


def add_options(parser: argparse.ArgumentParser, rows: Iterable[Option]) -> None:
    """Adds the options to a parser, in the table's groups. Those that are not given get no default but `None`."""
    rows = list(rows)
    for name in GROUPS:
        members = [row for row in rows if row.group == name]
        if members:
            group = parser if name == "command" else parser.add_argument_group(name)
            for row in members:
                _add(group, row)


def help_of(row: Option) -> str:
    """Returns the option's line of help: what it does, its range, and its default."""
    form = "seconds or [HH:]MM:SS" if row.unit == "seconds" else row.span
    text = "; ".join(filter(None, [row.help, form, "may be repeated" if row.repeatable else ""]))
    switch = row.type is bool and not row.default
    return (text if switch else f"{text} (default: {row.shown_default})").replace("%", "%%")


def _add(group: argparse._ActionsContainer, row: Option) -> None:
    """Adds one option."""
    add = group.add_argument
    form: dict[str, Any] = {"dest": row.name, "default": None}
    if row.switches:
        add = group.add_mutually_exclusive_group().add_argument
        for flag, text in zip(row.spelled, row.help.split("; "), strict=True):
            add(flag, action="store_const", const=flag.lstrip("-"), help=text, **form)
    elif row.type is bool:
        negated = row.flag.startswith("--no-")
        action = argparse.BooleanOptionalAction if row.default and not negated else f"store_{str(not negated).lower()}"
        add(*row.spelled, action=action, help=help_of(row), **form)
    else:
        form |= {"type": _reader(row), "metavar": row.metavar} if row.metavar else {"choices": row.choices}
        action = "append" if row.repeatable else "store"
        made = add(*row.spelled, action=action, help=help_of(row), **form)
        made.words = row.words  # type: ignore[attr-defined]  # for completion, where argparse's choices would forbid others


def _reader(row: Option) -> Callable[[str], object] | None:
    """Returns the function that reads the option's text; `None` takes it as it is."""
    if row.repeatable:
        return None
    if row.unit == "seconds":
        return read_time
    kinds = (row.type, *get_args(row.type))
    if int in kinds:
        return _word_or_number(words_of(row.type))
    if float in kinds:
        return float
    return next((_LISTS[kind] for kind in kinds if kind in _LISTS), None)


def name_list(text: str) -> tuple[str, ...]:
    """Returns the names in `person,cat`."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def number_list(text: str) -> tuple[float, ...]:
    """Returns the numbers in `0.5,0.5,0.5`. Raises `ArgumentTypeError`."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be numbers with commas between, such as 0.5,0.5,0.5") from None


def picture_size(text: str) -> tuple[int, int]:
    """Returns height and width of `256x320`. Raises `ArgumentTypeError`."""
    height, _, width = text.lower().partition("x")
    try:
        return int(height), int(width)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be height and width, such as 256x320") from None


_LISTS: dict[object, Callable[[str], object]] = {
    tuple[str, ...]: name_list,
    tuple[float, ...]: number_list,
    tuple[int, int]: picture_size,
}


def _word_or_number(words: Sequence[str]) -> Callable[[str], int | str]:
    """Returns the reader of a whole number, or of one of `words`."""

    def read(text: str) -> int | str:
        try:
            return text if text in words else int(text)
        except ValueError:
            kinds = " or ".join(["a whole number", *words])
            raise argparse.ArgumentTypeError(f"{text!r} must be {kinds}") from None

    return read
