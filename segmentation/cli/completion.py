"""Completion in shells: which words each option takes. The package shtab writes the scripts."""

import argparse
import re
from collections.abc import Sequence

from segmentation.cli.console import put_out
from segmentation.errors import BackendError
from segmentation.options.effect import KINDS
from segmentation.system.installation import install

SHELLS = ("bash", "zsh", "fish")
_FILE = re.compile("FILE|FOLDER|INPUT|VIDEO")  # in the names of values that are files
_BEFORE_FILES = {"--effect": ("image", "video"), "--also": KINDS}  # effects that end in a colon and a file's name
# Functions that propose the words, and files after the words with a colon. A bash function gets the word as $1: with
# files in the proposals bash puts no space behind a lone `image:`. Bash itself completes what follows a colon.
_EFFECTS = {
    "bash": """{name}() {{
  compgen -W "{words}" -- "$1"
  local kind
  for kind in {kinds}; do
    [[ $kind: == "$1"* ]] && printf '%s\\n' "$kind:" && [[ -n $1 ]] && compgen -f -P "$kind:"
  done
}}""",
    "zsh": """{name}() {{
  if compset -P '*:'; then _files; else compadd -- {words}; compadd -S '' -- {colons}; fi
}}""",
    "fish": """function {name}
  set -l parts (string split -m 1 -r : -- (commandline -ct))
  if set -q parts[2]
    string replace -r '^' $parts[1]: -- (__fish_complete_path $parts[2])
  else
    printf '%s\\n' {words} {colons}
  end
end""",
}


class PrintCompletion(argparse.Action):
    """Prints the completion script of a shell and ends the program."""

    def __init__(self, option_strings: Sequence[str], dest: str, **others: str) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, choices=SHELLS, metavar="SHELL", help=others["help"])

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: object, shell: object, option_string: str | None = None
    ) -> None:
        try:
            put_out(script(parser, str(shell)))
            parser.exit()
        except BackendError as exc:
            parser.exit(exc.exit_code, f"{parser.prog}: error: {exc}\n")


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Returns the script that completes the parser's options in `shell`. Raises `BackendError` without shtab."""
    try:
        import shtab
    except ModuleNotFoundError as exc:
        raise BackendError(f"completion scripts need the package shtab; {install('completion')}") from exc
    functions = []
    for action in parser._actions:
        option = action.option_strings[-1] if action.option_strings else ""
        value = str(action.metavar or action.dest)
        action.metavar = value.replace(":", " ")  # colons part the fields of zsh's descriptions
        if not option:
            action.nargs = "*"  # argparse has none here, while it parses options apart from inputs
        if option in _BEFORE_FILES:
            name = f"_segmentation_{option.strip('-')}"
            functions.append(_function(shell, name, option))
            action.complete = {"bash": name, "zsh": name, "fish": f"({name})"}  # type: ignore[attr-defined]
        elif words := getattr(action, "words", ()):
            action.complete = shtab.cmd(f"printf '%s\\n' {' '.join(words)}")  # type: ignore[attr-defined]
        elif _FILE.search(value) or action.dest == "output":
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell, preamble="\n".join(functions)))


def _function(shell: str, name: str, option: str) -> str:
    """Returns the shell's function for an option whose value is an effect, or an effect and a file."""
    before_files = _BEFORE_FILES[option]
    words = [kind for kind in KINDS if kind not in before_files]
    return _EFFECTS[shell].format(
        name=name, words=" ".join(words), kinds=" ".join(before_files), colons=" ".join(f"{k}:" for k in before_files)
    )
