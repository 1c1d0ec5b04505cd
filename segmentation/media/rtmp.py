"""RTMP servers as outputs, within limits of time: PyAV opens outputs without any, and FFmpeg would wait forever."""

import re
import socket
from collections.abc import Mapping

_VERSION = b"\x03"  # RTMP 1.0 of Adobe, 5.2.2
_HELLO = bytes(1536)  # 5.2.3: time, zero and bytes of any value


def tee_to_rtmp(address: str, options: Mapping[str, str], limit: float) -> str:
    """Returns what FFmpeg's muxer `tee` takes in place of `address`, to send FLV there.

    `tee` is the muxer that hands options on to the connection: here, to fail where the server answers nothing, or
    takes nothing, for `limit` seconds. `options` are those of the muxer of FLV.
    """
    given = {"f": "flv", **options, "rw_timeout": str(round(limit * 1_000_000)), "tcp_nodelay": "1"}
    listed = ":".join(f"{name}={value}" for name, value in given.items())
    return f"[{listed}]" + re.sub(r"([\\'|])", r"\\\1", address)


def greet(place: tuple[str, int], limit: float) -> None:
    """Returns once a server has begun to answer RTMP's handshake. Unlike FFmpeg it waits without the GIL.

    Raises `OSError` if there is no connection or no answer within `limit` seconds each, `ValueError` for another
    protocol's.
    """
    with socket.create_connection(place, limit) as connection:
        connection.sendall(_VERSION + _HELLO)
        answer = connection.recv(1)
    if answer != _VERSION:
        raise ValueError("no answer of an RTMP server")
