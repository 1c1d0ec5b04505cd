"""Videos that stay open, for frames that are asked for one at a time and in any order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from segmentation.frames import Frame, FrameBatch
from segmentation.media.opening.probe import probe
from segmentation.options.config import Config
from segmentation.stages.decode.kept_open import KeptOpenDecoder
from segmentation.system.access import Access
from segmentation.system.closing import Closing

_PLACES, _BYTES = 4, 1 << 30  # decoders of a video, and their memory
_HELD = 16  # frames of a decoder: references, those of its threads, and recent ones


class OpenVideo(Closing):
    """Holds a file open. One thread at a time may take frames. Use it as a context manager, or close it.

    Several decoders stand at the places of the last frames, so that a frame between two of these is decoded from the
    earlier place, rather than from a keyframe that may lie far before.
    """

    def __init__(self, path: str, access: Access) -> None:
        """Raises `InputError`."""
        self.path, self.info = path, probe(path, access)
        self._places = max(1, min(_PLACES, _BYTES // (_HELD * 3 * self.info.width * self.info.height // 2)))
        self._decoders: list[KeptOpenDecoder] = []  # the one that was used last is the last
        self._pix_fmt = ""

    def around(self, pix_fmt: str, time: Fraction, before: int, after: int) -> Sequence[Frame]:
        """Returns frames as `KeptOpenDecoder.around`, in the layout of a key of `frames.FORMATS`."""
        if pix_fmt != self._pix_fmt:
            self.close()
            self._pix_fmt = pix_fmt
        ahead = [(ticks, i) for i, one in enumerate(self._decoders) if (ticks := one.ahead(time, before)) is not None]
        behind = [i for i, one in enumerate(self._decoders) if one.begins_after(time, before)]
        if not ahead and not behind and len(self._decoders) < self._places:
            decoder = KeptOpenDecoder(self.info, pix_fmt)
        else:
            decoder = self._decoders.pop(min(ahead)[1] if ahead else [*behind, 0][0])
        for other in self._decoders:
            other.keep(before + 1 + after)
        self._decoders.append(decoder)
        return decoder.around(time, before, after, back=bool(behind))

    def close(self) -> None:
        for decoder in self._decoders:
            decoder.close()
        self._decoders.clear()


@dataclass(frozen=True, slots=True)
class Moment:
    """The frame that is shown at a time, with neighbors, as the source of `Segmenter.frames`.

    With `before` and `after` of the smoothing's reach, that frame's mask is the same as in a run.
    """

    video: OpenVideo
    time: Fraction  # seconds from the video's beginning
    before: int  # frames
    after: int

    def config(self, config: Config) -> Config:
        """Returns the options with the decoder that it needs."""
        return replace(config, decode="pyav")

    def decoded(self, pix_fmt: str) -> Iterator[FrameBatch]:
        """Yields the frames. Raises `InputError`."""
        frames = self.video.around(pix_fmt, self.time, self.before, self.after)
        yield from (FrameBatch(frames=(frame,), index=i, number=i) for i, frame in enumerate(frames))
