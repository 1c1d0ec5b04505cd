"""The motion of a box: each of its edges at constant velocity, by a Kalman filter over real time.

The edges are filtered one by one, not center and size as is usual (SORT, Bewley et al. 2016). An edge that the
picture's border cuts off stands still. The other edge still has the speed of a person who walks in or out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from segmentation.tracking.silhouette import Edges

# Standard deviations as shares of the root of the box's area: people of any size move and change alike.
_MEASURED = 0.03  # of an edge's measurement
_ACCELERATION = 12.0  # of an edge, per second squared
_SPEED = 1.0  # of an edge that was seen once, per second
_MEMORY = 1.0  # seconds over which the mean speed is taken


class EdgeMotion:
    """Places and speeds of the four edges of a box, in pixels and pixels a second."""

    def __init__(self, edges: Edges, time: float) -> None:
        """`edges` were seen at `time`, in seconds."""
        self._time = time
        self._place = edges.copy()
        self._speed = np.zeros(4)
        self._mean_speed = np.zeros(4)
        self._covariance = _first_covariance(edges)

    def at(self, time: float) -> Edges:
        """Returns the edges as they are expected at `time`."""
        return self._place + self._speed * (time - self._time)

    def update(self, edges: Edges, time: float, doubt: float = 1.0) -> None:
        """Takes the edges that were seen at `time`, with `doubt` times the usual deviation."""
        dt, scale = time - self._time, _scale(edges)
        step = np.array([[1.0, dt], [0.0, 1.0]])
        push = np.array([dt * dt / 2, dt])
        covariance = step @ self._covariance @ step.T + push[:, None] * push * (_ACCELERATION * scale) ** 2
        gain = covariance[:, 0] / (covariance[0, 0] + (doubt * _MEASURED * scale) ** 2)
        expected = self.at(time)
        self._place = expected + gain[0] * (edges - expected)
        self._speed = self._speed + gain[1] * (edges - expected)
        self._covariance = covariance - gain[:, None] * covariance[0]
        self._time = time
        self._mean_speed = self._mean_speed + min(1.0, dt / _MEMORY) * (self._speed - self._mean_speed)

    def place(self, edges: Edges, time: float) -> None:
        """Takes the edges that were seen at `time` after guesses: the step from these says nothing of the speed."""
        self._place, self._time = edges.copy(), time
        self._covariance = _first_covariance(edges)

    def steady(self, free: NDArray[np.bool_]) -> None:
        """Gives both edges of a side the same speed, that of the side's `free` edges (4,), so that the size stays.

        Up and down it is their mean speed: who bends down and rises goes nowhere.
        """
        for (one, other), known in (((0, 2), self._speed), ((1, 3), self._mean_speed)):
            speeds = [known[edge] for edge in (one, other) if free[edge]]
            self._speed[one] = self._speed[other] = np.mean(speeds) if speeds else 0.0


def _first_covariance(edges: Edges) -> NDArray[np.float64]:
    """Returns that of place and speed, alike for all edges as they are seen together."""
    return np.diag([_MEASURED * _scale(edges), _SPEED * _scale(edges)]) ** 2


def _scale(edges: Edges) -> float:
    return float(np.sqrt(max(1.0, (edges[2] - edges[0]) * (edges[3] - edges[1]))))


def box_iou(one: Edges, other: Edges) -> NDArray[np.float64]:
    """Returns the share of the union of two boxes that both cover: of boxes (..., 4) an array (...)."""
    sides = np.maximum(np.minimum(one[..., 2:], other[..., 2:]) - np.maximum(one[..., :2], other[..., :2]), 0)
    both = sides[..., 0] * sides[..., 1]
    areas = [(box[..., 2] - box[..., 0]) * (box[..., 3] - box[..., 1]) for box in (one, other)]
    share: NDArray[np.float64] = both / np.maximum(1e-9, areas[0] + areas[1] - both)
    return share
