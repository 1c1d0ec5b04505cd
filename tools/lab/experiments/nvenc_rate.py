"""Measures what surrounds NVENC: whole runs with an NVENC that encodes nothing, against NVDEC alone.

    make nvenc-standin
    LD_LIBRARY_PATH=$PWD/build/nvenc NVENC_STANDIN_EMPTY=1 python tools/lab/experiments/nvenc_rate.py VIDEO --work DIR

The other whole runs drop their frames before any encoder. All take turns, in processes of their own. Prints JSON.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))  # the tools are programs, not a package

from clips import make_clip
from processes import in_process

SIZE, RATE, ENCODED = (1920, 1080), 30, 1200


def measure(clip: Path, frames: int, repeats: int) -> dict[str, Any]:
    """Returns the frames a second of every run, by name, and the best runs' shares in the limit."""
    rates: dict[str, list[float]] = {}
    whole = [("pipeline", clip, "person", kind, frames) for kind in ("nvenc", "null")]
    for _ in range(repeats):
        for work, *arguments in (("decoding", clip, frames), *whole):
            with tempfile.TemporaryDirectory(dir=clip.parent) as folder:
                for name, result in in_process("gpu_runs", work, Path(folder), *arguments).items():
                    rates.setdefault(name, []).append(round(result["steady"], 1))
    limit = max(max(found) for name, found in rates.items() if "independent" in name)
    return {"fps": rates, "of_limit": {kind: round(max(rates[kind]) / limit, 3) for kind in ("nvenc", "null")}}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures whole runs with an NVENC that encodes nothing.")
    parser.add_argument("video", help="what the clip is made from")
    parser.add_argument("--frames", type=int, default=4800, metavar="N")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()), metavar="DIR")
    options = parser.parse_args()
    if os.environ.get("NVENC_STANDIN_EMPTY") != "1":
        raise SystemExit("set NVENC_STANDIN_EMPTY=1, and LD_LIBRARY_PATH to the stand-in")
    clip = make_clip(options.video, options.frames, SIZE, options.work, rate=RATE, gop=30, encode=ENCODED)
    print(json.dumps(measure(clip, options.frames, options.repeats)))


if __name__ == "__main__":
    main()
