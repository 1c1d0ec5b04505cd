"""Runs one check: `python -m segmentation.doctor.check NAME REQUEST FINDINGS`. Findings go to a file, a line each."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from segmentation.doctor.finding import Finding, Request, refused
from segmentation.errors import one_line
from segmentation.system.imports import loaded

CHECKS = {
    "machine": "segmentation.doctor.machine:check",
    "libraries": "segmentation.doctor.libraries:check",
    "codecs": "segmentation.doctor.codecs:check",
    "clip": "segmentation.doctor.stages:make_clip",
    "stage": "segmentation.doctor.stages:check",
    "NVENC": "segmentation.doctor.nvenc:check",
    "engine": "segmentation.doctor.engine:check",
}


Check = Callable[[Request], Iterator[Finding]]


def main() -> None:
    """Runs the check that the arguments name."""
    name, request, path = sys.argv[1:]
    with Path(path).open("a", encoding="utf-8") as file:
        for finding in _findings(name, Request(**json.loads(request))):
            print(json.dumps(asdict(finding)), file=file, flush=True)  # a crash leaves those before


def _findings(name: str, request: Request) -> Iterator[Finding]:
    title = " ".join(filter(None, (request.stage or name, request.implementation)))
    module, _, function = CHECKS[name].partition(":")
    try:
        check: Check = loaded(module, function, "")
        yield from check(request)
    except Exception as exc:  # whatever it is, the machine fails here
        yield refused(title, one_line(exc))


if __name__ == "__main__":
    main()
