"""Messages to systemd, where it has started this process as a service with `Type=notify`."""

from __future__ import annotations

import logging
import os
import socket

log = logging.getLogger(__name__)


def notify(state: str) -> None:
    """Sends a state such as `READY=1` to the socket that `NOTIFY_SOCKET` names, if it is set (sd_notify(3)).

    A manager that can't be reached is no reason to end a run.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # in Linux' abstract namespace
        address = f"\0{address[1:]}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.connect(address)
            manager.sendall(state.encode())
    except OSError as exc:
        log.warning("NOTIFY_SOCKET: takes no %s (%s)", state, exc)
