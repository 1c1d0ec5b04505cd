"""Masks of a run whose network works on some frames only, the keys. The masks in between come from two keys each."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from segmentation.config import Config
from segmentation.errors import ConfigError
from segmentation.frames import Array, FrameBatch, MaskedBatch, Memory
from segmentation.models.model import Model
from segmentation.options import Interval
from segmentation.pipeline.mask_source import NetworkMasks, Parts, make_smoothing
from segmentation.pipeline.threads import Overlap
from segmentation.stages.inference import keys_at_once
from segmentation.stages.masks.propagation import Between, Doubt, Found, HostPropagation, Propagation
from segmentation.stages.masks.smoothing import smooth_masks

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu

CUT = 0.1  # mean change of luma from one frame to the next, above which a new scene begins
LONGEST = 8  # frames from key to key, at most, where the picture decides
DISAGREEMENT = 0.12  # of two keys' masks about the frame in the middle, above which that frame becomes a key
UNSEEN = 0.03  # the same for the share of that frame that neither key shows

T = TypeVar("T")
Luma = TypeVar("Luma")


@dataclass(frozen=True, slots=True)
class Seen(Generic[Luma]):
    """A frame as the network sees it."""

    number: int
    picture: Array  # (3, H, W), a row of the network's input
    luma: Luma
    batch: FrameBatch  # that the frame belongs to


Stretch = list[Seen[Luma]]  # successive frames, of which the last is a key, and no other
Key = tuple[Seen[Luma], Found]


class Round(Generic[Luma]):
    """Stretches whose keys go through the network together. `key` is the last key, for the next round."""

    def __init__(self, stretches: list[Stretch[Luma]], before: Future[Key[Luma]] | None) -> None:
        self.stretches = stretches
        self.before = before
        self.key: Future[Key[Luma]] = Future()


def rounds(
    batches: Iterable[list[Seen[Luma]]], propagation: Propagation[Luma], interval: Interval
) -> Iterator[Round[Luma]]:
    """Yields the rounds of a run from the frames of its batches.

    Keys are the first and the last frame, both sides of a cut, and in between the first frame after `interval` others.
    """
    longest = LONGEST if interval == "auto" else interval + 1
    waiting: Stretch[Luma] = []  # behind the last key
    last: Seen[Luma] | None = None
    key: Future[Key[Luma]] | None = None
    for batch in batches:
        lumas = [frame.luma for frame in batch]
        changes = propagation.changes(lumas if last is None else [last.luma, *lumas])
        done: list[Stretch[Luma]] = []
        for frame, change in zip(batch, [1.0] * (last is None) + changes, strict=True):
            if change > CUT:
                done += [waiting] if waiting else []
                done.append([frame])
                waiting = []
            else:
                waiting.append(frame)
                if len(waiting) == longest:
                    done.append(waiting)
                    waiting = []
        last = batch[-1]
        if done:
            yield (found := Round(done, key))
            key = found.key
    if waiting:
        yield Round([waiting], key)


@dataclass(frozen=True, slots=True)
class _Gap(Generic[Luma]):
    """Frames between two keys, perhaps none."""

    first: Key[Luma]
    frames: list[Seen[Luma]]
    last: Key[Luma]

    def at(self, frame: Seen[Luma]) -> Between[Luma]:
        (begin, found), (end, others) = self.first, self.last
        share = (end.number - frame.number) / (end.number - begin.number)
        return Between(frame.luma, (begin.luma, end.luma), (found, others), share)

    def halves(self, found: Found) -> list[_Gap[Luma]]:
        """Returns the gaps before and behind the frame in the middle, of which `found` is known now."""
        middle = len(self.frames) // 2
        key = (self.frames[middle], found)
        return [_Gap(self.first, self.frames[:middle], key), _Gap(key, self.frames[middle + 1 :], self.last)]


@dataclass(kw_only=True)
class PropagatedMasks(NetworkMasks):
    """The network on the keys alone."""

    propagation: Propagation[Any]
    interval: Interval
    at_once: int  # frames that the network takes

    def finished(
        self, batches: Iterator[FrameBatch], finish: Callable[[MaskedBatch], T], overlap: Overlap
    ) -> Iterator[T]:
        waiting: deque[tuple[FrameBatch, Array]] = deque()  # with the network's input
        seen = self._queued(overlap.map(self._see, batches, self.workers), waiting)
        found = overlap.map(self._find_all, rounds(seen, self.propagation, self.interval), self.workers)
        masked = self._joined(found, waiting)
        smoothed = (batch for batch, _ in masked) if self.smoothing is None else smooth_masks(masked, self.smoothing)
        return overlap.map(finish, smoothed, self.workers)

    def _see(self, batch: FrameBatch) -> tuple[FrameBatch, Array, list[Seen[Any]]]:
        """Returns a batch with the network's input, and its frames."""
        self.transfer.enter()
        with self.turn.of(self.infer):
            kept, tensor = self.prepared(batch)
            tensor, lumas = self.clock.call("infer", batch, self.propagation.see, tensor, len(batch))
        frames = [Seen(batch.index + i, tensor[i], luma, kept) for i, luma in enumerate(lumas)]
        return kept, tensor, frames

    def _queued(
        self, seen: Iterable[tuple[FrameBatch, Array, list[Seen[Any]]]], waiting: deque[tuple[FrameBatch, Array]]
    ) -> Iterator[list[Seen[Any]]]:
        for batch, tensor, frames in seen:
            waiting.append((batch, tensor))
            yield frames

    def _joined(
        self, found: Iterable[list[Found]], waiting: deque[tuple[FrameBatch, Array]]
    ) -> Iterator[tuple[MaskedBatch, Any]]:
        """Yields the batches that are complete, and the history that smoothing keeps of each."""
        ready: list[Found] = []
        for more in found:
            ready += more
            while waiting and len(waiting[0][0]) <= len(ready):
                batch, tensor = waiting.popleft()
                count = len(batch)
                with self.turn.of(self.infer):
                    masks, class_map = self.propagation.join(ready[:count])
                    history = None if self.smoothing is None else self.smoothing.keep(tensor, masks, count)
                ready = ready[count:]
                yield MaskedBatch(frames=batch, masks=masks, class_map=class_map), history

    def _find_all(self, round: Round[Any]) -> list[Found]:
        """Returns what is found in each frame of a round."""
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
        gaps = [_Gap(a, s[:-1], b) for (a, b), s in zip(pairwise(known), stretches, strict=True)]
        if self.interval == "auto":
            gaps = self._halved(gaps, found)
        todo = [(frame, gap.at(frame)) for gap in gaps for frame in gap.frames if frame.number not in found]
        for (frame, _), (one, _) in zip(todo, self._propagate([at for _, at in todo]), strict=True):
            found[frame.number] = one
        return [found[frame.number] for stretch in round.stretches for frame in stretch]

    def _halved(self, gaps: list[_Gap[Any]], found: dict[int, Found]) -> list[_Gap[Any]]:
        """Returns gaps whose keys tell enough about their middle. Adds to `found` what is found on the way."""
        settled: list[_Gap[Any]] = []
        while gaps := [gap for gap in gaps if gap.frames]:
            middles = [gap.frames[len(gap.frames) // 2] for gap in gaps]
            propagated = self._propagate([gap.at(m) for gap, m in zip(gaps, middles, strict=True)], doubt=True)
            found |= {m.number: one for m, (one, _) in zip(middles, propagated, strict=True)}
            great = [doubt is not None and _great(doubt) for _, doubt in propagated]
            settled += [gap for gap, doubtful in zip(gaps, great, strict=True) if not doubtful]
            keys = [middle for middle, doubtful in zip(middles, great, strict=True) if doubtful]
            found |= self._infer(keys)
            gaps = [
                half
                for gap, middle, doubtful in zip(gaps, middles, great, strict=True)
                if doubtful
                for half in gap.halves(found[middle.number])
            ]
        return settled

    def _infer(self, frames: list[Seen[Any]]) -> dict[int, Found]:
        """Returns what the network finds in each frame, by the frame's number."""
        found: dict[int, Found] = {}
        for begin in range(0, len(frames), self.at_once):
            part = frames[begin : begin + self.at_once]
            with self.turn.of(self.infer):
                tensor = self.propagation.gather([frame.picture for frame in part])
                masks, class_map = self.inference(part[0].batch, tensor, len(part))
                results = self.propagation.split(masks, class_map, len(part))
            found |= {frame.number: one for frame, one in zip(part, results, strict=True)}
        return found

    def _propagate(self, frames: list[Between[Any]], *, doubt: bool = False) -> list[tuple[Found, Doubt | None]]:
        if not frames:
            return []
        return self.clock.call("infer", None, lambda: self.propagation.propagate(frames, doubt=doubt))


def _great(doubt: Doubt) -> bool:
    return doubt.disagreement > DISAGREEMENT or doubt.unseen > UNSEEN


def network_masks(model: Model, config: Config, gpu: Gpu | None, **parts: Unpack[Parts]) -> NetworkMasks:
    """Returns the source of masks for `config.interval`.

    Raises `ConfigError` for an interval with a network that carries states from frame to frame.
    """
    smoothing = make_smoothing(parts["infer"].memory, model, config, gpu)
    if not config.interval:
        return NetworkMasks(smoothing=smoothing, **parts)
    if model.form.recurrent:
        raise ConfigError(f"interval {config.interval}: {model.name} carries states from frame to frame; leave it out")
    return PropagatedMasks(
        smoothing=smoothing,
        propagation=_propagation(parts["infer"].memory, model, gpu),
        interval=config.interval,
        at_once=keys_at_once(config, model),
        **parts,
    )


def _propagation(memory: Memory, model: Model, gpu: Gpu | None) -> Propagation[Any]:
    if memory == "host":
        return HostPropagation(model)
    from segmentation.stages.masks.cuda_propagation import CudaPropagation  # needs PyTorch

    assert gpu is not None
    return CudaPropagation(model, gpu)
