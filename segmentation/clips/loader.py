"""Batches of clips, decoded ahead by several threads, and put together by another one."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from segmentation.clips.clip_builder import ClipInProgress, Sample
from segmentation.clips.dataset import ClipDataset, check_count
from segmentation.clips.decode import decoded
from segmentation.clips.host_clips import clip_builder_on
from segmentation.clips.index import VideoIndex
from segmentation.clips.order import Shuffle, draw, order
from segmentation.clips.output import Augmentation, Chain, Output, Window
from segmentation.errors import ConfigError, InputError
from segmentation.frames import Array

log = logging.getLogger(__name__)

MASKS = "masks"
_AHEAD = 3  # batches, at least, unless the program says otherwise
# Part of the time between two batches, and seconds at most, for which a loader that is ahead of the program rests when
# one has been taken: the program then queues its work, and threads that begin at once would take the GIL from it.
_REST, _LONGEST_REST = 0.25, 0.02


class Batch(dict[str, Array]):
    """The arrays of a batch by the names of the outputs, and with masks `batch["masks"]`, (N, T, H, W) uint8.

    They are NumPy's, or CUDA tensors. All else is on the host.
    """

    clips: NDArray[np.int64]  # (N,): their numbers in the dataset
    video: list[str]  # (N): paths
    first: NDArray[np.int64]  # (N,): number of the first frame in its video
    pts: NDArray[np.float64]  # (N, T): seconds on the video's clock
    windows: list[dict[str, Window]]  # (N): by the names of the outputs, which part of the picture they show
    labels: list[Any]  # (N): of the dataset's `labels`; empty without


_Ready: TypeAlias = "SimpleQueue[Batch | BaseException | None]"  # None: all of the batch's clips are damaged
_Taken: TypeAlias = "SimpleQueue[float | None]"  # seconds to rest; None: no more batches


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a loader stands."""

    epoch: int = 0
    batch: int = 0  # the next one


class ClipLoader:
    """An iterable over the batches of one epoch after the other, each time from where it stands.

    Which clips a batch holds, and how each is cropped and mirrored, follows from the dataset, the seed and the epoch,
    whatever the threads do.
    """

    def __init__(
        self,
        dataset: ClipDataset,
        batch_size: int,
        *,
        outputs: Mapping[str, Output] | None = None,
        shuffle: Shuffle = "pool",
        window: int = 64,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        drop_last: bool = True,
        ahead: int | None = None,
        workers: int | None = None,
        on_error: Literal["raise", "skip", "repeat"] = "raise",
        device: str = "cpu",
    ) -> None:
        """`outputs` by name; by default `{"input": Output()}`. Masks are made like the first one.

        `shuffle`: "full" draws from all clips, which decodes each from its keyframe on; "pool" draws from neighbors
        that are decoded together and held, as many as begin within `window` times 48 frames; False keeps the order of
        the dataset. `ahead` batches are decoded ahead, by default 3, or as many as have a run for each thread; one more
        is put together. `workers` are threads, by default one a core or NVDEC engine. `rank` of `world` has its share.

        `on_error`: what becomes of a clip that can't be decoded: "skip" leaves it out of its batch, "repeat" takes
        another clip of the batch in its place. Both warn, and count it in `damaged`. Without a whole clip, a batch is
        left out by "skip", and an error for "repeat", since other ranks would wait for it.

        `device`: "cpu", or "cuda" or "cuda:N" for NVDEC and CUDA tensors of the same clips. A batch is for the current
        stream of the thread that takes it. Masks are decoded on the CPU, and copied.

        Raises `ConfigError` for values that can't be, `BackendError` without the GPU, or for videos not for NVDEC.
        """
        self.dataset, self.batch_size = dataset, batch_size
        self._outputs = dict(outputs or {"input": Output()})
        self._shuffle, self._window, self._seed = shuffle, window, seed
        self._rank, self._world, self._drop_last = rank, world, drop_last
        self._ahead, self._on_error = ahead, on_error
        self._place = _Place()
        self.damaged: dict[int, str] = {}  # clips that could not be decoded, with the reason
        for name, value, least in (
            ("batch_size", batch_size, 1), ("window", window, 1), ("ahead", ahead or 0, 0), ("world", world, 1),
            ("seed", seed, 0), ("workers", workers or 1, 1),
        ):  # fmt: skip
            check_count(name, value, least)
        if not 0 <= rank < world:
            raise ConfigError(f"rank {rank}: must lie in 0 to {world - 1}")
        if shuffle not in ("pool", "full", False):
            raise ConfigError(f"shuffle {shuffle!r}: must be 'pool', 'full' or False")
        if on_error not in ("raise", "skip", "repeat"):
            raise ConfigError(f"on_error {on_error!r}: must be 'raise', 'skip' or 'repeat'")
        _check_outputs(self._outputs, dataset.videos if batch_size > 1 else [])
        if not len(self):
            share = f" for each of {world} ranks" if world > 1 else ""
            raise ConfigError(f"batch_size {batch_size}: an epoch has {len(self._order(0)[0])} clips{share}, no batch")
        self._maker = clip_builder_on(device, dataset.videos, self._outputs)
        self._workers = workers or self._maker.workers
        _make_known_to_torch()

    def __len__(self) -> int:
        """Returns the batches of an epoch."""
        count = len(self._order(self._place.epoch)[0])
        return count // self.batch_size if self._drop_last else -(-count // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Goes to the beginning of an epoch, counted from 0, also from within it: not after `load_state_dict`.

        Each iteration to the end goes to the next epoch by itself. Raises `ConfigError` for a number that can't be.
        """
        check_count("epoch", epoch, 0)
        self._place = _Place(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Returns where the loader stands: behind the batch that was handed out last, of its epoch."""
        return {**self._identity(), "epoch": self._place.epoch, "batch": self._place.batch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes where another loader stood. Raises `ConfigError` if its batches were others."""
        for name, value in self._identity().items():
            if state.get(name) != value:
                raise ConfigError(f"the state has {name} {state.get(name)!r}, and this loader {value!r}")
        self._place = _Place(int(state["epoch"]), int(state["batch"]))

    def __iter__(self) -> Iterator[Batch]:
        """Yields the batches of the epoch that are left. Raises `InputError` for damage, see `on_error`.

        After an error, and in a loader with the state of this one, the next iteration begins with the same batch.
        """
        _refuse_torch_workers()
        epoch, begin = self._place.epoch, self._place.batch
        clips, runs = self._order(epoch)
        size = self.batch_size
        busy = -(-self._workers * max(map(len, runs)) // size)  # batches with a run for each thread
        ahead = max(_AHEAD, busy) if self._ahead is None else self._ahead
        batches = [clips[at : at + size] for at in range(0, len(clips), size)][begin : len(self)]
        ready: _Ready = SimpleQueue()
        taken: _Taken = SimpleQueue()
        with ThreadPoolExecutor(self._workers, "clips") as pool, ThreadPoolExecutor(1, "batches") as joining:
            samples = _Samples(self, epoch, pool, runs, [clip for batch in batches for clip in batch])
            samples.begin((1 + ahead) * size)
            joining.submit(self._join, batches, samples, ahead, ready, taken)
            try:
                yielded = time.perf_counter()
                for number in range(begin + 1, begin + 1 + len(batches)):
                    between = 0.0 if ready.empty() else time.perf_counter() - yielded
                    batch = _raised(ready.get())
                    if batch is not None:
                        for name, array in batch.items():
                            batch[name] = self._maker.handed_over(array)
                    taken.put(min(_REST * between, _LONGEST_REST))
                    self._place = _Place(epoch, number)
                    if batch is not None:
                        yielded = time.perf_counter()
                        yield batch
            finally:
                taken.put(None)
                pool.shutdown(cancel_futures=True)  # `_join` then ends too
        self._place = _Place(epoch + 1)

    def _join(self, batches: list[list[int]], samples: _Samples, ahead: int, ready: _Ready, taken: _Taken) -> None:
        """Puts batches together, each of them once the one before has been taken.

        A thread of its own does all that it can: what the program's thread does to take a batch is a loss of time.
        """
        try:
            for number, clips in enumerate(batches):
                rest = taken.get() if number else 0.0
                if rest is None:
                    return
                if rest:
                    time.sleep(rest)
                with self._maker.working():
                    batch = self._batch(clips, samples)
                # Not before: then all threads would want the GIL while the program, which has just taken the batch
                # before, queues its work.
                samples.begin((number + 2 + ahead) * self.batch_size)
                ready.put(batch)
                del batch  # its memory is the program's
        except BaseException as exc:  # raised again by the program's thread
            ready.put(exc)

    def sample(self, clip: int, epoch: int = 0) -> Sample:
        """Returns one clip as it is in the batches of an epoch. Raises `InputError` if it is damaged."""
        with ThreadPoolExecutor(1, "clips") as pool:
            made = _unwrapped(pool.submit(self.samples, (clip,), epoch).result()[clip])
        return {name: self._maker.handed_over(self._maker.batch([array], None))[0] for name, array in made.items()}

    def samples(self, clips: tuple[int, ...], epoch: int) -> dict[int, Sample | InputError]:
        """Decodes clips of one video, their frames once. A clip that is damaged has its error."""
        with self._maker.working():
            return self._made(clips, epoch)

    def _made(self, clips: tuple[int, ...], epoch: int) -> dict[int, Sample | InputError]:
        dataset = self.dataset
        index = dataset.videos[dataset.video[clips[0]]]
        made = {clip: self._maker.begin(index, self._draw(clip, epoch), dataset.length) for clip in clips}
        wanting: dict[int, list[ClipInProgress]] = {}  # by the number of the frame
        for clip in clips:
            for number in dataset.numbers(clip):
                wanting.setdefault(number, []).append(made[clip])
        error: InputError | None = None
        try:
            self._maker.make(index, wanting)
        except InputError as exc:
            error = exc.with_traceback(None)  # which holds this frame, and so the memory of the clips
        if error is not None and len(clips) > 1:  # some of them may be whole
            return {clip: self._made((clip,), epoch)[clip] for clip in clips}
        return {clip: error or self._with_masks(clip, made[clip].sample(), epoch) for clip in clips}

    def _with_masks(self, clip: int, sample: Sample, epoch: int) -> Sample | InputError:
        dataset, video = self.dataset, int(self.dataset.video[clip])
        if not dataset.masks:
            return sample
        like = next(iter(self._outputs.values()))
        about = dataset.videos[video]
        chain = Chain(like, self._draw(clip, epoch), about.size, about.orientation, mask=True)
        numbers = dataset.numbers(clip)
        try:
            saved = dataset.masks[video]
            checksums = saved.path.endswith(".mkv")  # FFmpeg finds damage of PNG files itself
            masks = [chain(frame) for _, frame in decoded(saved, numbers, checksums=checksums)]
        except InputError as exc:
            return exc.with_traceback(None)
        return {**sample, MASKS: self._maker.masks(np.stack(masks))}

    def _batch(self, clips: list[int], samples: _Samples) -> Batch | None:
        """Returns a batch; `None` if all of its clips are damaged."""
        made: dict[int, Sample] = {}
        for clip in clips:
            found = samples.take(clip)
            if not isinstance(found, InputError):
                made[clip] = found
                continue
            if self._on_error == "raise":
                raise found
            self.damaged[clip] = str(found)
            log.warning("clip %d is left out: %s", clip, self.damaged[clip])
        if not made and self._on_error == "repeat":
            raise InputError(f"no clip of a batch can be decoded, such as clip {clips[0]}: {self.damaged[clips[0]]}")
        if not made:
            return None
        if self._on_error == "repeat":
            whole = list(made)
            clips = [clip if clip in made else whole[place % len(whole)] for place, clip in enumerate(clips)]
        else:
            clips = list(made)
        batch = Batch()
        for name in made[clips[0]]:  # the outputs, and the masks
            batch[name] = self._maker.batch([made[clip][name] for clip in clips], self._outputs.get(name))
        return self._described(batch, clips, samples.epoch)

    def _described(self, batch: Batch, clips: list[int], epoch: int) -> Batch:
        """Fills in what a batch has beside its arrays."""
        dataset = self.dataset
        videos = [dataset.videos[dataset.video[clip]] for clip in clips]
        batch.clips = np.array(clips, np.int64)
        batch.video = [video.path for video in videos]
        batch.first = dataset.first[clips]
        batch.pts = np.stack([dataset.seconds(clip) for clip in clips])
        draws = [self._draw(clip, epoch) for clip in clips]
        batch.windows = [
            {name: output.window(video.size, draw, video.orientation) for name, output in self._outputs.items()}
            for video, draw in zip(videos, draws, strict=True)
        ]
        about = zip(batch.video, batch.first.tolist(), batch.windows, strict=True)
        batch.labels = [] if dataset.labels is None else [dataset.labels(*one) for one in about]
        return batch

    def _draw(self, clip: int, epoch: int) -> Augmentation:
        return draw(self._seed, epoch, clip)

    def _order(self, epoch: int) -> tuple[list[int], list[tuple[int, ...]]]:
        return order(self.dataset, self._shuffle, self._window, self._seed, epoch, self._rank, self._world)

    def _identity(self) -> dict[str, Any]:
        """Returns all that decides which clips a batch holds."""
        return {
            "fingerprint": self.dataset.fingerprint,
            "seed": self._seed,
            "shuffle": self._shuffle,
            "window": self._window,
            "batch_size": self.batch_size,
            "rank": self._rank,
            "world": self._world,
            "drop_last": self._drop_last,
        }


class _Samples:
    """The clips that are decoded, and those that are being decoded, run by run."""

    def __init__(
        self, loader: ClipLoader, epoch: int, pool: ThreadPoolExecutor, runs: list[tuple[int, ...]], clips: list[int]
    ) -> None:
        """`clips` in the order in which they will be taken."""
        self._loader, self.epoch, self._pool, self._clips = loader, epoch, pool, clips
        wanted = set(clips)
        self._run = {clip: tuple(one for one in run if one in wanted) for run in runs for clip in run}
        self._begun = 0
        self._decoding: dict[int, Future[dict[int, Sample | InputError]]] = {}  # by clip

    def begin(self, count: int) -> None:
        """Begins to decode the first `count` clips, unless that has begun, and all of their runs.

        Runs that begin at the same keyframe are decoded together: the way to the last one passes the others.
        """
        together: dict[tuple[int, int], dict[int, None]] = {}
        for clip in self._clips[self._begun : count]:
            if clip not in self._decoding:
                run = self._run[clip]
                together.setdefault(self._loader.dataset.begins(run[0]), {}).update(dict.fromkeys(run))
        for clips in together.values():
            future = self._pool.submit(self._loader.samples, tuple(clips), self.epoch)
            self._decoding |= dict.fromkeys(clips, future)
        self._begun = max(self._begun, count)

    def take(self, clip: int) -> Sample | InputError:
        """Waits for a clip, and forgets it."""
        return self._decoding.pop(clip).result().pop(clip)


def _raised(found: Batch | BaseException | None) -> Batch | None:
    if isinstance(found, BaseException):
        try:
            raise found
        finally:
            del found  # else the error would hold itself, and the loader with it
    return found


def _unwrapped(found: Sample | InputError) -> Sample:
    if isinstance(found, InputError):
        raise found
    return found


def _check_outputs(outputs: Mapping[str, Output], videos: Sequence[VideoIndex]) -> None:
    """Raises `ConfigError` for a name that is taken, and for the pictures' own size where that is not one for all."""
    if MASKS in outputs:
        raise ConfigError(f"an output can't be called {MASKS!r}, which are the masks' own name")
    own = [name for name, output in outputs.items() if output.size is None]
    other = next((index for index in videos if index.size != videos[0].size), None)
    if own and other is not None:
        sizes = [f"{index.path} has {index.size[1]}x{index.size[0]}" for index in (videos[0], other)]
        text = f"output {own[0]!r}: pictures of a batch have one size, and {' and '.join(sizes)}"
        raise ConfigError(f"{text}; give size=(height, width)")


def _make_known_to_torch() -> None:
    """Lets PyTorch's `DataLoader` iterate over loaders, if the program has imported it."""
    if data := sys.modules.get("torch.utils.data"):
        data.IterableDataset.register(ClipLoader)


def _refuse_torch_workers() -> None:
    """Raises `ConfigError` in a worker of a `DataLoader`: each of several would bring all batches."""
    data = sys.modules.get("torch.utils.data")
    if data is not None and data.get_worker_info() is not None:
        raise ConfigError("num_workers: must be 0, since the loader has threads of its own")
