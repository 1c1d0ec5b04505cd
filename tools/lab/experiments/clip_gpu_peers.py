"""Measures how many frames of random clips loaders on a GPU bring: ours, DALI's and torchcodec's, beside NVDEC's limit.

    python tools/lab/experiments/clip_gpu_peers.py VIDEO... --dali FOLDER --torchcodec FOLDER -o OUT.json

Clips of 16 frames of 1920x1080, H.264 with B-frames, become (N, 16, 3, 224, 224) RGB in half precision. Loaders take
turns, each in a process of its own, since their FFmpeg libraries clash. After some clips that do not count, as many are
measured as an epoch has: each clip of the videos once, in random order. Loaders do not pause in between, so what was
decoded ahead before weighs as much as what is decoded ahead at the end; ours empties its threads once, between epochs.
With a step of 1 each frame begins a clip, and more frames are brought than the videos have.

Some clips are compared with all frames that FFmpeg decodes: none may be nearer than the wanted one, so the videos have
to move. CPU seconds, for 1,000 frames, are those of the process with all threads; memory is all that the GPU has in
use at the end. `--dali` and `--torchcodec` are folders with what `pip install --target` puts there; a loader that fails
is left out. torchcodec gets PyAV's FFmpeg.
"""

import argparse
import importlib
import importlib.util
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import metadata
from itertools import islice
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))  # the tools are programs, not a package
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

LENGTH, SIDE, BATCH = 16, 224, 4
THREADS = 14  # of DALI and torchcodec: two for each of an H100's seven decoders
WARM = 2 * THREADS * BATCH  # clips that do not count
CODED = 240  # frames of a video; longer ones repeat them
TIMEOUT = 60  # seconds of a turn
LIMIT = "NVDEC's limit, decoded frames"

# Numbers of the videos and of the first frames (N,), and clips (N, 16, 3, 224, 224), half, 0 to 1.
Batch = tuple[Any, Any, Any]


def ours(videos: list[str], frames: int, device: str, shuffle: Any, step: int) -> Iterator[Batch]:
    """Yields batches, epoch after epoch."""
    from segmentation.clips import ClipDataset, ClipLoader, Output

    dataset = ClipDataset(videos, length=LENGTH, step=step)
    outputs = {"input": Output(size=(SIDE, SIDE), dtype="float16")}
    loader = ClipLoader(dataset, BATCH, outputs=outputs, shuffle=shuffle, drop_last=False, device=device)
    while True:
        for batch in loader:
            yield dataset.video[batch.clips], batch.first, batch["input"]


def torchcodec(videos: list[str], frames: int, device: str) -> Iterator[Batch]:
    """The same, by decoders that stay open in each thread. PyTorch scales: on a GPU they can not."""
    torch: Any = importlib.import_module("torch")
    decoders: Any = importlib.import_module("torchcodec.decoders")
    kept = threading.local()
    clips = [(video, first) for video in range(len(videos)) for first in range(0, frames - LENGTH + 1, LENGTH)]
    random.Random(1).shuffle(clips)

    def load(clip: tuple[int, int]) -> Any:
        video, first = clip
        opened = kept.__dict__
        if videos[video] not in opened:
            opened[videos[video]] = decoders.VideoDecoder(videos[video], device=device)
        decoder = opened[videos[video]]
        pictures = decoder.get_frames_in_range(first, first + LENGTH).data  # (16, 3, H, W), as (16, H, W, 3)
        if decoder.cpu_fallback:
            raise RuntimeError(str(decoder.cpu_fallback))
        planar = pictures.to(torch.half, memory_format=torch.contiguous_format)
        return torch.nn.functional.interpolate(planar, (SIDE, SIDE), mode="area") / 255

    with ThreadPoolExecutor(THREADS) as pool:
        while True:
            made = zip(clips, pool.map(load, clips), strict=True)
            while some := list(islice(made, BATCH)):
                yield *zip(*(clip for clip, _ in some), strict=True), torch.stack([pictures for _, pictures in some])


def dali(videos: list[str], frames: int, device: str) -> Iterator[Batch]:
    """The same, by pipelines that have a shard and a thread each. They draw one order, for all epochs."""
    root: Any = importlib.import_module("nvidia.dali")
    fn, types = root.fn, root.types
    iterator = importlib.import_module("nvidia.dali.plugin.pytorch").DALIGenericIterator
    found: Queue[Any] = Queue(THREADS)

    @root.pipeline_def(batch_size=BATCH, num_threads=1, device_id=0)  # type: ignore[untyped-decorator]
    def pipeline(shard: int) -> Any:
        clips, numbers, firsts = fn.readers.video(
            **{"device": "gpu", "filenames": videos, "labels": list(range(len(videos))), "enable_frame_num": "scalar"},
            **{"sequence_length": LENGTH, "step": LENGTH, "shard_id": shard, "num_shards": THREADS},
            **{"random_shuffle": True, "initial_fill": BATCH},  # the list is shuffled; these are drawn from ahead
        )
        small = fn.resize(clips, size=(SIDE, SIDE))
        half = {"dtype": types.FLOAT16, "mean": [0.0] * 3, "std": [255.0] * 3, "output_layout": "FCHW"}
        return numbers, firsts, fn.crop_mirror_normalize(small, **half)

    def work(batches: Any) -> None:
        try:
            for (batch,) in batches:
                found.put((batch["video"], batch["first"], batch["clips"]))
        except BaseException as exc:  # raised again where batches are taken
            found.put(exc)

    for shard in range(THREADS):
        batches = iterator(pipeline(shard), ["video", "first", "clips"], prepare_first_batch=False)
        threading.Thread(target=work, args=(batches,), daemon=True).start()
    while True:
        batch = found.get()
        if isinstance(batch, BaseException):
            raise batch
        yield batch


LOADERS: dict[str, Callable[..., Iterator[Batch]]] = {
    "ours, pool": partial(ours, shuffle="pool", step=LENGTH),
    "ours, full": partial(ours, shuffle="full", step=LENGTH),
    "ours, pool, step 1": partial(ours, shuffle="pool", step=1),
    "DALI": dali,
    "torchcodec": torchcodec,
}


def measured(name: str, videos: list[str], frames: int, device: str, kept: Path) -> dict[str, float]:
    """Measures a loader in this process. Some of its clips are written to `kept`."""
    if name == LIMIT:
        return {"frames_per_second": limit(videos[0], frames * len(videos))}
    torch: Any = importlib.import_module("torch")
    cuda = None if device == "cpu" else torch.cuda
    step = 1 if name.endswith("step 1") else LENGTH
    epoch = len(videos) * ((frames - LENGTH) // step + 1)  # clips
    batches = LOADERS[name](videos, frames, device)
    warm = list(islice(batches, WARM // BATCH))[::9]
    if cuda:
        cuda.synchronize()
    begin, cpu, made = time.perf_counter(), time.process_time(), 0
    while made < epoch:
        made += len(next(batches)[2])
    if cuda:
        cuda.synchronize()
    seconds, cpu, count = time.perf_counter() - begin, time.process_time() - cpu, made * LENGTH
    found = {
        "frames": count,
        "seconds": seconds,
        "frames_per_second": count / seconds,
        "cpu_seconds": cpu / count * 1e3,
    }
    if cuda:
        free, whole = cuda.mem_get_info()
        found["gpu_gib"] = (whole - free) / 2**30
    columns = [torch.cat([torch.as_tensor(batch[part]).cpu() for batch in warm]).numpy() for part in range(3)]
    np.savez(kept, video=columns[0].ravel(), first=columns[1].ravel(), clips=columns[2])
    return {key: round(value, 3) for key, value in found.items()}


def limit(video: str, frames: int) -> float:
    """Returns the frames a second of decoders that know nothing of each other, one for each engine."""
    from gpu_decoders import Independent

    from segmentation import Config
    from segmentation.media.opening.probe import probe
    from segmentation.stages.decode.nvdec_support import nvdec_engines

    info = probe(video)
    with Independent(info, nvdec_engines(Config(), info)) as decoders:
        begin = time.perf_counter()
        return round(decoders.decode(frames) / (time.perf_counter() - begin), 1)


def checked(kept: Path, true: list[Any]) -> dict[str, float]:
    """Returns the share of pictures that are nearest to the frame which they should be, and how near, in levels."""
    right, errors = [], []
    with np.load(kept) as loaded:
        for video, first, clip in zip(loaded["video"], loaded["first"], loaded["clips"], strict=True):
            frames = true[video]
            for place, picture in enumerate(clip.transpose(0, 2, 3, 1).astype(np.float32) * 255):
                distances = abs(frames[:, ::8, ::8].astype(np.float32) - picture[::8, ::8]).mean((1, 2, 3))
                number = (first + place) % len(frames)
                right.append(bool(distances[number] == distances.min()))
                errors.append(float(abs(frames[number].astype(np.float32) - picture).mean()))
    return {"right_frames": round(statistics.mean(right), 3), "difference": round(statistics.mean(errors), 2)}


def environments(folder: Path, peers: dict[str, Path | None]) -> dict[str, dict[str, str]]:
    """Returns what each peer's process needs. FFmpeg's libraries get their plain names in `folder`."""
    import av

    bundled = Path(av.__file__).parents[1] / "av.libs"
    for library in (*bundled.glob("libav*"), *bundled.glob("libsw*")):
        (folder / re.sub(r"-[0-9a-f]+(\.so\.\d+).*", r"\1", library.name)).symlink_to(library)
    torch = importlib.util.find_spec("torch")
    libraries = [folder, bundled, *([Path(torch.origin).parent / "lib"] if torch and torch.origin else [])]
    return {
        name: {"PYTHONPATH": joined(path, os.environ.get("PYTHONPATH"))}
        | ({"LD_LIBRARY_PATH": joined(*libraries, os.environ.get("LD_LIBRARY_PATH"))} if name == "torchcodec" else {})
        for name, path in peers.items()
        if path is not None
    }


def joined(*paths: object) -> str:
    return os.pathsep.join(str(path) for path in paths if path)


def turn(name: str, videos: list[str], options: argparse.Namespace, environment: dict[str, str], kept: Path) -> Any:
    """Returns what a process of its own measured, or `None`, and says why."""
    command = [sys.executable, __file__, *videos, "--turn", name, "--frames", str(options.frames)]
    command += ["--device", options.device, "-o", str(kept)]
    try:
        done = subprocess.run(
            command, env=os.environ | environment, capture_output=True, text=True, timeout=TIMEOUT, check=True
        )
    except subprocess.SubprocessError as exc:
        print(f"  {name} is left out: {str(exc.stderr or exc).strip().splitlines()[-1]}")  # type: ignore[attr-defined]
        return None
    return json.loads(done.stdout.splitlines()[-1])


def compare(sources: list[str], distance: int, options: argparse.Namespace, folder: Path, peers: Any) -> dict[str, Any]:
    """Returns the results of all loaders that work, which take turns, for videos with keyframes `distance` apart."""
    from clip_loaders import frames_of
    from clips import make_clip

    size = (1920, 1080)
    once, videos = (
        [make_clip(s, count, size, folder, rate=30, gop=distance, encode=CODED) for s in sources]
        for count in (CODED, options.frames)
    )
    true, kept = list(map(frames_of, once)), folder / "kept.npz"
    found: dict[str, list[Any]] = {name: [] for name in LOADERS if name in peers or name.startswith("ours")}
    if options.device != "cpu":
        found[LIMIT] = []
    for _ in range(options.repeats):
        for name in list(found):
            result = turn(name, list(map(str, videos)), options, peers.get(name, {}), kept)
            if result is None:
                del found[name]
            else:
                found[name].append(result if name == LIMIT else result | checked(kept, true))
                print(f"  {name}: {found[name][-1]}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", nargs="+", help="that move, of 240 frames or more")
    parser.add_argument("--dali", type=Path, help="folder of nvidia-dali and what it needs")
    parser.add_argument("--torchcodec", type=Path, help="folder of torchcodec")
    parser.add_argument("--frames", type=int, default=8 * CODED, help=f"of each video, a multiple of {CODED}")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--distance", default="30,240", help=f"of keyframes, at most {CODED} (%(default)s)")
    parser.add_argument("--device", default="cuda", help="of ours and torchcodec: cuda or cpu (%(default)s)")
    parser.add_argument("--turn", help=argparse.SUPPRESS)  # what is measured in this process, of videos as they are
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    if options.turn:
        print(json.dumps(measured(options.turn, options.videos, options.frames, options.device, options.output)))
        sys.stdout.flush()
        os._exit(0)  # the loaders' threads would go on
    from circumstances import circumstances

    given = {"DALI": options.dali, "torchcodec": options.torchcodec}
    about = circumstances(f"lab/experiments/{Path(__file__).name}", sys.argv[1:])
    about["versions"]["torch"] = metadata.version("torch")
    for made in metadata.distributions(path=[str(path) for path in given.values() if path]):
        if "dali" in made.name or made.name == "torchcodec":
            about["versions"][made.name] = made.version
    results: dict[str, Any] = {}
    for distance in map(int, options.distance.split(",")):
        print(f"keyframes {distance} apart", flush=True)
        with tempfile.TemporaryDirectory() as made_here, tempfile.TemporaryDirectory() as libraries:
            peers = environments(Path(libraries), given)
            results[f"keyframes {distance} apart"] = compare(options.videos, distance, options, Path(made_here), peers)
    if options.device != "cpu":
        about["hardware"]["gpu"] = importlib.import_module("torch").cuda.get_device_name()
    about |= {"clip": [LENGTH, SIDE, SIDE], "batch": BATCH, "threads": THREADS, "results": results}
    options.output.write_text(json.dumps(about, indent=2) + "\n")
    for kind, found in results.items():
        for name, rounds in found.items():
            rates = [one["frames_per_second"] for one in rounds]
            print(f"{kind} | {name} | {statistics.median(rates):,.0f} frames/s | {rates}")


if __name__ == "__main__":
    main()
