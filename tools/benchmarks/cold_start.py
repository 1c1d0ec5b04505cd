"""Measures cold starts of several revisions and networks, in turn.

    git worktree add /tmp/old 6e182f4
    python tools/benchmarks/cold_start.py VIDEO --start .,person --start /tmp/old,old.onnx --start .,old.onnx

A cold start lasts from the start of a process until its first 16 frames are in a finished file. A first round fills the
caches: those of the program, of Python and of the system.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # the tools are programs, not a package

from circumstances import ROOT, circumstances

FRAMES = 16
_POLL = 0.002  # seconds between looks at whether the file is there


def cold_start(tree: Path, model: str, video: Path, folder: Path) -> tuple[float, float]:
    """Returns the seconds of one start of the program in `tree`, and those until the process has ended.

    Raises `RuntimeError` if the program fails.
    """
    target = folder / "out.mp4"
    target.unlink(missing_ok=True)
    command = [sys.executable, "-m", "segmentation", str(video), "-o", str(target), "-q", "--model", model]
    paths = os.pathsep.join([str(tree), *filter(None, [os.environ.get("PYTHONPATH")])])
    begin = time.perf_counter()
    with subprocess.Popen(
        [*command, "--max-frames", str(FRAMES)],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": paths},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not target.exists() and process.poll() is None:
            time.sleep(_POLL)
        finished = time.perf_counter() - begin
        _, said = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{tree}: {said}")
    return finished, time.perf_counter() - begin


def given(text: str) -> tuple[Path, str]:
    """Returns the folder and the network of TREE,MODEL."""
    tree, _, model = text.partition(",")
    return Path(tree).resolve(), str(Path(model).resolve()) if Path(model).is_file() else model


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures cold starts of several revisions and networks, in turn.")
    parser.add_argument("video", type=Path)
    parser.add_argument("--start", type=given, action="append", metavar="TREE,MODEL", help="as often as needed")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "tools" / "lab" / "results" / "cold-start.json")
    options = parser.parse_args()
    starts = options.start or [(ROOT, "person")]
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(1 + options.repeats):
            for tree, model in starts:
                try:
                    took, _ = cold_start(tree, model, options.video.resolve(), Path(folder))
                except RuntimeError as exc:
                    raise SystemExit(str(exc).strip()) from None
                seconds.setdefault(f"{tree.name}, {Path(model).name}", []).append(round(took, 3))
    results = circumstances("benchmarks/cold_start.py", sys.argv[1:])
    results["seconds"] = {name: {"median": median(found[1:]), "all": found[1:]} for name, found in seconds.items()}
    options.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    for name, found in results["seconds"].items():
        print(f"{name}: {found['median']:.2f} s ({', '.join(f'{one:.2f}' for one in found['all'])})")


if __name__ == "__main__":
    main()
