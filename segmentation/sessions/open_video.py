"""Videos that stay open, for frames that are asked for one at a time and in any order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from segmentation.frames import FrameBatch
from segmentation.media.opening.probe import probe
from segmentation.options.config import Config
from segmentation.stages.decode.kept_open import KeptOpenDecoder
from segmentation.system.access import Access
from segmentation.system.closing import Closing


class OpenVideo(Closing):
    """Holds a file open. One thread at a time may take frames. Use it as a context manager, or close it."""

    def __init__(self, path: str, access: Access) -> None:
        """Raises `InputError`."""
        self.path, self.info = path, probe(path, access)
        self._decoder: KeptOpenDecoder | None = None
        self._pix_fmt = ""

    def decoder(self, pix_fmt: str) -> KeptOpenDecoder:
        """Returns the decoder, which is another one if the layout, a key of `frames.FORMATS`, is."""
        if self._decoder is None or pix_fmt != self._pix_fmt:
            self.close()
            self._decoder, self._pix_fmt = KeptOpenDecoder(self.info, pix_fmt), pix_fmt
        return self._decoder

    def close(self) -> None:
        if self._decoder is not None:
            self._decoder.close()


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
        frames = self.video.decoder(pix_fmt).around(self.time, self.before, self.after)
        yield from (FrameBatch(frames=(frame,), index=i, number=i) for i, frame in enumerate(frames))
