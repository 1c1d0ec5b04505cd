"""Parsers of the commands: no abbreviations, inputs and options in any order, and proposals for misspelt ones."""

import argparse
import logging
import os
import re
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NoReturn, TypeVar, get_args

from segmentation.cli.completion import PrintCompletion
from segmentation.cli.console import lines_as, put_out, say
from segmentation.cli.versions import PrintLines, versions
from segmentation.errors import ConfigError, did_you_mean
from segmentation.options.command import LogFormat
from segmentation.options.times import seconds

Space = TypeVar("Space")

# Options of other programs, and values of --codec, with the words that stand for them here.
_BACKGROUND = "--effect color:COLOR, image:FILE or video:FILE"
_OTHERS = dict.fromkeys(("--background", "--bg", "--bgcolor", "--replace"), _BACKGROUND) | {
    "--green-screen": "--effect color:#00b140",
    **dict.fromkeys(("--transparent", "--alpha"), "--effect cutout"),
    "--blur": "--effect blur:STRENGTH",
    "--pixelate": "--effect pixelate:SIZE",
    "--mosaic": "--effect pixelate:SIZE",
    **dict.fromkeys(("--blur-faces", "--face-blur"), "--anonymize faces"),
    "--faces": "--anonymize faces",
    "--plates": "--anonymize plates=FILE.onnx",
    "--replacewith": "--effect with a color or image:FILE",
    **dict.fromkeys(("--keep-audio", "--audio"), "nothing: sound is kept"),
    "--no-audio": "--mute",
    "--gpu": "--device cuda:0",
    "--cpu": "--device cpu",
    "--crf": "--quality",
    "--bitrate": "--quality",
    "--fps": "nothing: every frame keeps its time",
    "--resize": "nothing: the size stays",
    "--scale": "nothing: the size stays",
    "--output-dir": "--output with the folder",
    "--input": "the input's name alone",
    "-i": "the input's name alone",
    "-ss": "--start",
    "-t": "--duration",
    **dict.fromkeys(("--end", "--to", "--until", "-to"), "--duration: the length of the stretch from --start on"),
    "--force": "--overwrite",
    "h265": "hevc",
    "x265": "hevc",
    "libx265": "hevc",
    "x264": "h264",
    "libx264": "h264",
    "prores": "--effect cutout -o NAME.mov, the one output in ProRes",
}


class Parser(argparse.ArgumentParser):
    """A parser that proposes the choice that is meant."""

    everyday: frozenset[str] = frozenset()  # options that `--help` shows; none: it shows all, as `--help-all` does
    log_format: LogFormat = "text"  # of its errors

    def error(self, message: str) -> NoReturn:
        """Prints the error in the format of all lines, and exits with 2."""
        if self.log_format == "text":
            super().error(message)
        with lines_as(self.log_format):
            say(f"{self.prog}: error: {message}", logging.ERROR)
        sys.exit(2)

    def print_help(self, file: object = None) -> None:
        """Prints the help on standard output. Raises `OutputError`, where argparse would be silent."""
        put_out(self.format_everyday().rstrip("\n"))

    def format_everyday(self) -> str:
        """Returns the help of the everyday options alone."""
        rest = [a for a in self._actions if a.option_strings and self.everyday.isdisjoint(a.option_strings)]
        if not self.everyday:
            return self.format_help()
        texts = [action.help for action in rest]
        for action in rest:
            action.help = argparse.SUPPRESS
        shown = f"{self.format_help()}\n{len(rest)} more options: --help-all, and docs/options.md\n"
        for action, text in zip(rest, texts, strict=True):
            action.help = text
        return shown

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Raises `ArgumentError` if `value` is none of the action's choices."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as exc:
            exc.message += _meant(str(value), map(str, action.choices or ()))
            raise


def new_parser(program: str, inputs: str, description: str, examples: Sequence[str], codes: str) -> Parser:
    """Returns a parser with the options that print and end, and with examples and exit codes at the end of its help."""
    parser = Parser(**_form(program, inputs, description, examples, codes))
    add = parser.add_argument
    add("--version", action=PrintLines, const=versions, help="print the versions of the program and of its libraries")
    add("--licenses", action=PrintLines, const=_licenses, help="print the licenses of the program and of its libraries")
    add("--print-completion", action=PrintCompletion, help="print the script for TAB in bash, zsh or fish")
    return parser


def add_everyday(parser: Parser, *options: str) -> None:
    """Lets `--help` show these options alone, and adds `--help-all`."""

    def everything() -> list[str]:
        return [parser.format_help().rstrip("\n")]

    parser.add_argument("--help-all", action=PrintLines, const=everything, help="show all options, and exit")
    parser.everyday = frozenset(["-h", "--help-all", "--version", *options])


def _licenses() -> list[str]:
    from segmentation.cli.licenses import licenses  # reads the metadata of all libraries

    return licenses()


def add_command(
    commands: "argparse._SubParsersAction[Parser]",
    program: str,
    inputs: str,
    description: str,
    examples: Sequence[str],
    codes: str,
) -> Parser:
    """Adds the parser of one of a program's commands; `program` ends in the command's name."""
    form = _form(program, inputs, description, examples, codes)
    return commands.add_parser(program.rpartition(" ")[2], help=description, **form)


def _form(program: str, inputs: str, description: str, examples: Sequence[str], codes: str) -> dict[str, Any]:
    lines = "\n".join(f"  {example}" for example in examples)
    return {
        "prog": program,
        "usage": f"{program} [OPTION ...] {inputs}",  # all options would hide the error below them
        "description": description,
        "epilog": f"examples:\n{lines}\n\nexit codes: {codes}",
        "formatter_class": argparse.RawDescriptionHelpFormatter,
        "allow_abbrev": False,  # else an option of a later version changes what a script's abbreviation means
    }


def parse_all(parser: Parser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Returns the arguments, by default those of the process. Exits with a message if one of them is wrong."""
    return parse_into(argparse.Namespace(), parser, arguments)


def parse_into(space: Space, parser: Parser, arguments: Sequence[str] | None) -> Space:
    """Sets the arguments as attributes of `space`, and returns it. Exits with a message if one of them is wrong."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser.log_format = _log_format(given)
    parser._negative_number_matcher = re.compile(r"-\.?\d")  # argparse's takes -5 for a value, and not -5,0,10,10
    known = [option for action in parser._actions for option in action.option_strings]
    if "--" in given:  # argparse takes "--", or inputs between options, but not both
        at = given.index("--")
        given[at:] = [f"./{name}" if name.startswith("-") else name for name in given[at + 1 :]]
    for text in given:
        name = f"-{text.partition('=')[0]}"
        if name in known and len(name) > 3 and not text.startswith("--"):  # -output would be -o utput
            parser.error(f"unrecognized arguments: {text}; did you mean {name}?")
        if len(text) > 2 and text.startswith("-") and os.path.isfile(text):  # -video.mp4 would be -v ideo.mp4
            parser.error(f"unrecognized arguments: {text}; did you mean ./{text}?")
    _, unknown = parser.parse_known_intermixed_args(given, space)
    if unknown:
        meant = _meant if "--effect" in known else did_you_mean
        proposals = [meant(text.partition("=")[0], known) for text in unknown if text.startswith("-")]
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{''.join(proposals)}")
    return space


def _meant(given: str, known: Iterable[str]) -> str:
    """Returns what to write in place of an option or a choice, empty where nobody can say that."""
    return f"; write {_OTHERS[given]}" if given in _OTHERS else did_you_mean(given, known)


def _log_format(given: Sequence[str]) -> LogFormat:
    """Returns the last format of lines that the arguments name, whatever else is wrong with them."""
    named = [text.removeprefix("--log-format=") for text in given if text.startswith("--log-format=")]
    named += [value for option, value in pairwise(given) if option == "--log-format"]
    return next((form for form in get_args(LogFormat) if form in named[-1:]), "text")


def read_time(text: str) -> float:
    """Returns the seconds of an argument, see `times.seconds`."""
    try:
        return seconds(text)
    except ConfigError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None
