"""The command's own options, which are no part of a run: rows of the table like those of `Config`."""

import argparse
import re
from dataclasses import dataclass, field
from typing import Literal

from segmentation.options.table import option

LogFormat = Literal["text", "times", "json"]


@dataclass(kw_only=True)
class Arguments(argparse.Namespace):
    """Holds the arguments: inputs, the command's own options, and as further attributes the options of runs."""

    inputs: list[str] = field(init=False)

    # Rows of a table, which a formatter would make ten lines each.
    # fmt: off
    output: str | None = option("command", None,
        "output file, a folder for several inputs, - for standard output, or an address for live sources",
        by_default="INPUT.segmented.mp4; of a picture a picture", flags=("-o", "--output"),
        metavar="FILE|FOLDER|ADDRESS", everyday=True, link="live.md#outputs")
    recursive: bool = option("command", False, "search folders in folders too", flags=("-r", "--recursive"),
        everyday=True)
    skip_existing: bool = option("command", False, "leave out inputs whose outputs exist", everyday=True)
    quiet: bool = option("command", False, "print errors only", flags=("-q", "--quiet"), everyday=True)
    verbose: bool = option("command", False, "print assumptions and choices too", flags=("-v", "--verbose"),
        everyday=True)
    log_format: LogFormat = option("command", "text",
        "lines on stderr: as they are, each after time and level, or as JSON objects; the latter two without bars")
    json: bool = option("command", False, "print a JSON report on stdout, a line for each input", everyday=True,
        link="options.md#reports")
    plan: bool = option("command", False, "print the implementation of each stage and why, stop", everyday=True,
        link="options.md#reports")
    jobs: int | Literal['auto'] = option("several inputs", "auto", "inputs at a time", low=1, metavar="N|auto",
        by_default="auto, 5 with a GPU, 4 for each of several processes, else 1", everyday=True,
        link="scale-out.md#which-is-right")
    processes: int | Literal['auto'] = option("several inputs", "auto",
        "processes that share the inputs, each with a GPU in turn", low=1, metavar="N|auto",
        by_default="auto, 1 but for much work on GPUs", link="scale-out.md#which-is-right")
    workers: str | None = option("several inputs", None,
        "cut videos into pieces for N processes, one a GPU, or a cluster's", metavar="local:N|auto|ray[:ADDRESS]",
        everyday=True, link="scale-out.md")
    exact: bool = option("several inputs", False,
        "with --workers: leave out those whose libraries or device differ from the first one's",
        link="scale-out.md#what-is-promised")
    timeout: float | None = option("several inputs", None,
        "end an input that takes longer, with exit code 124 and without a file", unit="seconds", above=0,
        high=1_000_000_000, metavar="TIME", link="security.md#limits")
    pace: bool = option("live sources", False, "play files at their own speed, as if they were cameras", link="live.md")
    status: str | None = option("live sources", None,
        "serve figures of streams and workers over HTTP, for this machine alone without HOST; metrics@: health and "
        "metrics alone, without HOST on all addresses", metavar="[metrics@][HOST]:PORT",
        link="live.md#figures-while-they-run")
    # fmt: on


def is_workers(text: str) -> bool:
    """Returns whether a text names workers, as `Workers` takes them."""
    return re.fullmatch(r"local:[1-9]\d{0,3}|auto|ray(:.*)?", text) is not None
