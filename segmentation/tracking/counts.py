"""The counts of a run over lines and in zones: `--count`."""

from fractions import Fraction

from segmentation.frames import VideoInfo
from segmentation.frames.sinks import FinishedBatch, Sink
from segmentation.options.config import Config
from segmentation.options.instances import CountPlace
from segmentation.tracking.counting import Counter, Counts


class CountSink(Sink):
    """Counts the instances of each batch. It comes before the sinks that read its counts."""

    def __init__(self, info: VideoInfo, config: Config) -> None:
        self._counter = Counter([CountPlace.parse(text) for text in config.count], info.upright_size)
        self.latest: list[Counts] = []  # up to each frame of the last batch
        self.total: Counts = {}  # up to the last frame

    def write(self, batch: FinishedBatch) -> None:
        if batch.frames.repeated:  # while a live source is lost, nobody is known to have left
            return
        self.latest = [self._counter.update(frame) for frame in batch.instances]
        self.total = self.latest[-1]

    def finish(self, end: Fraction | None, *, fragment: bool = False) -> None:
        """Does nothing: the report has the counts."""
