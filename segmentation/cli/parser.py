"""Parsers of both commands: no abbreviations, inputs and options in any order, and a proposal for a misspelt option."""

import argparse
import sys
from collections.abc import Sequence
from difflib import get_close_matches

import segmentation


def new_parser(
    program: str, inputs: str, description: str, examples: Sequence[str], codes: str
) -> argparse.ArgumentParser:
    """Returns a parser with `--version` and, at the end of its help, examples and exit codes."""
    lines = "\n".join(f"  {example}" for example in examples)
    parser = argparse.ArgumentParser(
        prog=program,
        usage=f"{program} [OPTION ...] {inputs}",  # all options would hide the error below them
        description=description,
        epilog=f"examples:\n{lines}\n\nexit codes: {codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # else an option of a later version changes what a script's abbreviation means
    )
    parser.add_argument("--version", action="version", version=f"segmentation {segmentation.__version__}")
    return parser


def parse_all(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Returns the arguments, by default those of the process. Exits with a message if one of them is wrong."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    # argparse takes inputs between options, or "--" before names that begin with "-", but not both.
    options, unknown = parser.parse_known_args(given) if "--" in given else parser.parse_known_intermixed_args(given)
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{_proposal(parser, unknown)}")
    return options


def _proposal(parser: argparse.ArgumentParser, unknown: Sequence[str]) -> str:
    """Returns a question with the options that are nearest to the unknown ones, empty if none is near."""
    known = [option for action in parser._actions for option in action.option_strings]
    near = []
    for text in unknown:
        name = text.partition("=")[0]
        if name.startswith("--"):
            begun = [option for option in known if option.startswith(name)]
            near += begun[:1] or get_close_matches(name, known, n=1, cutoff=0.7)
    return f"; did you mean {', '.join(near)}?" if near else ""
