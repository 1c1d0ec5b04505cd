"""Measures how many frames of random clips a loader brings, on the CPU: ours, others' and pictures in files.

    python tools/benchmarks/clip_loaders.py ../shared/corpus/05_default_juggle.mp4

Clips of 16 frames of 1920x1080 become 224x224 RGB. Loaders take turns; each decodes all clips of the video once, in
random order, with a thread for each core. Each picture that they bring is first compared with all frames that FFmpeg
decodes from the beginning: the nearest must be the wanted one. decord and torchcodec are measured where they are
installed. Before a cold run, the kernel is asked to drop the files from its page cache. CPU seconds, for 1,000 frames,
are those of the process with all threads.
"""

import argparse
import dataclasses
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

import av
import numpy as np
from clip_peers import LENGTH, SIDE, Load, Pictures, of_videos, pictures_of, scaled
from clips import make_clip

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # the tools are programs, not a package

from circumstances import ROOT, circumstances

from segmentation.clips import ClipDataset, ClipLoader, Output
from segmentation.cores import core_count

OUTPUT = {"input": Output(size=(SIDE, SIDE), dtype="uint8", layout="NTHWC")}
VIDEOS = {"h264, 30": ("h264", 30), "h264, 250": ("h264", 250), "hevc, 30": ("hevc", 30), "vp9, 30": ("vp9", 30)}
Bring = Callable[[list[int]], list[Pictures]]  # clips by their numbers


def ours(dataset: ClipDataset, shuffle: Any) -> Bring:
    """Returns what brings clips in the loader's own order, or single ones as they are asked for."""
    loader = ClipLoader(dataset, 4, outputs=OUTPUT, shuffle=shuffle, drop_last=False)

    def bring(clips: list[int]) -> list[Pictures]:
        if len(clips) < len(dataset):
            return [loader.sample(clip)["input"].transpose(0, 2, 3, 1) for clip in clips]
        return [clip for batch in loader for clip in batch["input"]]

    return bring


def theirs(dataset: ClipDataset, path: Path, load: Load) -> Bring:
    def one(clip: int) -> Pictures:
        first = dataset.numbers(clip)[0]
        return load(str(path), first, int(dataset.videos[0].pts[first]))

    def bring(clips: list[int]) -> list[Pictures]:
        with ThreadPoolExecutor(core_count()) as pool:
            return list(pool.map(one, clips))

    return bring


def without_leaving_out(video: Path) -> ClipDataset:
    """Returns clips on the way to which all pictures are decoded."""
    dataset = ClipDataset(video, length=LENGTH)
    dataset.videos[:] = [dataclasses.replace(one, spare=np.zeros_like(one.spare)) for one in dataset.videos]
    return dataset


def checked(bring: Bring, dataset: ClipDataset, true: Pictures) -> dict[str, float]:
    """Returns the share of pictures that are nearest to the frame which they should be, and how near, in levels."""
    right, errors = [], []
    for clip in range(1, len(dataset), 5):
        for number, picture in zip(dataset.numbers(clip), bring([clip])[0], strict=True):
            distances = abs(true[:, ::4, ::4].astype(int) - picture[::4, ::4]).mean((1, 2, 3))
            right.append(int(distances.argmin()) == number)
            errors.append(float(abs(true[number].astype(int) - picture).mean()))
    return {"right_frames": round(statistics.mean(right), 3), "difference": round(statistics.mean(errors), 2)}


def drop_from_cache(path: Path) -> None:
    """Asks the kernel to forget a file, or a folder's files."""
    for file in path.iterdir() if path.is_dir() else [path]:
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def measured(loaders: dict[str, tuple[Path, Bring]], dataset: ClipDataset, true: Pictures, repeats: int) -> Any:
    """Returns frames a second, with a warm and a cold page cache, and CPU seconds of all loaders, which take turns."""
    clips = random.Random(1).sample(range(len(dataset)), len(dataset))
    found: dict[str, dict[str, Any]] = {
        name: {"warm": [], "cold": [], "cpu_seconds": [], **checked(bring, dataset, true)}
        for name, (_, bring) in loaders.items()
    }
    for cache, rounds in (("warm", repeats), ("cold", max(1, repeats - 1))):
        for _ in range(rounds):
            for name, (path, bring) in loaders.items():
                if cache == "cold":
                    drop_from_cache(path)
                begin, cpu = time.perf_counter(), time.process_time()
                count = sum(map(len, bring(clips)))
                found[name][cache].append(round(count / (time.perf_counter() - begin), 1))
                found[name]["cpu_seconds"].append(round((time.process_time() - cpu) / count * 1000, 2))
    for name, rates in found.items():
        for kind in ("warm", "cold", "cpu_seconds"):
            rates[f"{kind}_median"] = round(statistics.median(rates[kind]), 2)
        seconds = rates["cpu_seconds_median"]
        print(f"  {name}: {rates['warm_median']} frames a second, {seconds} CPU s, {rates['right_frames']:.0%} right")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("video")
    parser.add_argument("--frames", type=int, default=240)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "tools" / "results" / "clip-loaders.json")
    options = parser.parse_args()
    peers = of_videos()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (codec, distance) in VIDEOS.items():
            print(name, flush=True)
            where = Path(folder, name.replace(", ", "-"))
            where.mkdir()
            video = make_clip(options.video, options.frames, (1920, 1080), where, codec=codec, rate=30, gop=distance)
            dataset = ClipDataset(video, length=LENGTH)
            with av.open(str(video)) as container:
                true = np.stack([scaled(frame) for frame in container.decode(video=0)])
            loaders = {f"ours, {shuffle}": (video, ours(dataset, shuffle)) for shuffle in ("pool", "full")}
            if dataset.videos[0].spare.any():
                loaders["ours, full, all pictures"] = video, ours(without_leaving_out(video), "full")
            loaders |= {peer: (video, theirs(dataset, video, load)) for peer, load in peers.items()}
            results[name] = measured(loaders, dataset, true, options.repeats)
            if name == "h264, 30":
                made = pictures_of(video, where)
                loaders = {kind: (path, theirs(dataset, path, load)) for kind, (path, load) in made.items()}
                results["pictures"] = measured(loaders, dataset, true, options.repeats)
    about = circumstances(f"benchmarks/{Path(__file__).name}", sys.argv[1:])
    about["versions"] |= {peer: metadata.version(peer) for peer in ("decord", "torchcodec") if peer in peers}
    options.output.write_text(json.dumps(about | {"clip": [LENGTH, SIDE, SIDE], "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
