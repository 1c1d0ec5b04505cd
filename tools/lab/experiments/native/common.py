"""What the measurements of the native decoder share."""

import faulthandler
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if limit := float(os.environ.get("NATIVE_LIMIT", "0")):
    faulthandler.dump_traceback_later(limit, exit=True)  # a section that hangs says where
ROOT = Path(__file__).parents[4]
sys.path[:0] = [str(ROOT / "tools" / "benchmarks"), str(Path(__file__).parent)]
WORK = Path(os.environ.get("NATIVE_WORK", "/dev/shm/w"))
OUT = Path(os.environ.get("OUT", "/tmp"))
# Ways of the native decoder, by name: environment variables.
WAYS = {
    "shared": {},
    "own": {"NATIVE_STREAMS": "own"},
    "shared,sync": {"NATIVE_SYNC": "1"},
    "own,sync": {"NATIVE_STREAMS": "own", "NATIVE_SYNC": "1"},
    "own,delay1": {"NATIVE_STREAMS": "own", "NATIVE_DELAY": "1", "NATIVE_SURFACES": "4"},
    "own,outputs4": {"NATIVE_STREAMS": "own", "NATIVE_OUTPUTS": "4"},
    "own,+4": {"NATIVE_STREAMS": "own", "NATIVE_MORE": "4"},
    "own,+7": {"NATIVE_STREAMS": "own", "NATIVE_MORE": "7"},
}


@contextmanager
def way(name: str) -> Iterator[None]:
    """Sets a way's environment variables."""
    for key in [key for key in os.environ if key.startswith("NATIVE_") and key not in _KEPT]:
        del os.environ[key]
    os.environ.update(WAYS.get(name, {}))
    yield


_KEPT = ("NATIVE_LIBRARY", "NATIVE_WORK", "NATIVE_LIBCUDA", "NATIVE_LIBNVCUVID")


def measured(work: Callable[[], int]) -> dict[str, float]:
    """Runs `work`, which returns frames: frames a second, and CPU seconds for 1,000 of them."""
    before, begin = _cpu(), time.perf_counter()
    frames = work()
    seconds = time.perf_counter() - begin
    return {
        "fps": round(frames / seconds),
        "cpu": round(1000 * (_cpu() - before) / max(1, frames), 3),
        "frames": frames,
    }


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Watch:
    """Measures while it is entered how long threads wait for the GIL, and which thread takes how much CPU time."""

    def __init__(self) -> None:
        self._over, self._late = threading.Event(), []  # type: ignore[var-annotated]
        self._cpu: dict[int, list[float]] = {}  # by native id: at first, at last
        self._names: dict[int, str] = {}
        self._thread = threading.Thread(target=self._watch, daemon=True, name="watch")

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def found(self) -> dict[str, Any]:
        """Returns ms by which a thread that slept 3 ms came late (mean, median), and CPU seconds of the busiest."""
        spent = sorted(((b - a, self._names.get(n, "?")) for n, (a, b) in self._cpu.items()), reverse=True)
        late = sorted(self._late) or [0.0]
        cpu = [f"{name.split(' ')[-1]} {seconds:.2f}" for seconds, name in spent[:10] if seconds > 0.03]
        return {"late": [round(1000 * sum(late) / len(late), 2), round(1000 * late[len(late) // 2], 2)], "threads": cpu}

    def _watch(self) -> None:
        self._look()
        looked = time.perf_counter()
        while not self._over.is_set():
            begin = time.perf_counter()
            time.sleep(0.003)
            self._late.append(time.perf_counter() - begin - 0.003)
            if time.perf_counter() > looked + 0.15:
                self._look()
                looked = time.perf_counter()
        self._look()

    def _look(self) -> None:
        self._names |= {t.native_id: t.name for t in threading.enumerate() if t.native_id}
        later = bool(self._cpu)
        for task in Path("/proc/self/task").iterdir():
            try:
                fields = (task / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            self._cpu.setdefault(int(task.name), [0.0 if later else cpu, cpu])[1] = cpu


class Results:
    """Results by name, written to a file after each, so that a section that is cut off leaves some."""

    def __init__(self, name: str) -> None:
        self._path, self.all = OUT / f"native-{name}.json", {}  # type: ignore[var-annotated]

    def attempt(self, name: str, work: Callable[[], Any]) -> None:
        """Adds what `work` returns, or its error."""
        try:
            value = work()
        except BaseException as exc:
            value = {"error": f"{type(exc).__name__}: {exc}"[:300]}
            if isinstance(exc, KeyboardInterrupt):
                raise
        self.all.setdefault(name, []).append(value)
        self._path.write_text(json.dumps(self.all, indent=1) + "\n", encoding="utf-8")


def first_clip() -> str:
    return str(ROOT.parent / "shared" / "clips" / "person-walking.mp4")


def clip(frames: int, codec: str = "h264", encode: int = 600) -> Path:
    """Returns a clip of 1080p in groups of 30 pictures, made at its first use."""
    from clips import make_clip

    WORK.mkdir(exist_ok=True)
    return make_clip(first_clip(), frames, (1920, 1080), WORK, codec=codec, gop=30, rate=30, encode=min(encode, frames))


def chosen() -> str:
    """Returns the fastest way whose frames are right, by the results of `parity.py` and `alone.py`."""

    def load(name: str) -> dict[str, Any]:
        try:
            return json.loads((OUT / f"native-{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    right = [name for name, found in load("parity-ways").items() if found[-1].get("equal")]
    rates = {
        n.removeprefix("native "): max(r.get("fps", 0) for r in rounds)
        for n, rounds in load("alone").items()
        if n.startswith("native ")
    }
    able = [name for name in rates if name in right] or right or ["own,sync"]
    return max(able, key=lambda name: rates.get(name, 0))
