"""Carries an interrupt, such as KeyboardInterrupt, out of callbacks of PyAV, which prints it and goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

OwnerT = TypeVar("OwnerT")
ResultT = TypeVar("ResultT")
P = ParamSpec("P")


class Interrupted(Exception):  # no error: what it carries is raised in its place
    """An interrupt within a callback."""

    def __init__(self, interrupt: BaseException) -> None:
        super().__init__()
        self.interrupt = interrupt


def carries_interrupts(
    callback: Callable[Concatenate[OwnerT, P], ResultT],
) -> Callable[Concatenate[OwnerT, P], ResultT]:
    """Lets a method that PyAV calls raise an interrupt as `Interrupted`: PyAV passes on what is an `Exception`."""

    @wraps(callback)
    def carry(owner: OwnerT, /, *args: P.args, **named: P.kwargs) -> ResultT:
        try:
            return callback(owner, *args, **named)
        except Exception:
            raise
        except BaseException as exc:
            raise Interrupted(exc) from None

    return carry


@contextmanager
def interrupts() -> Iterator[None]:
    """Raises the interrupt that a callback of PyAV has met. Stands around the calls of PyAV that call back."""
    try:
        yield
    except Interrupted as exc:
        raise exc.interrupt from None
