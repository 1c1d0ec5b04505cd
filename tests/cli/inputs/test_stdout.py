"""Standard output that can't be written, or whose reader has gone: an exit code, and no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from marks import first
from paths import ROOT, SAMPLE

COMMANDS = {
    name: [sys.executable, "-c", f"import sys; from segmentation.cli.{name} import main; sys.exit(main())"]
    for name in ("build_engine", "clips", "pieces")
} | {"segmentation": [sys.executable, "-m", "segmentation"]}


def ended(command: list[str], stdout: int) -> tuple[int, str]:
    """Returns exit code and stderr of a command with such a standard output."""
    done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    return done.returncode, done.stderr


def read_by_nobody(command: list[str]) -> tuple[int, str]:
    """Returns the same where the reader has gone before the command writes."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return ended(command, writer)
    finally:
        os.close(writer)


@pytest.mark.parametrize("option", first(1, ["--help", "--version"]))
@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_leaves_is_no_error(command: str, option: str) -> None:
    """As of programs that SIGPIPE ends: `segmentation --version | head -1`."""
    assert read_by_nobody([*COMMANDS[command], option]) == (141, "")


@pytest.mark.parametrize("options", [["--plan"], ["--plan", "--json"]])
def test_plans_too(options: list[str]) -> None:
    assert read_by_nobody([*COMMANDS["segmentation"], *options]) == (141, "")


def test_the_report_of_a_run_too(tmp_path: Path) -> None:
    target = tmp_path / "a.mp4"
    code, stderr = read_by_nobody(
        [*COMMANDS["segmentation"], str(SAMPLE), "-o", str(target), "--json", "-q", "--max-frames", "2"]
    )
    assert (code, stderr) == (141, "") and target.is_file()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("option", ["--version", "--help"])
def test_a_full_disk_is_an_error(option: str) -> None:
    with open("/dev/full", "w") as full:
        code, stderr = ended([*COMMANDS["segmentation"], option], full.fileno())
    assert code == 1 and stderr == "segmentation: error: standard output: cannot be written (No space left on device)\n"
