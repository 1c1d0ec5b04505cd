"""Findings of a check, and the report that holds them. Needs no library."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from segmentation.errors import hide_secrets

OK = "ok"
ABSENT = "absent"  # is not on this machine, and nothing has asked for it
FAILED = "failed"
OUTCOMES = (OK, ABSENT, FAILED)
REPORT = "segmentation doctor -o doctor.json, and attach the file to an issue"  # mends what is a fault of ours

FORMAT = 1  # of the report

_PATH = re.compile(r"(?<![\w:/])(?:~|[A-Za-z]:)?[\\/][^\s'\"`()\[\];:,]+")
_LIBRARY = re.compile(r"lib[\w+-]+\.(?:so|dylib|dll)[\d.]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The arguments of a check."""

    device: str | None = None  # as `Config.device`
    folder: str  # with the clip, and for files
    stage: str = ""  # that is not the CPU's own
    implementation: str = ""  # of that stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the table. The names of the fields are the JSON's keys."""

    name: str
    outcome: str  # one of `OUTCOMES`
    detail: str
    mend: str = ""  # the command or the step that mends it
    figures: dict[str, object] = field(default_factory=dict)


def refused(name: str, error: Exception | str, outcome: str = FAILED) -> Finding:
    """Returns the finding of an error, whose remedy stands behind the last semicolon as in all of this package's."""
    reason, _, mend = str(error).rpartition("; ")
    return Finding(name=name, outcome=outcome, detail=reason or mend, mend=mend if reason else "")


def report(findings: Sequence[Finding], version: str) -> dict[str, object]:
    """Returns the findings as JSON's objects, without names of people, machines and files."""
    fields = Finding.__dataclass_fields__
    return {
        "format": FORMAT,
        "program": version,
        "outcome": FAILED if failed(findings) else OK,
        "findings": [{name: _anonymous(getattr(one, name)) for name in fields} for one in findings],
    }


def failed(findings: Sequence[Finding]) -> bool:
    """Returns whether a part fails that is on this machine."""
    return any(one.outcome == FAILED for one in findings)


def anonymous(text: str) -> str:
    """Returns `text` without paths, but for names of libraries, and without the names of the user and the machine."""
    text = _PATH.sub(_without_folder, hide_secrets(text))
    for name, substitute in ((_user(), "USER"), (os.uname().nodename, "HOST")):
        if len(name) > 2:  # else it is part of words
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", substitute, text)
    return text


def _anonymous(value: object) -> object:
    if isinstance(value, dict):
        return {anonymous(name): _anonymous(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_anonymous(one) for one in value]
    return anonymous(value) if isinstance(value, str) else value


def _without_folder(found: re.Match[str]) -> str:
    library = _LIBRARY.search(found[0])
    return library[0] if library else "PATH"


def _user() -> str:
    return os.environ.get("USER") or os.environ.get("LOGNAME") or ""
