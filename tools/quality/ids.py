"""Measures the trackers on clips of people on crossing paths, whose ids are known; see `crossings.py`.

    python tools/quality/ids.py --json tools/lab/results/ids.json

Needs `pip install trackeval`, the judge: HOTA, IDF1 and id switches on the IoU of masks. Retention is the share of
people seen in two successive frames whose id is the same in both. Masks come from the clips' truth or from a
network, at `--interval` 0 and 3. Times are of the CPU, per frame: of the tracker's step, and of all that makes
the masks, which is decoding, the network and smoothing.

The trackers' constants were chosen on clips 0 to 9.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, redirect_stdout
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from io import StringIO
from itertools import pairwise, product
from pathlib import Path
from statistics import fmean
from typing import Any

import cv2
import numpy as np
from contact_sheet import pictures
from crossings import write
from numpy.typing import NDArray

from segmentation.flow.threads import StageThreads
from segmentation.frames import HostTransfer, MaskedBatch, VideoInfo
from segmentation.frames.instances import FrameInstances
from segmentation.media.opening.probe import probe
from segmentation.media.opening.stream_properties import working_format
from segmentation.options.config import Config
from segmentation.pipeline.mask_stages import MaskStages
from segmentation.pipeline.opened_run import choose, on_machine
from segmentation.pipeline.resources import Resources
from segmentation.tracking.mask_tracker import Ids
from segmentation.tracking.tracking_steps import Tracking

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from circumstances import circumstances

TRACKERS = ("fast", "balanced", "accurate")
INTERVALS = (0, 3)
MASK_SIZE = (192, 336)  # height, width, the built-in network's for such pictures
IGNORED = 0.5  # share of an instance in people who are seen too little, above which it counts for nothing
MATCH = 0.5  # mask IoU


class TrueMasks:
    """A network that finds the true masks of one clip: it looks each picture up."""

    def __init__(self, path: Path, ids: NDArray[np.uint8]) -> None:
        frames = [picture for _, picture in pictures(path, 0, 0)]
        shrunk = [cv2.resize(frame, MASK_SIZE[::-1], interpolation=cv2.INTER_AREA) for frame in frames]
        self._known = np.stack([_thumbnail(picture) for picture in shrunk])
        self._masks = np.stack(
            [cv2.resize((i > 0).astype(np.float32), MASK_SIZE[::-1], interpolation=cv2.INTER_AREA) for i in ids]
        )

    def __call__(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns the masks (N, h, w) of pictures (N, 3, h, w) in 0..1."""
        small = [_thumbnail(picture.transpose(1, 2, 0) * 255) for picture in batch]
        return np.stack([self._masks[np.abs(self._known - one).sum((1, 2, 3)).argmin()] for one in small])


def _thumbnail(picture: NDArray[Any]) -> NDArray[np.float32]:
    return cv2.resize(picture.astype(np.float32), (56, 32), interpolation=cv2.INTER_AREA)


def found(path: Path, config: Config) -> tuple[VideoInfo, Sequence[str], list[MaskedBatch], float]:
    """Returns the video, the classes, the batches with their smoothed masks, and the CPU seconds of these."""
    info = probe(str(path))
    resources = Resources(config)
    model, pix_fmt = resources.model(info), working_format(info.pix_fmt, ("yuv420p",))
    with ExitStack() as exits:
        exits.callback(resources.close)
        overlap = exits.enter_context(StageThreads())
        opened = on_machine(resources, choose(resources, config, info), config, info)
        stages = exits.enter_context(MaskStages(resources, opened, pix_fmt))
        decoder = stages.plan.decode.implementation(info, pix_fmt, stages.config, None)
        exits.callback(decoder.close)
        begin = time.process_time()
        batches = list(stages.masks.masked(iter(decoder), overlap))
        return info, model.kept, batches, time.process_time() - begin


def tracked(
    info: VideoInfo, classes: Sequence[str], batches: list[MaskedBatch], config: Config
) -> list[FrameInstances]:
    """Returns the instances of each frame."""
    step = Tracking(config, info, "yuv420p", classes, HostTransfer(), Ids(), None, None)
    return [frame for batch in step(iter(batches)) for frame in batch.instances or ()]


def similarities(
    ids: NDArray[np.uint8], hardly: list[int], frame: FrameInstances
) -> tuple[list[int], list[int], NDArray[np.float64]]:
    """Returns the ids of a frame's people, those that were given, and the IoU of each pair of masks."""
    label_map = frame.label_map
    truth = cv2.resize(ids, label_map.shape[::-1], interpolation=cv2.INTER_NEAREST)
    people = [int(id) for id in np.unique(truth) if id and id not in hardly]
    ignored = np.isin(truth, hardly)
    given, masks = [], []
    for number, instance in enumerate(frame.instances, 1):
        mask = label_map == number
        if instance.id and mask.any() and (mask & ignored).sum() < IGNORED * mask.sum():
            given.append(instance.id)
            masks.append(mask)
    both = np.zeros((len(people), len(given)))
    for (i, id), (k, mask) in product(enumerate(people), enumerate(masks)):
        place = truth == id
        both[i, k] = (place & mask).sum() / max(1, (place | mask).sum())
    return people, given, both


def judged(compared: Sequence[tuple[list[int], list[int], NDArray[np.float64]]]) -> dict[str, Any]:
    """Returns the sums of a clip from which the measures of several clips follow, by TrackEval."""
    from trackeval.metrics import CLEAR, HOTA, Identity  # only here: --help needs none

    numbers: list[dict[int, int]] = [{}, {}]
    gt, given, scores = [], [], []
    for people, ids, both in compared:
        gt.append(np.array([numbers[0].setdefault(id, len(numbers[0])) for id in people], int))
        given.append(np.array([numbers[1].setdefault(id, len(numbers[1])) for id in ids], int))
        scores.append(both)
    data = {
        "gt_ids": gt,
        "tracker_ids": given,
        "similarity_scores": scores,
        "num_gt_ids": len(numbers[0]),
        "num_tracker_ids": len(numbers[1]),
        "num_gt_dets": sum(map(len, gt)),
        "num_tracker_dets": sum(map(len, given)),
        "num_timesteps": len(gt),
    }
    quiet = {"PRINT_CONFIG": False}
    return {"HOTA": HOTA().eval_sequence(data), "Identity": Identity(quiet).eval_sequence(data),
            "CLEAR": CLEAR(quiet).eval_sequence(data), "retention": retained(compared)}  # fmt: skip


def retained(compared: Sequence[tuple[list[int], list[int], NDArray[np.float64]]]) -> tuple[int, int]:
    """Returns in how many pairs of successive frames somebody keeps the id, and the number of all such pairs."""
    kept = total = 0
    for before, after in pairwise(map(_matched, compared)):
        both = before.keys() & after.keys()
        total += len(both)
        kept += sum(before[person] == after[person] for person in both)
    return kept, total


def _matched(one: tuple[list[int], list[int], NDArray[np.float64]]) -> dict[int, int]:
    people, given, both = one
    if not given:
        return {}
    return {person: given[int(row.argmax())] for person, row in zip(people, both, strict=True) if row.max() >= MATCH}


def summary(results: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Returns the measures of all clips together."""
    from trackeval.metrics import CLEAR, HOTA, Identity

    parts = list(results.values())
    quiet = {"PRINT_CONFIG": False}
    hota = HOTA().combine_sequences({str(k): part["HOTA"] for k, part in enumerate(parts)})
    identity = Identity(quiet).combine_sequences({str(k): part["Identity"] for k, part in enumerate(parts)})
    clear = CLEAR(quiet).combine_sequences({str(k): part["CLEAR"] for k, part in enumerate(parts)})
    kept, total = (sum(part["retention"][k] for part in parts) for k in (0, 1))
    return {
        "idf1": round(float(identity["IDF1"]), 4),
        "hota": round(float(np.mean(hota["HOTA"])), 4),
        "association": round(float(np.mean(hota["AssA"])), 4),
        "detection": round(float(np.mean(hota["DetA"])), 4),
        "switches": int(clear["IDSW"]),
        "missed": int(clear["CLR_FN"]),
        "false": int(clear["CLR_FP"]),
        "people_frames": int(clear["CLR_TP"] + clear["CLR_FN"]),
        "retention": round(kept / max(1, total), 5),
    }


def measured(seed: int, masks: str, interval: int, *, crowded: bool) -> dict[str, dict[str, Any]]:
    """Returns what each tracker makes of one clip: its sums, and the CPU time of a frame, in ms."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.mkv"
        ids, hardly = write(seed, path, crowded=crowded)
        config = Config(interval=interval)
        if masks != "truth":
            config = replace(config, model=masks)
        else:
            network = TrueMasks(path, ids)
            config = replace(config, model=network, input_size=MASK_SIZE, labels=("person",), activation="none")
        info, classes, batches, mask_time = found(path, config)
    results = {}
    for tracker in TRACKERS:
        begin = time.thread_time()
        frames = tracked(info, classes, batches, replace(config, track=tracker))
        spent = (time.thread_time() - begin) / len(frames)
        sums = judged(list(map(similarities, ids, hardly, frames)))
        results[tracker] = sums | {"track_ms": spent * 1000, "masks_ms": mask_time / len(frames) * 1000}
    return results


def of_clip(seed: int, *, sources: Sequence[str], crowded: bool) -> dict[tuple[str, int, str], dict[str, Any]]:
    """Returns the same for all masks and intervals."""
    results = {}
    with redirect_stdout(StringIO()):  # TrackEval prints
        for masks, interval in product(sources, INTERVALS):
            made = measured(seed, masks, interval, crowded=crowded)
            results |= {(masks, interval, tracker): sums for tracker, sums in made.items()}
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the trackers on people on crossing paths.")
    add = parser.add_argument
    add("--first", type=int, default=100, metavar="SEED", help="of the first clip (default: 100)")
    add("--clips", type=int, default=8, metavar="N", help="number of clips (default: 8)")
    add("--masks", default="truth,person", help="truth, and built-in networks or files (default: truth,person)")
    add("--crowded", action="store_true", help="people may be together from the first frame on")
    add("--workers", type=int, default=2, metavar="N", help="clips at a time (default: 2)")
    add("--json", type=Path, required=True, help="the results")
    options = parser.parse_args()
    results: dict[tuple[str, int, str], dict[str, Any]] = {}
    seeds = range(options.first, options.first + options.clips)
    measure = partial(of_clip, sources=options.masks.split(","), crowded=options.crowded)
    with ProcessPoolExecutor(options.workers) as workers:
        for seed, made in zip(seeds, workers.map(measure, seeds), strict=True):
            for key, sums in made.items():
                results.setdefault(key, {})[str(seed)] = sums
            print(f"clip {seed} done", flush=True)
    rows = []
    for (masks, interval, tracker), clips in results.items():
        with redirect_stdout(StringIO()):
            row = {"masks": masks, "interval": interval, "tracker": tracker} | summary(clips)
        row |= {name: round(fmean(sums[name] for sums in clips.values()), 2) for name in ("track_ms", "masks_ms")}
        row["idf1_of_clips"] = {seed: round(float(sums["Identity"]["IDF1"]), 3) for seed, sums in clips.items()}
        rows.append(row)
        print(row)
    head = circumstances("quality/ids.py", sys.argv[1:])
    head["versions"]["trackeval"] = version("trackeval")
    options.json.write_text(json.dumps(head | {"crowded": options.crowded, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
