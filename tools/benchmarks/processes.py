"""Work in a process of its own: its memory is its own, and what dies there takes nothing else with it."""

import traceback
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

LIMIT = 240  # seconds that one process may take


def in_process(module: str, work: str, *arguments: Any) -> Any:
    """What the function `work` of `module` returns in a fresh process, which alone imports it.

    Raises `RuntimeError` with what went wrong there.
    """
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(sender, module, work, arguments))
    process.start()
    sender.close()
    try:
        if not receiver.poll(LIMIT):
            raise RuntimeError(f"{work} took more than {LIMIT} s")
        done, value = receiver.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"{work} died, exit code {process.exitcode}") from None
    finally:
        process.join(10)
        process.kill()
        process.join()
    if not done:
        raise RuntimeError(value)
    return value


def _child(sender: Connection, module: str, work: str, arguments: tuple[Any, ...]) -> None:
    try:
        sender.send((True, getattr(import_module(module), work)(*arguments)))
    except BaseException:
        sender.send((False, traceback.format_exc()))
