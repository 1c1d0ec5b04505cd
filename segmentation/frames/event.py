"""The point in a GPU's work at which the pictures of a batch are there."""

from typing import Protocol


class Event(Protocol):
    """A CUDA event, as batches carry it; `gpu.driver` makes them."""

    def wait(self, stream: int) -> None:
        """Makes work that is queued on the stream from now on wait for the event."""

    def synchronize(self) -> None:
        """Blocks the calling thread until the event has passed."""
