"""Measures how many frames of random clips a loader brings: ours, others' on the CPU, and pictures in files.

    python tools/lab/experiments/clip_loaders.py ../shared/corpus/05_default_juggle.mp4 ../shared/corpus/04_coffee.mp4

Clips of 16 frames of 1920x1080 become 224x224 RGB. Loaders take turns; each decodes all clips of the videos once, in
random order, with a thread for each core. Each picture that they bring is first compared with all frames that FFmpeg
decodes from the beginning: none may be nearer than the wanted one, so the videos have to move. Pictures in files are
measured where ours decode on the CPU, decord and torchcodec where they are installed. Before a cold run, the kernel is
asked to drop the files from its page cache. CPU seconds, for 1,000 frames, are those of the process with all threads.
"""

import argparse
import dataclasses
import importlib
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

import av
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))  # the tools are programs, not a package
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from circumstances import ROOT, circumstances
from clip_peers import LENGTH, SIDE, Load, Pictures, of_videos, pictures_of, scaled
from clips import make_clip

from segmentation.clips import ClipDataset, ClipLoader, Output
from segmentation.system.cores import core_count

OUTPUT = {"input": Output(size=(SIDE, SIDE), dtype="uint8", layout="NTHWC")}
VIDEOS = {
    "h264, keyframes 30 apart": ("h264", 30),
    "hevc, keyframes 30 apart": ("hevc", 30),
    "vp9, keyframes 30 apart": ("vp9", 30),
    "h264, one keyframe": ("h264", 9999),
}
Bring = Callable[[list[int]], list[Pictures]]  # clips by their numbers


def ours(dataset: ClipDataset, shuffle: Any, device: str) -> Bring:
    """Returns what brings clips in the loader's own order, on the device, or single ones to the host."""
    loader = ClipLoader(dataset, 4, outputs=OUTPUT, shuffle=shuffle, drop_last=False, device=device)

    def bring(clips: list[int]) -> list[Any]:
        if len(clips) < len(dataset):
            single = [loader.sample(clip)["input"] for clip in clips]
            arrays = single if device == "cpu" else [tensor.cpu().numpy() for tensor in single]
            return [array.transpose(0, 2, 3, 1) for array in arrays]
        brought = [clip for batch in loader for clip in batch["input"]]
        if device != "cpu":
            importlib.import_module("torch").cuda.synchronize()
        return brought

    return bring


def theirs(dataset: ClipDataset, paths: list[Path], load: Load) -> Bring:
    """Returns what brings clips from one of `paths` for each video of the dataset."""

    def one(clip: int) -> Pictures:
        video, first = int(dataset.video[clip]), dataset.numbers(clip)[0]
        return load(str(paths[video]), first, int(dataset.videos[video].pts[first]))

    def bring(clips: list[int]) -> list[Pictures]:
        with ThreadPoolExecutor(core_count()) as pool:
            return list(pool.map(one, clips))

    return bring


def without_leaving_out(videos: list[Path]) -> ClipDataset:
    """Returns clips on the way to which all pictures are decoded."""
    dataset = ClipDataset(videos, length=LENGTH)
    dataset.videos[:] = [dataclasses.replace(one, spare=np.zeros_like(one.spare)) for one in dataset.videos]
    return dataset


def checked(bring: Bring, dataset: ClipDataset, true: list[Pictures]) -> dict[str, float]:
    """Returns the share of pictures that are nearest to the frame which they should be, and how near, in levels."""
    right, errors = [], []
    for clip in range(1, len(dataset), 5):
        frames = true[dataset.video[clip]]
        for number, picture in zip(dataset.numbers(clip), bring([clip])[0], strict=True):
            distances = abs(frames[:, ::4, ::4].astype(int) - picture[::4, ::4]).mean((1, 2, 3))
            right.append(bool(distances[number] == distances.min()))  # longer videos repeat the source's frames
            errors.append(float(abs(frames[number].astype(int) - picture).mean()))
    return {"right_frames": round(statistics.mean(right), 3), "difference": round(statistics.mean(errors), 2)}


def drop_from_cache(paths: list[Path]) -> None:
    """Asks the kernel to forget files, and folders' files."""
    for file in (file for path in paths for file in (path.iterdir() if path.is_dir() else [path])):
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def measured(
    loaders: dict[str, tuple[list[Path], Bring]], dataset: ClipDataset, true: list[Pictures], repeats: int
) -> Any:
    """Returns frames a second, with a warm and a cold page cache, and CPU seconds of all loaders, which take turns."""
    clips = random.Random(1).sample(range(len(dataset)), len(dataset))
    found: dict[str, dict[str, Any]] = {
        name: {"warm": [], "cold": [], "cpu_seconds": [], **checked(bring, dataset, true)}
        for name, (_, bring) in loaders.items()
    }
    for cache, rounds in (("warm", repeats), ("cold", max(1, repeats - 1))):
        for _ in range(rounds):
            for name, (paths, bring) in loaders.items():
                if cache == "cold":
                    drop_from_cache(paths)
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


def frames_of(video: Path) -> Pictures:
    with av.open(str(video)) as container:
        return np.stack([scaled(frame) for frame in container.decode(video=0)])


def measure_all(
    sources: list[str], kinds: list[str], frames: int, repeats: int, peers: dict[str, Load], device: str
) -> Iterator[tuple[str, Any]]:
    """Yields the results of each kind of video, and of pictures."""
    for name in kinds:
        codec, distance = VIDEOS[name]
        print(name, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            videos = [
                make_clip(source, frames, (1920, 1080), Path(folder), codec=codec, rate=30, gop=distance)
                for source in sources
            ]
            dataset, true = ClipDataset(videos, length=LENGTH), list(map(frames_of, videos))
            loaders = {f"ours, {shuffle}": (videos, ours(dataset, shuffle, device)) for shuffle in ("pool", "full")}
            if dataset.videos[0].spare.any():
                loaders["ours, full, all pictures"] = videos, ours(without_leaving_out(videos), "full", device)
            loaders |= {peer: (videos, theirs(dataset, videos, load)) for peer, load in peers.items()}
            yield name, measured(loaders, dataset, true, repeats)
            if name.startswith("h264, keyframes") and device == "cpu":
                made = [pictures_of(video) for video in videos]
                loaders = {}
                for kind, (_, load) in made[0].items():
                    paths = [of_one[kind][0] for of_one in made]
                    loaders[kind] = paths, theirs(dataset, paths, load)
                yield "pictures", measured(loaders, dataset, true, repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", nargs="+")
    parser.add_argument("--frames", type=int, default=128, help="of each video")
    parser.add_argument("--codec", action="append", help="of the videos: h264, hevc or vp9 (default: all)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--device", default="cpu", help="ours: cpu, cuda or cuda:N (%(default)s); others stay on the CPU"
    )
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "tools" / "lab" / "results" / "clip-loaders.json")
    options = parser.parse_args()
    peers = of_videos()
    about = circumstances(f"lab/experiments/{Path(__file__).name}", sys.argv[1:])
    about["versions"] |= {peer: metadata.version(peer) for peer in ("decord", "torchcodec") if peer in peers}
    about |= {"clip": [LENGTH, SIDE, SIDE], "frames": options.frames, "device": options.device}
    if options.device != "cpu":
        about["hardware"]["gpu"] = importlib.import_module("torch").cuda.get_device_name(options.device)
    results: dict[str, Any] = {}
    kinds = [name for name, (codec, _) in VIDEOS.items() if codec in (options.codec or (codec,))]
    for name, found in measure_all(options.videos, kinds, options.frames, options.repeats, peers, options.device):
        results[name] = found | {"load": os.getloadavg()[0]}
        options.output.write_text(json.dumps(about | {"results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
