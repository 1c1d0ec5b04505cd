"""One thing over time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from segmentation.frames.instances import Instance
from segmentation.tracking.color_histograms import Histogram, mixed
from segmentation.tracking.motion import EdgeMotion
from segmentation.tracking.silhouette import Edges, Silhouette

CONFIRMED = 2  # frames in which a thing is seen before it gets an id
_CUT = 0.6  # share of the expected shape below which what was seen is a piece of it
_PATIENCE = 0.5  # seconds after which such a piece is the thing's new shape
_PARTED = 1.0  # seconds after things were together in which their colors may say that they were confused
_LATEST = 0.3  # share of the newest frame in the colors since then
_DOUBT = 3.0  # how much less the place of a part of a component says than that of a whole one


class Track:
    """A thing's last shape, its motion and its colors."""

    def __init__(self, instance: Instance, shape: Silhouette, look: Histogram | None, time: float) -> None:
        self.id = 0  # until it is confirmed
        self.label = instance.label
        self.score = instance.score
        self.shape = shape  # when it was last alone
        self.expected = shape  # the shape where it is expected in the current frame
        self.look = look  # its colors, of all frames but those since it was together with others
        self.seen = time  # seconds, when it was last seen
        self.alone = 0.0  # seconds for which it was seen as a whole
        self.hits = 1
        self.whole = time  # seconds, when it was last seen as a whole or as another shape
        self.merged = False  # whether it was a part of a component in the last frame
        self.together = float("-inf")  # seconds, when it was last so
        self.met: set[Track] = set()  # those that it may be confused with, as they were together
        self._since: Histogram | None = None  # colors since then
        self._motion = EdgeMotion(shape.edges, time)

    def expect(self, time: float, frame: tuple[int, ...], *, moving: bool) -> None:
        """Moves the expected shape to where it is at `time` in a mask of the size `frame`, if it is `moving`."""
        if not moving:
            self.expected = self.shape
            return
        edges = self.shape.edges
        change, free = (self._motion.at(time) - edges).tolist(), free_edges(edges, frame).tolist()
        free_changes = [[change[edge] for edge in (k, k + 2) if free[edge]] for k in (0, 1)]  # of two numbers: no NumPy
        right, down = (sum(some) / len(some) if some else 0.0 for some in free_changes)
        self.expected = self.shape.moved(right, down)

    @property
    def edges(self) -> Edges:
        """The edges of the expected shape."""
        return self.expected.edges

    def is_cut(self, shape: Silhouette, inside: int, time: float) -> bool:
        """Returns whether what was seen is only a piece of the thing, as networks lose arms and legs for a while.

        `inside` is the number of pixels of the expected shape in the picture.
        """
        return shape.area < _CUT * inside and time - self.whole < _PATIENCE

    def see(self, instance: Instance, shape: Silhouette, look: Histogram | None, time: float) -> None:
        """Takes what was seen of the thing alone."""
        if self.merged:
            self._motion.place(shape.edges, time)
        else:
            self._motion.update(shape.edges, time)
        self.alone += time - self.seen
        self.shape = self.expected = shape
        self.whole = time
        if look is not None:
            self._take(look, time)
        self._seen(instance, time)
        self.merged = False

    def see_part(self, instance: Instance, placed: Silhouette, frame: tuple[int, ...], time: float) -> None:
        """Takes where the thing's shape lies in a component with others."""
        self._motion.update(placed.edges, time, _DOUBT)
        self._motion.steady(free_edges(placed.edges, frame))
        self.shape = self.expected = placed
        self._seen(instance, time)
        self.hide(time)

    def hide(self, time: float) -> None:
        """Takes that the thing is a part of a component, seen or not."""
        self.merged, self.together = True, time
        self._since = None

    def since_parting(self, look: Histogram) -> Histogram:
        """Returns the colors since the thing was together with others, with `look` of the current frame."""
        return mixed(self._since, look, _LATEST)

    def _take(self, look: Histogram, time: float) -> None:
        """Takes the colors of one more frame. Until it is clear whose they are, they are kept apart."""
        if not self.met:
            self.look = mixed(self.look, look)
            return
        self._since = self.since_parting(look)
        if time - self.together > _PARTED:
            self.look, self._since = mixed(self.look, self._since, 0.5), None
            self.met.clear()

    def _seen(self, instance: Instance, time: float) -> None:
        self.score = instance.score
        self.seen = time
        self.hits += 1


def free_edges(edges: Edges, frame: tuple[int, ...]) -> NDArray[np.bool_]:
    """Returns which of the edges (4,) the border of a picture (h, w) does not cut off."""
    height, width = frame
    return np.array([edges[0] > 0, edges[1] > 0, edges[2] < width, edges[3] < height])
