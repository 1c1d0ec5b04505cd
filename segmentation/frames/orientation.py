"""How stored pictures stand upright: turned by quarters, and then perhaps mirrored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from segmentation.frames.instances import Box

Sample = TypeVar("Sample", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Orientation:
    """Quarter turns counter-clockwise (0 to 3), and whether the turned picture is mirrored left to right.

    These are the eight orientations of EXIF and of display matrices.
    """

    turns: int = 0
    mirrored: bool = False

    @property
    def sideways(self) -> bool:
        """Whether rows become columns."""
        return self.turns % 2 == 1

    @property
    def inverse(self) -> Orientation:
        """The orientation that leads back."""
        return self if self.mirrored else Orientation(-self.turns % 4)

    def then(self, other: Orientation) -> Orientation:
        """Returns the orientation that does this and afterwards the `other`."""
        turns = self.turns + (-other.turns if self.mirrored else other.turns)
        return Orientation(turns % 4, self.mirrored != other.mirrored)

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Returns width and height of the upright picture from those of the stored one, or the other way round."""
        return (height, width) if self.sideways else (width, height)

    def upright(self, stored: NDArray[Sample], axes: tuple[int, int] = (0, 1)) -> NDArray[Sample]:
        """Returns a view of a stored picture that stands upright. `axes` are those of its rows and columns."""
        turned = np.rot90(stored, self.turns, axes)
        return np.flip(turned, axes[1]) if self.mirrored else turned

    def stored(self, upright: NDArray[Sample], axes: tuple[int, int] = (0, 1)) -> NDArray[Sample]:
        """Returns a view of an upright picture as it is stored."""
        return self.inverse.upright(upright, axes)

    def box(self, stored: Box) -> Box:
        """Returns where a box of the stored picture lies in the upright one, both in shares of their pictures."""
        left, top, right, bottom = stored
        for _ in range(self.turns):
            left, top, right, bottom = top, 1 - right, bottom, 1 - left
        return (1 - right, top, 1 - left, bottom) if self.mirrored else (left, top, right, bottom)


UPRIGHT = Orientation()
