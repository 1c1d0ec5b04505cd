"""Addresses of live sources: cameras and streams, which can't be read again. Opens them, and says why not."""

import re
import socket
from urllib.parse import urlsplit

import av
import av.error
from av.container import InputContainer

from segmentation.access import Access
from segmentation.errors import ConfigError, hide_secrets, one_line
from segmentation.media.input import OPEN_OPTIONS

_NAMED = re.compile(r"(\w[\w.-]*)=(.+)", re.DOTALL)
_DEVICE = re.compile(r"/dev/video\d+")
_PORTS = {"rtsp": 554, "rtsps": 322, "rtmp": 1935}
# By scheme: the protocols and the formats that FFmpeg may use, so that no address leads to another kind of source.
_ALLOWED = {
    "rtsp": ("tcp", "rtsp"),
    "rtsps": ("tls,tcp", "rtsp"),
    "rtmp": ("rtmp,tcp", "flv,live_flv"),
    "srt": ("srt", "mpegts"),
    "udp": ("udp", "mpegts"),
    "rtp": ("rtp,udp", "rtp,mpegts"),
}
_ANALYSIS = 1_000_000  # microseconds of video that are read to learn which streams there are
# FFmpeg would read a second of RTSP before the first frame, to learn what the session's description says.
_AT_ONCE = {"probesize": "32", "analyzeduration": "0"}


def is_live(path: str) -> bool:
    """Returns whether `path` names a camera or a stream rather than a file: by its scheme, or as /dev/videoN.

    A name may stand before it, as in `hall=rtsp://...`.
    """
    return _is_address(split_name(path)[1])


def split_name(path: str) -> tuple[str, str]:
    """Returns name and address of `NAME=ADDRESS`, a live source. The name of any other input is empty."""
    found = _NAMED.fullmatch(path)
    return (found[1], found[2]) if found is not None and _is_address(found[2]) else ("", path)


def named(name: str, address: str) -> str:
    """Returns `NAME=ADDRESS`. Raises `ConfigError` for a name that is none, and an address that is no live source's."""
    source = f"{name}={address}"
    if not (name and is_live(address) and split_name(source) == (name, address)):
        text = "is no live source with a name; write such as hall and rtsp://camera/stream"
        raise ConfigError(f"{hide_secrets(source)}: {text}")
    return source


def source_label(path: str) -> str:
    """Returns what an input is called in messages, reports and traces: its name, or `path` without secrets."""
    name, address = split_name(path)
    return name or hide_secrets(address)


def connect(path: str, access: Access) -> InputContainer:
    """Opens a live source, within `access.stall` seconds for each step.

    Raises `OSError`, `ValueError` or an error of FFmpeg's; `fault_of` puts it in words.
    """
    limits = (access.stall, access.stall)
    scheme = _scheme(path)
    if scheme not in _ALLOWED:
        device: InputContainer = av.open(path, "r", format="v4l2", timeout=limits, **OPEN_OPTIONS)
        return device
    look_up(path, scheme)
    protocols, formats = _ALLOWED[scheme]
    path = scheme + path[len(scheme) :]  # FFmpeg knows schemes in lower case alone
    options = {"protocol_whitelist": protocols, "format_whitelist": formats, "analyzeduration": str(_ANALYSIS)}
    if scheme in ("rtsp", "rtsps"):
        # A server that answers nothing would hold FFmpeg's own reads, which PyAV's limit does not end.
        options |= {"rtsp_transport": "tcp", "timeout": str(round(access.stall * 1_000_000)), **_AT_ONCE}
    container: InputContainer = av.open(path, "r", timeout=limits, container_options=options, **OPEN_OPTIONS)
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


def _is_address(path: str) -> bool:
    return _scheme(path) in _ALLOWED or _DEVICE.fullmatch(path) is not None


def _scheme(path: str) -> str:
    """Returns the scheme of an address in lower case, empty for a file."""
    scheme, separator, _ = path.partition("://")
    return scheme.lower() if separator else ""


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
