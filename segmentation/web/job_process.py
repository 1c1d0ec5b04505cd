"""The process of one job: takes the request from its link, sends progress and the end. Run by `JobRunner`."""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import BinaryIO, cast

from segmentation.errors import InputError, reported
from segmentation.frames.source import is_url
from segmentation.media.opening.download import DownloadError, HttpFile
from segmentation.options.config import Config
from segmentation.options.keywords import Options
from segmentation.pipeline.output_paths import default_output
from segmentation.scale.coordinator import Workers
from segmentation.sessions.session import Segmenter
from segmentation.system.access import Access
from segmentation.system.child_process import ignore_interrupts

_LONGEST = 200  # bytes of an output's name, of the 255 that there may be with what marks it as unfinished
_Request = tuple[str, str, str, str | None, Options, str | None]


def main() -> None:
    """Runs the job. Where the server is gone, sending progress fails, which ends the run without a file."""
    ignore_interrupts()
    with Connection(int(sys.argv[1])) as link:
        source, name, folder, target, options, workers = cast(_Request, link.recv())
        try:
            output, complete = _run(link, source, name, Path(folder), target, options, workers)
            link.send(("done", output, complete))
        except BrokenPipeError:
            pass
        except Exception as exc:
            link.send(("failed", str(reported(exc, name)).replace(source, name).replace(f"{folder}/", "")))


def _run(
    link: Connection[object, object],
    source: str,
    name: str,
    folder: Path,
    target: str | None,
    options: Options,
    workers: str | None,
) -> tuple[str, bool]:
    """Returns the output's name, and whether no frame was lost. Raises as `segment` does.

    Without a `target` the output lies in the job's `folder`. An address is read here, also where there are `workers`.
    """
    options["overwrite"] = True  # what a killed server has begun is written again
    config = Config(**options)
    if target is None:
        folder.mkdir(mode=0o700, exist_ok=True)
    output = folder / _shortened(default_output(name, config, content=source)) if target is None else Path(target)
    remote = is_url(source)
    given = _fetched(source, name) if remote else source
    made = Segmenter(config) if workers is None or remote else Workers(workers, config)
    with made as session:
        report = session.run(given, output, progress=lambda done, expected: link.send(("frames", done, expected)))
    link.send(("frames", report.frames, report.frames))  # the last call is a while ago
    return output.name, report.complete


def _shortened(output: Path) -> str:
    """Returns the output's name so short that a file system takes it: an upload's may have any length."""
    return output.stem.encode()[:_LONGEST].decode(errors="ignore") + output.suffix


def _fetched(address: str, name: str) -> BinaryIO:
    """Returns the file at an address. Raises `InputError`."""
    try:  # To this process no address is the user's own, so a private one is refused from the first.
        return cast(BinaryIO, HttpFile(address, Access(), named=False))
    except DownloadError as exc:
        reason = str(exc.strerror).removesuffix("; allow it with --allow private")  # which is for webhooks here
        raise InputError(f"{name}: {reason}") from exc


if __name__ == "__main__":
    main()
