"""The rule of `auto`: how many inputs are under way at a time, and how many processes share them.

Each number here is measured, see "The rule of auto" in tools/lab/scale-out.md. Pieces of videos, for `--workers`, are
never chosen: their packets differ from those of whole runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Literal, TypeAlias

import av

from segmentation.errors import InputError
from segmentation.frames.picture_names import PICTURE_SUFFIXES
from segmentation.frames.source import Source
from segmentation.gpu.discovery import gpu_memory, visible_gpus
from segmentation.media.opening.open_input import open_input, video_stream
from segmentation.media.opening.stream_properties import nominal_rate
from segmentation.options.access import access_of
from segmentation.options.config import Config, with_batch_size
from segmentation.pipeline.planning.plan import may_use_gpu
from segmentation.stages.inference import GPU_BATCH
from segmentation.system.cores import core_count

Number: TypeAlias = int | Literal["auto"]

# With a GPU, half of a short clip's time goes into opening it and waiting for its last frames. On the CPU one input
# fills all cores. More jobs take more memory: each holds up to 2 GB of frames for the encoders.
_JOBS_ON_GPU, _JOBS_OF_EACH = 5, 4  # of one process, and of each of several
CORES_OF_WORKER = 4  # without a GPU, unless the number of workers is given
_FEWEST = 4  # videos that several processes share
_OPENING = 0.02  # seconds for a file, in one process on a GPU with that many jobs
_RATE = 3_200  # frames a second of long files there
_START = 1.5  # seconds by which several processes begin later than one, at most
_SHORT = 100  # frames: files so short keep three processes of a GPU busy, longer ones two
_SAVED = {True: 0.35, False: 0.1}  # part of such work that a second process saves, of short files and of longer ones
_CORES = 5  # of a process
_MEMORY = 8_000_000_000  # bytes of a GPU for a process: up to 4.4 GB at 1080p, and as much again for larger pictures
_MOST_LIVE = 8  # sources of 1080p that one process carries with the network's usual batch for them
_LIVE = 5  # of each of several processes


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """Holds how many inputs are under way at a time, in all processes together, and the reason."""

    jobs: int
    processes: int
    reason: str
    batch_size: int | None = None  # `Config`'s, where a process has more live sources than the usual one suits

    def applied(self, config: Config) -> Config:
        """Returns the options of the session, which has one of its own if `batch_size` is given."""
        return config if self.batch_size is None else with_batch_size(config, self.batch_size)

    def __str__(self) -> str:
        where = "one process" if self.processes == 1 else f"{self.processes} processes"
        return f"{self.jobs} at a time in {where}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Holds by what the number of processes is chosen: the inputs, the work with each, and the machine."""

    gpus: int
    cores: int
    memory: int  # bytes of the smallest GPU
    live: int = 0  # cameras and streams
    videos: int = 0  # that are files
    frames: int = 0  # of these, about; 0 if unknown
    encoded: bool = True  # as videos or masks

    def processes(self) -> tuple[int, str]:
        """Returns how many processes share the inputs, and why."""
        if not self.gpus:
            return 1, "without a GPU one input fills the cores"
        if self.live:
            most = _MOST_LIVE if self.live <= _MOST_LIVE else _LIVE
            return ceil(self.live / most), f"up to {most} live sources for a process"
        if self.videos < _FEWEST:
            return 1, f"fewer than {_FEWEST} videos in files"
        seconds = self.videos * _OPENING + self.frames / _RATE
        short = self.frames < self.videos * _SHORT
        if seconds * _SAVED[short] < _START:
            return 1, f"some {seconds:.0f} s of work; several processes begin {_START:g} s later"
        each = 1 if self.encoded else 3 if short else 2
        each = min(each, max(1, self.memory // _MEMORY))
        number = max(1, min(self.gpus * each, self.cores // _CORES, self.videos // 2))
        machine = f"{self.gpus} GPUs" if self.gpus > 1 else "one GPU"
        return number, f"some {seconds:.0f} s of work {'with' if self.encoded else 'without'} encoding, {machine}"


def choose_parallelism(
    config: Config, sources: Sequence[Source] = (), jobs: Number = "auto", processes: Number = "auto"
) -> Parallelism:
    """Returns the numbers that were given, and chooses those that are "auto". Given jobs stay in one process."""
    gpus = len(visible_gpus(config)) if may_use_gpu(config) else 0
    live = sum(source.is_live for source in sources)
    reason = "as given"
    if processes == "auto":
        processes = 1
        if jobs == "auto":
            processes, reason = _workload(config, sources, gpus, live).processes()
    # No live source ends by itself, so that others would wait for ever.
    on_gpu = _JOBS_ON_GPU if processes == 1 else processes * _JOBS_OF_EACH
    usual = max(on_gpu if gpus else processes, live)
    return Parallelism(
        jobs=usual if jobs == "auto" else jobs,
        processes=processes,
        reason=reason,
        batch_size=GPU_BATCH if gpus and live > processes * _MOST_LIVE and config.batch_size is None else None,
    )


def local_workers(gpus: int) -> int:
    """Returns how many workers share this machine: one a GPU, or one for each few cores where there is none."""
    return gpus or max(1, core_count() // CORES_OF_WORKER)


def _workload(config: Config, sources: Sequence[Source], gpus: int, live: int) -> Workload:
    if not gpus or live or not all(source.size for source in sources):
        return Workload(gpus=gpus, cores=1, memory=0, live=live)
    videos = [source for source in sources if Path(source.text).suffix.lower() not in PICTURE_SUFFIXES]
    return Workload(
        gpus=gpus,
        cores=core_count(),
        memory=gpu_memory(),
        videos=len(videos),
        frames=_frames(videos, config),
        encoded=config.video or config.save_masks is not None,
    )


def _frames(videos: Sequence[Source], config: Config) -> int:
    """Returns about how many frames files have, by the one of the middle size; 0 if unknown."""
    if len(videos) < _FEWEST or config.start or config.duration or config.max_frames:
        return 0
    middle = sorted(videos, key=lambda source: source.size)[len(videos) // 2]
    try:
        with open_input(middle, access_of(config)) as container:
            stream = video_stream(container, middle.text)
            seconds = Fraction(container.duration or 0, av.time_base)
            frames = stream.frames or seconds * nominal_rate(stream, middle.text)
    except InputError:  # which its own run says
        return 0
    return round(frames * sum(source.size for source in videos) / middle.size)
