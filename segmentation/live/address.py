"""Addresses of live sources: cameras and streams, and files that are played as such. Opens them, and says why not."""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import av
import av.error
from av.container import InputContainer

from segmentation.errors import ConfigError, InputError, hide_secrets, one_line
from segmentation.live.srt import SrtInput
from segmentation.media.opening.open_input import OPEN_OPTIONS, analysis_options, is_url, open_input
from segmentation.system.access import Access

_NAMED = re.compile(r"(\w[\w.-]*)=(.+)", re.DOTALL)
_DEVICE = re.compile(r"/dev/video\d+")
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
_FILE = "file"  # the scheme of files
_ANALYSIS = 1_000_000  # microseconds of video that are read to learn which streams there are
# FFmpeg would read a second of RTSP before the first frame, to learn what the session's description says.
_AT_ONCE = {"probesize": "32", "analyzeduration": "0"}


def is_live(path: str) -> bool:
    """Returns whether `path` names a camera or a stream rather than a file: by its scheme, or as /dev/videoN.

    A name may stand before it, as in `hall=rtsp://...`. HLS is live with a name alone, and else a video that is read
    from its beginning to its end. `file:///...` is played at its own speed.
    """
    name, address = split_name(path)
    return bool(name) or _is_address(address)


def is_device(path: str | Path) -> bool:
    """Returns whether `path` is a video device of Video4Linux."""
    return _DEVICE.fullmatch(str(path)) is not None


def is_paced(address: str) -> bool:
    """Returns whether a live source sends faster than its frames are shown, so that their reader has to wait."""
    return is_url(address) or is_file(address)


def is_file(address: str) -> bool:
    """Returns whether an address is that of a file of this machine."""
    return _scheme(address) == _FILE


def file_address(path: str | Path) -> str:
    """Returns the address of a file that is to be played at its own speed."""
    return f"{_FILE}://{quote(str(Path(path).absolute()))}"


def split_name(path: str) -> tuple[str, str]:
    """Returns name and address of `NAME=ADDRESS`, a live source. The name of any other input is empty."""
    found = _NAMED.fullmatch(path)
    live = found is not None and (_is_address(found[2]) or _is_hls(found[2]))
    return (found[1], found[2]) if found is not None and live else ("", path)


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


@contextmanager
def connect(path: str, access: Access) -> Iterator[InputContainer]:
    """Opens a live source, within `access.stall` seconds for each step, and closes it.

    Raises `InputError`, or `OSError`, `ValueError` or an error of FFmpeg's; `fault_of` puts those in words.
    """
    with ExitStack() as exits:
        yield exits.enter_context(_open(path, access, exits))


def _open(path: str, access: Access, exits: ExitStack) -> InputContainer:
    """Opens a live source. `exits` get what has to be closed after it."""
    limits = (access.stall, access.stall)
    scheme = _scheme(path)
    if is_url(path):
        return open_input(path, access, limits)
    if scheme == _FILE:
        return _open_file(path, access)
    if scheme not in _ALLOWED:
        device: InputContainer = av.open(path, "r", format="v4l2", timeout=limits, **OPEN_OPTIONS)
        return device
    look_up(path, scheme)
    path = scheme + path[len(scheme) :]  # FFmpeg knows schemes in lower case alone
    protocols, formats = _ALLOWED[scheme]
    options = {"protocol_whitelist": protocols, "format_whitelist": formats, "analyzeduration": str(_ANALYSIS)}
    if scheme in ("rtsp", "rtsps"):
        # A server that answers nothing would hold FFmpeg's own reads, which PyAV's limit does not end.
        options |= {"rtsp_transport": "tcp", "timeout": str(round(access.stall * 1_000_000)), **_AT_ONCE}
    source = exits.enter_context(closing(SrtInput(path, access.stall))) if scheme == "srt" else path
    analysis = analysis_options(access)
    container: InputContainer = av.open(
        source, "r", timeout=limits, options=analysis, container_options=options, **OPEN_OPTIONS
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


def _is_hls(path: str) -> bool:
    return is_url(path) and urlsplit(path).path.endswith(".m3u8")


def _is_address(path: str) -> bool:
    return _scheme(path) in (*_ALLOWED, _FILE) or is_device(path)


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
