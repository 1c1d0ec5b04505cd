"""What the measurements of the native decoder share."""

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
    return {"fps": round(frames / seconds), "cpu": round(1000 * (_cpu() - before) / max(1, frames), 3), "frames": frames}


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


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

    def best(self, name: str, key: str = "fps") -> float:
        """Returns the highest value of a name's rounds; 0 without any."""
        return max((value.get(key, 0) for value in self.all.get(name, [])), default=0)


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
    rates = {n.removeprefix("native "): max(r.get("fps", 0) for r in rounds) for n, rounds in load("alone").items() if n.startswith("native ")}
    able = [name for name in rates if name in right] or right or ["own,sync"]
    return max(able, key=lambda name: rates.get(name, 0))
