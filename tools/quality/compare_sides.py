"""Runs folders of files through two sides of this program, and says where they differ.

    python tools/quality/compare_sides.py FOLDER... [-o result.json]

By default the sides are the CPU's and the GPU's stages. Compared are refusals, the number of frames, times, decoded
planes (SHA-256), damage, and the masks of the first frames. A file takes a line:

    same        nothing differs
    explained   only what docs/gpu.md explains: a `change on the way`, `rounding`, `damage`
    DIFFERS     anything else
    HANGS, DIES the process has not come back in time, or has ended; the next file gets a new one

Some damage no decoder notices. Files that are known to have it are named by `--damaged 'cut-*'`, as often as needed.
The exit code is 1 if any file differs, hangs or dies, and 3 if a side can't run here. Other sides: `cpu`, `gpu`,
`one-thread` (FFmpeg without threads), `chunks` (FFmpeg on the chunks that NVDEC would get), `ffmpeg` (the program of
that name, without masks and damage), or MODULE:CLASS, a decoder of one's own.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter
from fnmatch import fnmatch
from importlib import metadata
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from side_differences import DAMAGE, compare
from sides import side

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # the tools are programs, not a package

from circumstances import circumstances

from segmentation import SegmentationError
from segmentation.gpu.discovery import find_gpu

_BAD = ("DIFFERS", "HANGS", "DIES")
_GPU_PACKAGES = ("torch", "cvcuda-cu13", "PyNvVideoCodec")
Result = dict[str, Any]


def work(connection: Connection, left: str, right: str, masks: int) -> None:
    """Compares the files that come through the connection, in a process of its own."""
    logging.getLogger("segmentation").addHandler(logging.NullHandler())  # what matters is in the results
    try:
        sides = side(left), side(right)
    except SegmentationError as exc:
        connection.send({"unable": str(exc)})
        return
    connection.send({})
    while (path := connection.recv()) is not None:
        connection.send(compare(path, *sides, masks).as_json())
    for one in sides:
        one.close()


class Worker:
    """A process that compares files, replaced when it hangs or dies. Everything in it is made once."""

    def __init__(self, left: str, right: str, masks: int, limit: float) -> None:
        self._arguments, self._limit = (left, right, masks), limit
        self._process: Any = None
        self._connection: Any = None

    def start(self) -> str:
        """Starts the process, if there is none. Returns why a side can't run."""
        if self._process is not None:
            return ""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(theirs, *self._arguments), daemon=True)
        self._process.start()
        theirs.close()
        try:
            return str(self._connection.recv().get("unable", ""))
        except EOFError:
            self._process.join()
            return f"the process that compares ended before its first file, with exit code {self._process.exitcode}"

    def compare(self, path: str) -> Result:
        """Returns the comparison of a file, or how it failed."""
        self.start()
        try:
            self._connection.send(path)
            if self._connection.poll(self._limit):
                result: Result = self._connection.recv()
                return result
            fault = {"state": "HANGS", "text": f"for {self._limit:g} s"}
        except (EOFError, OSError):
            self._process.join()
            fault = {"state": "DIES", "text": f"exit code {self._process.exitcode}"}
        self._process.kill()
        self._process.join()
        self._process = None
        return fault

    def stop(self) -> None:
        if self._process is not None:
            self._connection.send(None)
            self._process.join(self._limit)
            self._process.kill()


def files(given: list[Path]) -> list[Path]:
    """All files of the folders, and the files that are named."""
    return [file for path in given for file in (sorted(path.rglob("*")) if path.is_dir() else [path]) if file.is_file()]


def judged(result: Result, *, damaged: bool) -> Result:
    """The result with its state, and whether both sides had the same decoder only because one fell back."""
    if "state" in result:
        return result
    if damaged and result["kinds"] and not result["explained"] and set(result["kinds"]) <= DAMAGE:
        result["explained"] = "damage, which neither tells of"
    state = "explained" if result["explained"] else "DIFFERS" if result["kinds"] else "same"
    left, right = result["left"], result["right"]
    return {"state": state, "one_decoder": left["decoder"] == right["decoder"], **result}


def line(name: str, result: Result) -> str:
    """A file in one line."""
    if "left" not in result:
        return f"{result['state']:<10} {name}: {result['text']}"
    left, right = result["left"], result["right"]
    notes = [result["text"]] if result["kinds"] else [left["refusal"] or f"{left['frames']} frames"]
    if result["explained"]:
        notes.insert(0, f"({result['explained']})")
    if result["one_decoder"]:
        notes.append(f"both by {left['decoder']}: {right['fallback'] or left['fallback']}")
    if result["iou"] is not None:
        notes.append(f"masks {result['iou']:.4f}")
    return f"{result['state']:<10} {name}: {'; '.join(notes)}"


def summary(results: dict[str, Result]) -> Result:
    """Counts of the states, of explanations, and of files that one decoder served on both sides."""
    states = Counter(result["state"] for result in results.values())
    reasons = Counter(result["explained"] for result in results.values() if result.get("explained"))
    refused = sum(bool(r.get("left") and r["left"]["refusal"] and r["state"] == "same") for r in results.values())
    alone = sum(bool(result.get("one_decoder") and not result["left"]["refusal"]) for result in results.values())
    return {
        "files": len(results),
        **states,
        "explained by": dict(reasons),
        "both refuse": refused,
        "both by one": alone,
    }


def head(arguments: list[str]) -> Result:
    """When, how and on what."""
    content = circumstances("quality/compare_sides.py", arguments)
    if find_gpu() is not None:
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "--id=0"]
        content["hardware"]["gpu"] = subprocess.run(query, capture_output=True, text=True).stdout.strip()
        content["versions"] |= {name: metadata.version(name) for name in _GPU_PACKAGES}
    return content


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs files through two sides of this program and compares.")
    parser.add_argument("inputs", nargs="+", type=Path, metavar="FOLDER", help="folders, or single files")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.json")
    parser.add_argument("--left", default="cpu", metavar="SIDE", help="default: cpu")
    parser.add_argument("--right", default="gpu", metavar="SIDE", help="default: gpu")
    parser.add_argument(
        "--masks", type=int, default=40, metavar="N", help="frames whose masks are compared, default 40"
    )
    parser.add_argument("--damaged", action="append", default=[], metavar="PATTERN", help="names of damaged files")
    parser.add_argument("--limit", type=float, default=180, metavar="SECONDS", help="for a file, default 180")
    options = parser.parse_args()
    if missing := [str(path) for path in options.inputs if not path.exists()]:
        parser.error(f"no such file or folder: {', '.join(missing)}")
    sys.path[:] = [os.path.abspath(folder) for folder in sys.path]
    worker = Worker(options.left, options.right, options.masks, options.limit)
    if unable := worker.start():
        print(unable, file=sys.stderr)
        return 3
    results: dict[str, Result] = {}
    begin = time.monotonic()
    for path in files(options.inputs):
        name = str(path.relative_to(path.parents[1])) if len(path.parts) > 1 else str(path)
        damaged = any(fnmatch(path.name, pattern) for pattern in options.damaged)
        results[name] = judged(worker.compare(str(path)), damaged=damaged)
        print(line(name, results[name]), flush=True)
    worker.stop()
    found = {**summary(results), "seconds": round(time.monotonic() - begin, 1)}
    print(", ".join(f"{name}: {value}" for name, value in found.items()))
    if options.output is not None:
        content = {**head(sys.argv[1:]), "sides": [options.left, options.right], "summary": found, "files": results}
        options.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 1 if any(result["state"] in _BAD for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
