"""Addresses of live sources: cameras and streams, and files that are played as such. Opens them, and says why not."""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from urllib.parse import unquote, urlsplit

import av
import av.error
from av.container import InputContainer

from segmentation.errors import InputError, one_line
from segmentation.frames.source import Source
from segmentation.live.read_limit import limits, read_limit
from segmentation.live.srt import SrtInput
from segmentation.media.opening.open_input import OPEN_OPTIONS, analysis_options, open_input
from segmentation.system.access import Access

_PORTS = {"rtsp": 554, "rtsps": 322, "rtmp": 1935}
# By scheme: the protocols and the formats that FFmpeg may use, so that no address leads to another kind of source.
_ALLOWED = {
    "rtsp": ("tcp", "rtsp"),
    "rtsps": ("tls,tcp", "rtsp"),
    "rtmp": ("rtmp,tcp", "flv,live_flv"),
    "srt": ("none", "mpegts"),  # FFmpeg reads a pipe
    "udp": ("udp", "mpegts"),
    "rtp": ("rtp,udp", "rtp,mpegts"),
}
_LIMITED = ("http", "https", "file")  # schemes of which `open_input` limits the reads
_ANALYSIS = 1_000_000  # microseconds of video that are read to learn which streams there are
# FFmpeg would read a second of RTSP before the first frame, to learn what the session's description says.
_AT_ONCE = {"probesize": "32", "analyzeduration": "0"}


@contextmanager
def connect(source: Source, access: Access) -> Iterator[InputContainer]:
    """Opens a live source, within `access.stall` seconds for each step, and closes it.

    Raises `InputError`, or `OSError`, `ValueError` or an error of FFmpeg's; `fault_of` puts those in words.
    """
    with ExitStack() as exits:
        container = exits.enter_context(_open(source, access, exits))
        if source.scheme not in _LIMITED:
            exits.enter_context(read_limit(container, access.stall))
        yield container


def _open(source: Source, access: Access, exits: ExitStack) -> InputContainer:
    """Opens a live source. `exits` get what has to be closed after it."""
    path, scheme = source.address, source.scheme
    if scheme in ("http", "https"):
        return open_input(path, access, (access.stall, access.stall))
    if scheme == "file":
        return _open_file(path, access)
    if not scheme:
        device: InputContainer = av.open(path, "r", format="v4l2", timeout=limits(access.stall), **OPEN_OPTIONS)
        return device
    look_up(path, scheme)
    path = scheme + path[len(scheme) :]  # FFmpeg knows schemes in lower case alone
    protocols, formats = _ALLOWED[scheme]
    options = {"protocol_whitelist": protocols, "format_whitelist": formats, "analyzeduration": str(_ANALYSIS)}
    if scheme in ("rtsp", "rtsps"):
        # A server that answers nothing would hold FFmpeg's own reads, which PyAV's limit does not end.
        options |= {"rtsp_transport": "tcp", "timeout": str(round(access.stall * 1_000_000)), **_AT_ONCE}
    opened = exits.enter_context(closing(SrtInput(path, access.stall))) if scheme == "srt" else path
    analysis = analysis_options(access)
    container: InputContainer = av.open(
        opened, "r", timeout=limits(access.stall), options=analysis, container_options=options, **OPEN_OPTIONS
    )
    return container


def fault_of(error: Exception, stall: float) -> str:
    """Returns the reason why a source can't be opened or read, without its address."""
    match error:
        case socket.gaierror():
            return "the host's name is not known"
        case ConnectionRefusedError():
            return "the connection is refused"
        case av.error.HTTPUnauthorizedError():
            return "user or password is missing or wrong (401)"
        case av.error.HTTPForbiddenError():
            return "access is forbidden (403)"
        case av.error.HTTPNotFoundError():
            return "there is no such stream (404)"
        case av.error.ExitError() | TimeoutError():
            return f"silent for {stall:g} s (--stall)"
        case av.error.ProtocolNotFoundError():
            return "this FFmpeg lacks the protocol"
        case av.error.InvalidDataError():
            return "sends nothing that FFmpeg can read"
        case FileNotFoundError():
            return "no such device"
        case PermissionError():
            return "may not be read; check its permissions"
    return one_line(error)


def _open_file(address: str, access: Access) -> InputContainer:
    """Opens a file, from the keyframe before `#t=SECONDS` on."""
    parts = urlsplit(address)
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise ValueError("write file:/// and the whole path of the file")
    _, _, begin = parts.fragment.partition("t=")
    path = unquote(parts.path)
    try:
        container = open_input(path, access)
    except InputError as exc:
        raise InputError(str(exc).removeprefix(f"{path}: ")) from exc
    try:
        seconds = float(begin or 0)
        if seconds:
            container.seek(round((seconds + (container.start_time or 0) / 1e6) * 1e6))
    except (ValueError, OverflowError):
        container.close()
        raise ValueError(f"begins at {begin!r}; write seconds, such as #t=12.5") from None
    return container


def look_up(path: str, scheme: str) -> None:
    """Raises `OSError` for a name that can't be resolved, which FFmpeg calls an input/output error.

    Raises `ValueError` for an address that is none.
    """
    if re.search(r"\s", path):
        raise ValueError("the address has a space or line break; write it as %20")
    parts = urlsplit(path)
    try:
        port = parts.port
    except ValueError:  # whose text has the value, which may be the beginning of a password
        raise ValueError("its port is no number; in a password write / ? # as %2F %3F %23") from None
    if parts.hostname:  # udp://:5000 has none
        socket.getaddrinfo(parts.hostname.lstrip("@"), port or _PORTS.get(scheme))
