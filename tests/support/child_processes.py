"""The processes that a process has started."""

import os
from contextlib import suppress
from pathlib import Path


def children(of: int | None = None, module: str = "") -> list[int]:
    """Returns the processes that a process, else this one, has started, and the dead ones that it has not waited for.

    With `module` only those that run one of that name, and no dead ones. Python's tracker of resources and
    `forked_program`, which other tests may have needed, stay until the end. The kernel's own lists of children lack
    some while others end.
    """
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_bytes()
            lasting = b"resource_tracker" in command or b"forked_program" in command
            if parent == (of or os.getpid()) and module.encode() in command and not lasting:
                found.append(int(entry.name))
    return found
