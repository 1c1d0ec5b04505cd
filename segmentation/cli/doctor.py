"""The command `segmentation doctor`: tries all that the program needs of this machine. Imports no library but rich."""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from segmentation._version import __version__
from segmentation.cli.console import checks_stdout, fail, put_out, say
from segmentation.doctor.examination import examine
from segmentation.doctor.finding import FAILED, Finding, failed, report
from segmentation.errors import BackendError, ConfigError, printable, reported
from segmentation.options.devices import DEVICES, is_device
from segmentation.system.atomic_file import PendingFile

_PROGRAM = "segmentation doctor"


@checks_stdout
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code: 0 all works, 1 no report, 2 wrong usage, 3 a part fails."""
    options = _parser().parse_args(arguments)
    try:
        if options.device not in (None, "auto") and not is_device(options.device):
            raise ConfigError(f"device {options.device!r}: write {DEVICES}")
        findings = _examined(None if options.device == "auto" else options.device, options)
    except KeyboardInterrupt:
        return 130
    except Exception as exc:
        return fail(reported(exc), _PROGRAM)
    return BackendError.exit_code if failed(findings) else 0


def _examined(device: str | None, options: argparse.Namespace) -> list[Finding]:
    """Returns all findings, which have been printed and written. Raises `OutputError`."""
    file = None if options.output is None else PendingFile(options.output, overwrite=options.overwrite)
    if file is not None:
        file.check("-o")
    findings = []
    for finding in examine(device):
        findings.append(finding)
        if not options.json:
            for line in _lines(finding):
                put_out(line)
    content = json.dumps(report(findings, __version__), indent=2)
    if options.json:
        put_out(content)
    else:
        put_out(_end(findings))
    if file is not None:
        with file:
            file.put(f"{content}\n".encode())
        say(f"{_PROGRAM}: {options.output} is to be attached to a report; it has no names of files or people")
    return findings


def _lines(finding: Finding) -> Iterator[str]:
    """Yields a finding's row of the table, and what mends it."""
    yield printable(f"{finding.outcome:<7} {finding.name:<24} {finding.detail}")
    for name, value in finding.figures.items():
        if finding.name == "NVDEC":
            yield f"{'':<32} {name}: {value}"
    if finding.mend:
        yield printable(f"{'':<32} {'mend' if finding.outcome == FAILED else 'to have it'}: {finding.mend}")


def _end(findings: Sequence[Finding]) -> str:
    faults = [finding.name for finding in findings if finding.outcome == FAILED]
    return f"{len(faults)} failed: {', '.join(faults)}" if faults else "all that is on this machine works"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_PROGRAM,
        description="Tries all that the program needs of this machine, for a minute, with a GPU for some: libraries, "
        "codecs, each stage against the CPU's result, NVENC's qualities, an engine.",
        epilog="exit codes: 0 all that is on this machine works, 1 the report can't be written, 2 wrong usage, "
        "3 a part fails, 130 stopped.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--device", metavar="NAME", help=f"what has to work: {DEVICES} (default: auto, whatever is there)")
    add("--json", action="store_true", help="print the findings as JSON in place of the table")
    add("-o", "--output", type=Path, metavar="FILE.json", help="write them to a file too, to be attached to an issue")
    add("-y", "--overwrite", action="store_true", help="overwrite an existing file")
    return parser
