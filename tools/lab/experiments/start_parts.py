"""Measures when the parts of a cold start begin and how long they take, of several revisions in turn.

    git worktree add /tmp/old f9d24863
    python tools/lab/experiments/start_parts.py VIDEO --tree . --tree /tmp/old -o FILE.json

A start is the command over the first 16 frames of VIDEO in a process of its own, with warm caches: a first round is
not counted. Its marks are imports of libraries and calls of the program's functions, each as [what, thread, seconds
since the process was started, seconds that it took]. Functions that a revision lacks have none.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))  # the tools are programs, not a package

FRAMES = 16
_CHILD = "START_PARTS"  # variable: the file for marks and when the process was started, in the one that is measured
_SHOWN = 0.05  # seconds: marks at least as long are printed
_LIBRARIES = "numpy av cv2 onnxruntime onnx torch torch._C torch.nn torch._meta_registrations sympy cuda.core cvcuda"
_PARTS = """
segmentation.cli.main: main
segmentation.gpu.discovery: find_gpu enter_context
segmentation.gpu.context: Gpu.__init__
segmentation.gpu.kernels: begin_compiling _compile
segmentation.pipeline.opened_run: probe_any choose open_run
segmentation.pipeline.planning.plan: make_plan
segmentation.pipeline.run: Run.__init__ Run._count Run.drive
segmentation.stages.inference.torch_fp16: _wake_libraries _loaded
segmentation.stages.inference.compiler.cuda_graph: preload _captured
segmentation.stages.decode.native.session: NativeSession.__init__ NativeSession.decode
segmentation.stages.encode.segments: SegmentEncoder.encode SegmentEncoder.flush
segmentation.sessions.session: Segmenter.close
"""


class Marks:
    """Finds modules as Python does, times the imports of libraries, and wraps the functions of `_PARTS`."""

    def __init__(self, begin: float, target: Path) -> None:
        self.found: list[tuple[str, str, float, float]] = []
        self._target = target
        self._begin = begin
        self._libraries = {*_LIBRARIES.split()}
        rows = (line.partition(":") for line in _PARTS.strip().splitlines())
        self._parts = {module: names.split() for module, _, names in rows}

    def mark(self, what: str, begin: float) -> None:
        """Notes what began then and is over now."""
        now = time.monotonic()
        self.found.append((what, threading.current_thread().name, round(begin - self._begin, 4), round(now - begin, 4)))

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if name not in self._libraries and name not in self._parts:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        begin, execute = time.monotonic(), spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            if name in self._libraries:
                self.mark(f"import {name}", begin)
            for call in self._parts.get(name, ()):
                self._wrap(module, call)
            if name == "segmentation.cli.main":
                module.command = lambda: self._end(module.main())

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _wrap(self, module: ModuleType, call: str) -> None:
        holder, _, name = call.rpartition(".")
        owner = getattr(module, holder, None) if holder else module
        inner: Callable[..., Any] | None = getattr(owner, name, None)
        if inner is None:
            return

        def outer(*given: Any, **options: Any) -> Any:
            begin = time.monotonic()
            try:
                return inner(*given, **options)
            finally:
                self.mark(f"{module.__name__.rpartition('.')[2]}.{call}", begin)

        setattr(owner, name, outer)

    def _end(self, code: int) -> None:
        """Writes the marks, and ends the process, in place of the program's own last steps."""
        self._target.write_text(json.dumps(sorted(self.found, key=lambda mark: mark[2])), encoding="utf-8")
        os._exit(code)


def child(target: Path, begin: float) -> None:
    """Runs the command line of this process as the program does, and writes its marks to `target`."""
    marks = Marks(begin, target)
    marks.mark("Python", begin)
    sys.meta_path.insert(0, marks)  # type: ignore[arg-type]
    from segmentation import __main__ as entry

    entry.start()


def start(tree: Path, video: Path, folder: Path) -> dict[str, Any]:
    """Returns the seconds until the file was there and until the process had ended, and the marks of one start."""
    target, marks = folder / "out.mp4", folder / "marks.json"
    target.unlink(missing_ok=True)
    paths = os.pathsep.join([str(tree), *filter(None, [os.environ.get("PYTHONPATH")])])
    begin = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": paths, _CHILD: f"{begin} {marks}"}
    command = [sys.executable, __file__, str(video), "-o", str(target), "-q", "--max-frames", str(FRAMES)]
    with subprocess.Popen(command, env=environment) as process:
        while not target.exists() and process.poll() is None:
            time.sleep(0.002)
        there = time.monotonic() - begin
    if process.returncode:
        raise SystemExit(f"{tree}: the command has failed with code {process.returncode}")
    ended = time.monotonic() - begin
    return {"there": round(there, 3), "ended": round(ended, 3), "marks": json.loads(marks.read_text(encoding="utf-8"))}


def main() -> None:
    from circumstances import circumstances

    parser = argparse.ArgumentParser(description="Measures the parts of cold starts of several revisions, in turn.")
    parser.add_argument("video", type=Path)
    parser.add_argument("--tree", type=Path, action="append", metavar="FOLDER", help="as often as needed (default: .)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    trees = [tree.resolve() for tree in given.tree or [Path()]]
    runs: dict[str, list[dict[str, Any]]] = {tree.name: [] for tree in trees}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1 + given.repeats):
            for tree in trees:
                found = start(tree, given.video.resolve(), Path(folder))
                if number:
                    runs[tree.name].append(found)
    results = circumstances("lab/experiments/start_parts.py", sys.argv[1:]) | {"runs": runs}
    given.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    for name, found in runs.items():
        there = sorted(found, key=lambda run: run["there"])
        print(f"{name}: {median(run['there'] for run in found):.2f} s; the parts of the middle one:")
        for what, thread, at, seconds in there[len(there) // 2]["marks"]:
            if seconds >= _SHOWN:
                print(f"  {at:6.2f} {seconds:6.2f} {what} [{thread}]")


if __name__ == "__main__":
    if place := os.environ.pop(_CHILD, None):
        started, _, file = place.partition(" ")
        child(Path(file), float(started))
    else:
        main()
