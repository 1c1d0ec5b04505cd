"""Masks of a run whose network works on some frames only, the keys. The masks in between come from two keys each."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from segmentation.flow.threads import StageThreads
from segmentation.frames import Array, FrameBatch, MaskedBatch, Memory
from segmentation.frames.live_frames import LiveFrames
from segmentation.interval.auto_interval import Gap, longest_gap, settled
from segmentation.interval.key_frames import Round, Seen, rounds
from segmentation.interval.overload import IntervalGovernor, governor
from segmentation.interval.propagation import Doubt, FrameBetween, FrameMask, HostPropagation, Later, Propagation
from segmentation.models.model import Model
from segmentation.options.config import Config
from segmentation.options.keywords import Interval
from segmentation.stages.inference import keys_at_once
from segmentation.stages.mask_source import NetworkMasks, Parts, make_smoothing

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu

_GOVERNED = 2  # frames from key to key for which a governed run is made, where it may be any
_IN_FLIGHT = 4  # frames for each worker that may wait for their keys, but always the frames of one round

T = TypeVar("T")


@dataclass(kw_only=True)
class PropagatedMasks(NetworkMasks):
    """The network on the keys alone."""

    propagation: Propagation[Any]
    interval: Interval
    governor: IntervalGovernor | None  # of a live run, which may choose another interval
    at_once: int  # frames that the network takes

    @property
    def _each_alone(self) -> bool:
        return False

    def masked(self, batches: Iterator[FrameBatch], overlap: StageThreads) -> Iterator[MaskedBatch]:
        waiting: deque[tuple[FrameBatch, Array | None]] = deque()  # with the network's input, which a pause lacks
        longest = longest_gap(self.interval)
        gap = (lambda: longest) if self.governor is None else self.governor.gap
        seen = self._queued(overlap.map(self._see, batches, self.workers), waiting)
        parts = overlap.map(
            self._infer_round,
            rounds(seen, self._changes, gap),
            max(1, _IN_FLIGHT * self.workers // max(longest, _GOVERNED * (self.governor is not None)) - 1),
        )
        found = overlap.map(self._propagated, self._pieces(parts), self.workers)
        return self._smoothed(self._joined(found, waiting))

    def _see(self, batch: FrameBatch) -> tuple[FrameBatch, Array | None, list[Seen[Any]]]:
        """Returns a batch with the network's input, and its frames."""
        if not len(batch):
            return batch, None, []
        self.transfer.enter()
        with self.turn.of(self.infer):
            kept, tensor = self.prepared(batch)
            tensor, lumas = self._on_account(self.propagation.keep, tensor, len(batch))
        label = batch.without_pictures()
        rows = zip(tensor, lumas, strict=True)
        frames = [Seen(batch.index + i, row, luma, label) for i, (row, luma) in enumerate(rows)]
        return kept, tensor, frames

    def _changes(self, lumas: list[Any]) -> list[float]:
        """Returns how much each luma but the first differs from the one before."""
        return self._awaited(self._on_account(self.propagation.changes, lumas))

    def _queued(
        self,
        seen: Iterable[tuple[FrameBatch, Array | None, list[Seen[Any]]]],
        waiting: deque[tuple[FrameBatch, Array | None]],
    ) -> Iterator[list[Seen[Any]]]:
        for batch, tensor, frames in seen:
            waiting.append((batch, tensor))
            yield frames

    def _infer_round(self, round: Round[Any]) -> list[FrameMask | FrameBetween[Any]]:
        """Returns what is found in each frame of a round, or what it is to be propagated from."""
        if not round.stretches:
            return []
        keys = [stretch[-1] for stretch in round.stretches]
        self.transfer.enter()
        try:
            found = self._infer(keys)
            round.key.set_result((keys[-1], found[keys[-1].number]))
        except BaseException as exc:  # the next round waits for the key
            round.key.set_exception(exc)
            raise
        known = [(key, found[key.number]) for key in keys]
        if round.before is not None:
            known.insert(0, round.before.result())
        stretches = round.stretches[len(round.stretches) + 1 - len(known) :]  # the very first frame has no gap before
        gaps = [Gap(a, s[:-1], b) for (a, b), s in zip(pairwise(known), stretches, strict=True)]
        if self.interval == "auto":
            for gap in gaps:
                found |= settled(gap, self._in_doubt, self._infer)
        between = {frame.number: gap.at(frame) for gap in gaps for frame in gap.frames}
        numbers = [frame.number for stretch in round.stretches for frame in stretch]
        return [found[number] if number in found else between[number] for number in numbers]

    def _pieces(
        self, parts: Iterable[list[FrameMask | FrameBetween[Any]]]
    ) -> Iterator[list[FrameMask | FrameBetween[Any]]]:
        """Yields the frames of rounds in portions, one for each call of `_propagated`: workers share those of a round,
        while a GPU takes them together."""
        for part in parts:
            size = max(1, len(part)) if self.memory == "cuda" else 1
            yield from (part[begin : begin + size] for begin in range(0, max(1, len(part)), size))

    def _propagated(self, frames: list[FrameMask | FrameBetween[Any]]) -> list[FrameMask]:
        between = [frame for frame in frames if isinstance(frame, FrameBetween)]
        made = iter(self._propagate(between)[0])
        return [next(made) if isinstance(frame, FrameBetween) else frame for frame in frames]

    def _joined(
        self, found: Iterable[list[FrameMask]], waiting: deque[tuple[FrameBatch, Array | None]]
    ) -> Iterator[tuple[MaskedBatch, Any] | None]:
        """Yields the batches that are complete, and the history that smoothing keeps of each. A pause is `None`."""
        ready: list[FrameMask] = []
        for more in found:
            ready += more
            while waiting and len(waiting[0][0]) <= len(ready):
                batch, tensor = waiting.popleft()
                if tensor is None:
                    yield None
                    continue
                count = len(batch)
                with self.turn.of(self.infer):
                    masks, class_map = self._on_account(self.propagation.join, ready[:count])
                    history = None if self.smoothing is None else self.smoothing.keep(tensor, masks, count)
                ready = ready[count:]
                yield MaskedBatch(frames=batch, masks=masks, class_map=class_map), history

    def _infer(self, frames: list[Seen[Any]]) -> dict[int, FrameMask]:
        """Returns what the network finds in each frame, by the frame's number."""
        found: dict[int, FrameMask] = {}
        for begin in range(0, len(frames), self.at_once):
            part = frames[begin : begin + self.at_once]
            tensor = self._on_account(self.propagation.gather, [frame.picture for frame in part])
            masks, class_map, _ = self.inference(part[0].batch, tensor, len(part))
            results = self._on_account(self.propagation.split, masks, class_map, len(part))
            found |= {frame.number: one for frame, one in zip(part, results, strict=True)}
        return found

    def _propagate(
        self, frames: list[FrameBetween[Any]], *, doubt: bool = False
    ) -> tuple[list[FrameMask], list[Doubt]]:
        """Returns what is found in each frame, and the doubt about each only if asked for."""
        if not frames:
            return [], []
        self.transfer.enter()
        found, doubts = self._on_account(lambda: self.propagation.propagate(frames, doubt=doubt))
        return found, self._awaited(doubts) if doubt else []

    def _in_doubt(self, frames: list[FrameBetween[Any]]) -> tuple[list[FrameMask], list[Doubt]]:
        """Returns what is found in each frame, and the doubt about each."""
        return self._propagate(frames, doubt=True)

    def _on_account(self, function: Callable[..., T], *arguments: object) -> T:
        """Calls a part of the propagation. On a GPU nobody else queues work meanwhile, such as a graph's capture."""
        with self.turn.of(self.infer):
            return self.clock.call("infer", None, function, *arguments)

    def _awaited(self, later: Later[T]) -> list[T]:
        """Waits for numbers from a GPU, on which others queue work meanwhile."""
        return self.clock.call("infer", None, later)


def network_masks(
    model: Model, config: Config, gpu: Gpu | None, live: LiveFrames | None, **parts: Unpack[Parts]
) -> NetworkMasks:
    """Returns the source of masks for `config.interval`, which of a `live` source may rise under overload.

    The plan has refused an interval with networks that carry states or find single things.
    """
    smoothing = make_smoothing(parts["infer"].memory, model, config, gpu)
    governed = governor(live, parts["infer"], model, config)
    if not config.interval and governed is None:
        return NetworkMasks(smoothing=smoothing, **parts)
    return PropagatedMasks(
        smoothing=smoothing,
        propagation=_propagation(parts["infer"].memory, model, gpu),
        interval=config.interval,
        governor=governed,
        at_once=keys_at_once(config, model),
        **parts,
    )


def _propagation(memory: Memory, model: Model, gpu: Gpu | None) -> Propagation[Any]:
    if gpu is None or memory == "host":
        return HostPropagation(model)
    from segmentation.interval.cuda_propagation import CudaPropagation  # needs PyTorch

    return CudaPropagation(model, gpu)
