"""Measures how long x264 takes for the pictures that a blur, a region and `--anonymize faces` leave of one clip.

    python tools/lab/experiments/covered_pictures.py ../shared/clips/person-walking.mp4 --work DIR -o pictures.json

Each run is kept without loss in DIR, and taken from there the next time. Then its frames are encoded in turn, as
`x264-segments` does on 16 cores: segments of 38 frames, one encoder and one thread for each, as many at once as there
are cores, and nothing else. The CPU seconds are those of the encoders' threads alone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import av
from av.video.codeccontext import VideoCodecContext
from av.video.frame import PictureType, VideoFrame

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))  # the tools are programs, not a package
sys.path.insert(0, str(Path(__file__).parents[2] / "support"))
sys.path.insert(0, str(Path(__file__).parents[3]))  # so that a checkout works without being installed

from circumstances import circumstances
from clips import make_clip

from segmentation import Config, segment
from segmentation.stages.encode.codec_settings import codec_options

CASES: dict[str, dict[str, Any]] = {
    "region": {"region": ("0,0,64,64",)},
    "blur": {},
    "faces": {"anonymize": "faces"},
}
SEGMENT = 38  # frames, as of 3,600 frames of 1080p on 16 cores


def encoded(frames: list[VideoFrame], options: dict[str, str]) -> tuple[float, int]:
    """Returns the CPU seconds and the bytes of one segment."""
    begin = time.thread_time()
    context = av.CodecContext.create("libx264", "w")
    assert isinstance(context, VideoCodecContext)
    context.width, context.height, context.pix_fmt = frames[0].width, frames[0].height, frames[0].format.name
    context.time_base, context.options, context.thread_count = frames[0].time_base, options, 1
    size = sum(packet.size for frame in [*frames, None] for packet in context.encode(frame))
    return time.thread_time() - begin, size


def frames_of(video: Path) -> list[list[VideoFrame]]:
    """Returns the segments of a video."""
    with av.open(str(video)) as container:
        container.streams.video[0].thread_type = "AUTO"
        frames = list(container.decode(video=0))
    for frame in frames:
        frame.pict_type = PictureType.NONE  # else the encoder would take over where the source has its keyframes
    return [frames[at : at + SEGMENT] for at in range(0, len(frames), SEGMENT)]


def measured(segments: list[list[VideoFrame]], preset: str) -> dict[str, float]:
    """Returns the figures of all segments, of which as many are encoded at once as there are cores."""
    options, count = codec_options("h264", Config(preset=preset), {}), sum(map(len, segments))
    begin = time.perf_counter()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        done = list(pool.map(lambda frames: encoded(frames, options), segments))
    seconds = time.perf_counter() - begin
    cpu, size = map(sum, zip(*done, strict=True))
    return {"cpu_seconds": 1000 * cpu / count, "fps": count / seconds, "megabytes": size / count / 1000}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("video")
    parser.add_argument("--work", type=Path, required=True, help="a folder for half a gigabyte")
    parser.add_argument("--frames", type=int, default=16 * SEGMENT)
    parser.add_argument("--presets", nargs="+", default=["ultrafast"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("-o", dest="output", type=Path, required=True)
    options = parser.parse_args()
    clip = make_clip(options.video, options.frames, (1920, 1080), options.work, rate=30, gop=30)
    for case, config in CASES.items():
        if not (options.work / f"{case}.mkv").exists():
            segment(clip, options.work / f"{case}.mkv", Config(codec="ffv1", **config))
    segments = {case: frames_of(options.work / f"{case}.mkv") for case in CASES}
    rows: dict[tuple[str, str], list[dict[str, float]]] = {}
    for number in range(options.repeats):
        for case in list(CASES)[:: 1 if number % 2 == 0 else -1]:
            for preset in options.presets:
                rows.setdefault((case, preset), []).append(measured(segments[case], preset))
                print(case, preset, json.dumps(rows[case, preset][-1]), flush=True)
    runs: list[dict[str, Any]] = []
    for (case, preset), found in rows.items():
        runs.append({"pictures": case, "preset": preset, "frames": options.frames})
        for name in found[0]:  # CPU seconds and megabytes are of 1,000 frames
            runs[-1] |= {name: round(median(one[name] for one in found), 2)}
        runs[-1] |= {"all_cpu_seconds": [round(one["cpu_seconds"], 2) for one in found]}
    about = circumstances("lab/experiments/covered_pictures.py", sys.argv[1:])
    options.output.write_text(json.dumps(about | {"runs": runs}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
