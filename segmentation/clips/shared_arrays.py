"""Arrays in a GPU's memory that two processes have open: opening one takes long, and so each is opened once."""

from __future__ import annotations

from collections.abc import Sequence

import torch


class SharedArrays:
    """The arrays that one process writes and another one reads, by numbers that both have for them."""

    def __init__(self) -> None:
        self._arrays: list[torch.Tensor] = []
        self._away: set[int] = set()  # arrays that the other process reads
        self._spare: list[int] = []  # arrays to be written to again

    def spare(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor | None:
        """Takes an array of this kind that nobody reads, if there is one."""
        for place, number in enumerate(self._spare):
            if (array := self._arrays[number]).shape == tuple(shape) and array.dtype == dtype:
                del self._spare[place]
                return array
        return None

    def sent(self, array: torch.Tensor) -> tuple[int, torch.Tensor | None]:
        """Returns what the other process gives to `opened`: the number of an array, and a new array itself."""
        number = next((place for place, known in enumerate(self._arrays) if known is array), len(self._arrays))
        self._away.add(number)
        if number < len(self._arrays):
            return number, None
        self._arrays.append(array)
        return number, array

    def give_back(self, numbers: Sequence[int]) -> None:
        """Notes that the other process has read arrays."""
        self._away -= set(numbers)
        self._spare += numbers

    def take_back(self) -> None:
        """Notes that arrays which were taken, and have not been sent, will not be."""
        self._spare = [number for number in range(len(self._arrays)) if number not in self._away]

    def opened(self, number: int, array: torch.Tensor | None) -> torch.Tensor:
        """Returns the array that the other process has sent."""
        if array is not None:
            self._arrays.append(array)
        return self._arrays[number]
