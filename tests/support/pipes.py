"""Programs in pipes and behind ports: what is written to one's standard input, and what comes out of it."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

from paths import ROOT
from program import TIMEOUT
from quick import NETWORK

COMMAND = [sys.executable, "-m", "segmentation", "--model", str(NETWORK)]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def piped(source: Path | None, *arguments: str | Path, command: str = "") -> subprocess.CompletedProcess[bytes]:
    """Runs the program with a file's bytes led into it through a pipe, and out of it into `command` of the shell."""
    line = [*COMMAND, *map(str, arguments)]
    if command:
        line = ["bash", "-o", "pipefail", "-c", f'"$@" | {command}', "bash", *line]
    data = source.read_bytes() if source is not None else b""
    done = subprocess.run(line, cwd=ROOT, env=ENVIRONMENT, input=data, capture_output=True, timeout=TIMEOUT)
    assert b"Traceback" not in done.stderr, done.stderr
    return done


def has_port(port: int) -> bool:
    """Whether a process has bound the port."""
    tables = (Path(f"/proc/net/{name}").read_text() for name in ("tcp", "udp"))
    return any(re.search(rf": [0-9A-F]+:{port:04X} 00000000:0000", table) for table in tables)


class Once:
    """A file object that can neither be sought nor say how long it is."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        return self._file.read(size)
