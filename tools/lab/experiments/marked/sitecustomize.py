"""Notes when each process of a command imports libraries and calls some functions: see `worker_timeline.py`.

It acts in every Python process that has this folder on its PYTHONPATH and a file's name in the variable MARKS, to which
each mark is appended at once, as a line of JSON.
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import runpy
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

_LIBRARIES = {*"numpy av cv2 onnxruntime torch cvcuda cuda.core".split()}
_CALLS = """
segmentation.cli.main: main
segmentation.gpu.discovery: find_gpu enter_context
segmentation.scale.coordinator: Workers.__init__ Workers._plan Workers.close
segmentation.scale.dispatcher: Dispatcher._handle
segmentation.scale.supervised: SupervisedPool.start SupervisedPool.shorten
segmentation.scale.join: Joiner.__enter__ Joiner.add Joiner.finish
segmentation.scale.worker: PieceSession.prepare PieceSession._warm_up
segmentation.sessions.processes: Processes.__init__ Processes.close _Process.__init__ _Process.run
segmentation.sessions.session: Segmenter.close
segmentation.pipeline.opened_run: open_run choose
segmentation.pipeline.planning.plan: make_plan
segmentation.pipeline.run: Run.__init__
segmentation.stages.inference.torch_fp16: _wake_libraries _loaded
segmentation.stages.inference.compiler.cuda_graph: preload _captured
segmentation.stages.decode.native.session: NativeSession.__init__
"""


class Marks:
    """Finds modules as Python does, times the imports of libraries, and wraps the functions of `_CALLS`."""

    def __init__(self, target: str) -> None:
        rows = (line.partition(":") for line in _CALLS.strip().splitlines())
        self._calls = {module: names.split() for module, _, names in rows}
        self._file = os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._threads: dict[int, str] = {}
        self._name_threads()
        self.note(what="process", words=sys.orig_argv[1:6], end=time.monotonic())
        os.register_at_fork(after_in_child=lambda: self.note(what="forked", end=time.monotonic()))

    def note(self, **mark: Any) -> None:
        """Writes a mark."""
        mark |= {"process": os.getpid(), "thread": threading.current_thread().name}
        os.write(self._file, json.dumps(mark).encode() + b"\n")

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if name not in _LIBRARIES and name not in self._calls:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        begin, execute = time.monotonic(), spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            if name in _LIBRARIES:
                self.note(what=f"import {name}", begin=begin, end=time.monotonic())
            for call in self._calls.get(name, ()):
                self._wrap(module, call)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _wrap(self, module: ModuleType, call: str) -> None:
        holder, _, name = call.rpartition(".")
        owner = getattr(module, holder, None) if holder else module
        inner: Callable[..., Any] | None = getattr(owner, name, None)
        if inner is None:
            return

        def outer(*given: Any, **options: Any) -> Any:
            begin, cpu = time.monotonic(), time.thread_time()
            try:
                return inner(*given, **options)
            finally:
                spent = time.thread_time() - cpu
                self.note(what=call, begin=begin, end=time.monotonic(), cpu=spent, **_about(given))
                if call == "main":
                    self.note(what="threads", cpu=time.process_time(), threads=self._cpu_of_threads())

        setattr(owner, name, outer)

    def _name_threads(self) -> None:
        run = threading.Thread.run

        def named(thread: threading.Thread) -> None:
            self._threads[threading.get_native_id()] = thread.name
            run(thread)

        threading.Thread.run = named  # type: ignore[method-assign]

    def _cpu_of_threads(self) -> list[tuple[str, float]]:
        """Returns the CPU seconds of the threads that are there; those of libraries have no name."""
        found = []
        for task in Path("/proc/self/task").iterdir():
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            name = "main" if int(task.name) == os.getpid() else self._threads.get(int(task.name), "")
            found.append((name, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")))
        return found


def _about(given: tuple[Any, ...]) -> dict[str, Any]:
    """Returns what a call is about, by its last argument or two."""
    last = given[-1] if given else None
    if hasattr(last, "worker") and not isinstance(last, type):
        return {"event": type(last).__name__, "worker": last.worker, "piece": getattr(last, "piece", None)}
    if hasattr(last, "video") and hasattr(last, "begin"):
        return {"worker": given[1], "span": [last.begin, last.end]}
    return {}


if "UNENCODED" in os.environ:
    runpy.run_path(str(Path(__file__).parents[1] / "unencoded" / "sitecustomize.py"))
if marks := os.environ.get("MARKS"):
    sys.meta_path.insert(0, Marks(marks))  # type: ignore[arg-type]
