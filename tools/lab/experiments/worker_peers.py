"""How others spread one video over processes: a farm of FFmpeg's segments, and Ray Data's map_batches.

    python tools/lab/experiments/worker_peers.py farm|ray-data VIDEO OUTPUT --workers 2

Both cut the video into parts of 8 s, make each as a video of its own, and put the parts together with FFmpeg's concat
demuxer. The program `ffmpeg` is needed, for ray-data the package `ray[data]`.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from pathlib import Path
from typing import Any

import av

PART = 8  # seconds
FFMPEG = ["ffmpeg", "-nostdin", "-v", "error"]


def farm(video: Path, output: Path, workers: int, given: dict[str, str], folder: Path) -> None:
    """FFmpeg cuts at keyframes, and each part is a command of its own, some of them at a time."""
    cut = ["-f", "segment", "-segment_time", str(PART), "-reset_timestamps", "1", f"{folder}/in%04d.mp4"]
    subprocess.run([*FFMPEG, "-i", video, "-map", "0", "-c", "copy", *cut], check=True)

    def make(part: Path) -> Path:
        target = part.with_name(part.name.replace("in", "out"))
        command = [sys.executable, "-m", "segmentation", part, "-o", target, "-q"]
        command += [word for name, value in given.items() for word in (f"--{name}", value)]
        subprocess.run(command, check=True)
        return target

    with ThreadPoolExecutor(workers) as pool:
        concatenate(list(pool.map(make, sorted(folder.glob("in*.mp4")))), output, folder)


class Part:
    """Makes parts of a video in an actor, whose network stays loaded."""

    def __init__(self, video: Path, given: dict[str, str]) -> None:
        from segmentation import Segmenter

        self._video, self._segmenter = video, Segmenter(**given)  # type: ignore[arg-type]

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        for begin, target in zip(batch["begin"], batch["target"], strict=True):
            self._segmenter.run(self._video, str(target), start=float(begin), duration=PART)
        return batch


def ray_data(video: Path, output: Path, workers: int, given: dict[str, str], folder: Path) -> None:
    """A row for each part goes through map_batches. Frames stay in the actors, and parts on the disk."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # before the import, else Ray reports to its makers
    import ray

    ray.init("local", include_dashboard=False, log_to_driver=False)
    with av.open(str(video)) as container:
        parts = ceil((container.duration or 0) / 1_000_000 / PART)
    rows = [{"begin": number * PART, "target": f"{folder}/{number:04}.mp4"} for number in range(parts)]
    ray.data.from_items(rows, override_num_blocks=parts).map_batches(
        Part,
        fn_constructor_args=(video.absolute(), given),
        batch_size=1,
        concurrency=workers,
        num_cpus=max(1, len(os.sched_getaffinity(0)) // workers),
    ).materialize()
    ray.shutdown()
    concatenate([Path(row["target"]) for row in rows], output, folder)


def concatenate(parts: list[Path], output: Path, folder: Path) -> None:
    """Puts parts together without encoding."""
    names = folder / "parts.txt"
    names.write_text("".join(f"file '{part}'\n" for part in parts))
    joined = ["-f", "concat", "-safe", "0", "-i", names, "-map", "0", "-c", "copy", "-y", output]
    subprocess.run([*FFMPEG, *joined], check=True)


PEERS = {"farm": farm, "ray-data": ray_data}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("video", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--workers", type=int, default=2, help="(%(default)s)")
    parser.add_argument("--device", default="cpu", help="(%(default)s)")
    parser.add_argument("--preset", default="superfast", help="of x264 (%(default)s)")
    options = parser.parse_args()
    given = {"device": options.device, "preset": options.preset}
    with tempfile.TemporaryDirectory() as folder:
        PEERS[options.peer](options.video, options.output, options.workers, given, Path(folder))


if __name__ == "__main__":
    main()
