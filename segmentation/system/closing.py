"""Objects that a `with` statement closes."""

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Is a context manager: leaving it closes it."""

    @abstractmethod
    def close(self) -> None:
        """Frees what belongs to the object."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
