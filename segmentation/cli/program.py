"""The frame of each program but `segmentation`: lines of the log on stderr, signals, and errors in one line."""

import logging
import signal
from collections.abc import Callable

from segmentation.cli.console import ConsoleHandler, fail
from segmentation.cli.signals import interrupt_on_signals
from segmentation.errors import reported


def run_program(program: str, body: Callable[[], int], *, verbose: bool = False) -> int:
    """Returns the exit code of `body`: that of its error, or of the signal that has interrupted it."""
    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(level=level, handlers=[ConsoleHandler(program)], force=True)
    with interrupt_on_signals() as received:
        try:
            return body()
        except Exception as exc:
            return fail(reported(exc), program)
        except KeyboardInterrupt:
            return received.exit_code or 128 + signal.SIGINT
