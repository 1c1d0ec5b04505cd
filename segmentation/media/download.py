"""Reads http(s) addresses as files. A thread fetches ahead, so that waiting ends with a signal and has a limit.

FFmpeg's own client follows redirects and playlists to any address. Here each connection's real peer is checked, after
the name was looked up, so that a name whose address changes in between leads nowhere either.
"""

from __future__ import annotations

import errno
import ipaddress
import queue
import socket
import ssl
import threading
import time
import weakref
from base64 import b64encode
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from io import BytesIO
from typing import BinaryIO, NamedTuple
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import av.error

from segmentation._version import __version__
from segmentation.access import Access
from segmentation.errors import one_line

CONNECT, STALL = 20.0, 60.0  # seconds without an answer, and without a byte
_POLL = 0.1  # seconds between looks at `Access.stop`
_CHUNK, _AHEAD = 1 << 16, 32  # bytes of a read, and reads ahead
_NEAR = 1 << 20  # bytes that are read over rather than asked for anew
_MOST_REDIRECTS = 8
_REDIRECTS = {301, 302, 303, 307, 308}
_PRINTABLE = "".join(map(chr, range(33, 127)))


class DownloadError(av.error.FFmpegError):
    """A read that failed. To decoders and muxers it is what any read of FFmpeg's that fails is."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.EIO, text)


class InterruptedDownload(DownloadError):
    """A read during which KeyboardInterrupt was raised, which can't pass through FFmpeg."""


class Files:
    """Opens what a container reads, as PyAV's `io_open`: the input itself, and what an allowed playlist names."""

    def __init__(self, name: str, access: Access) -> None:
        """`name` is the input's: an address, or the absolute path of a file."""
        self._name, self._access = name, access
        self._remote = name.startswith(("http://", "https://"))
        self._main: HttpFile | None = None
        self._failed = threading.Event()

    @property
    def beginning(self) -> bytes:
        """The first bytes of the input, if it is an address."""
        return b"" if self._main is None else self._main.beginning

    def __call__(self, url: str, flags: int, options: dict[str, str]) -> HttpFile | BinaryIO:
        if self._failed.is_set():  # PyAV prints an error that follows another
            return BytesIO()
        try:
            return self._open(url)
        except OSError as exc:
            self._failed.set()
            raise DownloadError(f"names {url}, which cannot be opened ({one_line(exc)})") from exc
        except DownloadError:
            self._failed.set()
            raise

    def _open(self, url: str) -> HttpFile | BinaryIO:
        if url != self._name and not self._access.playlists:
            raise DownloadError("names another file, which is refused")
        if url.startswith(("http://", "https://")):
            file = HttpFile(url, self._access, named=url == self._name, failed=self._failed)
            if url == self._name:
                self._main = file
            return file
        if url.startswith("crypto"):
            raise DownloadError("is an encrypted playlist, which is not supported")
        if self._remote:
            raise DownloadError("is a playlist that names something other than http(s) addresses, which is refused")
        return open(url.removeprefix("file:"), "rb")


class HttpFile:
    """An address as a file that can be read, and sought where the server sends parts. Raises `DownloadError`."""

    def __init__(self, address: str, access: Access, *, named: bool, failed: threading.Event | None = None) -> None:
        """`named`: the user wrote this very address, so that it may be a private one.

        `failed` is set by the first error. Afterwards the file seems to have ended.
        """
        self._address, self._access, self._named = address, access, named
        self._failed = failed or threading.Event()
        self.beginning = b""  # of the file
        self._position = 0
        self._rest = b""  # of the chunk under way
        self._begin(0)
        self._length = self._answer.length
        self._parts = self._answer.parts and self._length is not None

    def _begin(self, first: int) -> None:
        self._download = _Download(self._address, first, self._access, named=self._named)
        self._close = weakref.finalize(self, self._download.close)
        self._answer = self._download.answer()
        self._at = first  # position of the next byte that the download yields

    def seekable(self) -> bool:
        return self._parts

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        """Returns the new position, or FFmpeg's number of an error."""
        start = {0: 0, 1: self._position, 2: self._length or 0}[whence]
        if start + offset < 0:
            return -errno.EINVAL
        self._position = start + offset
        return self._position

    def read(self, size: int) -> bytes:
        """Returns some bytes, none at the end."""
        if self._failed.is_set():
            return b""
        try:
            return self._read(size)
        except DownloadError:
            self._failed.set()
            raise

    def _read(self, size: int) -> bytes:
        if self._length is not None and self._position >= self._length:
            return b""
        if not 0 <= self._position - self._at <= _NEAR:
            self.close()
            self._begin(self._position)
            self._rest = b""
        while not self._rest or self._at < self._position:
            self._rest = self._rest or self._download.take(STALL)
            if not self._rest:
                return b""
            passed = min(len(self._rest), self._position - self._at)
            self._rest = self._rest[passed:]
            self._at += passed
        data, self._rest = self._rest[:size], self._rest[size:]
        if not self._position:
            self.beginning = data[:1024]
        self._at += len(data)
        self._position = self._at
        return data

    def close(self) -> None:
        self._close()


class _Answer(NamedTuple):
    length: int | None  # of the whole file
    parts: bool  # whether the server sends parts of the file


class _Download:
    """One request, made and answered on a thread of its own."""

    def __init__(self, address: str, first: int, access: Access, *, named: bool) -> None:
        self._address, self._first, self._access, self._named = address, first, access, named
        self._items: queue.Queue[_Answer | bytes | DownloadError] = queue.Queue(_AHEAD)
        self._closed = threading.Event()
        self._socket: socket.socket | None = None
        threading.Thread(target=self._work, daemon=True).start()

    def answer(self) -> _Answer:
        """Waits for the server's answer."""
        answer = self._next(CONNECT, "no answer")
        assert isinstance(answer, _Answer)
        return answer

    def take(self, patience: float) -> bytes:
        """Waits for bytes; returns none at the end."""
        data = self._next(patience, "no data")
        assert isinstance(data, bytes)
        return data

    def close(self) -> None:
        self._closed.set()
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _next(self, patience: float, missing: str) -> _Answer | bytes:
        begin = time.monotonic()
        try:
            while True:
                with suppress(queue.Empty):
                    item = self._items.get(timeout=_POLL)
                    break
                if self._access.stop.is_set():
                    raise DownloadError("stopped while waiting for data")
                if time.monotonic() - begin > patience:
                    raise DownloadError(f"{missing} from {urlsplit(self._address).hostname} for {patience:g} s")
        except KeyboardInterrupt as exc:
            raise InterruptedDownload("interrupted") from exc
        if item == b"":
            self._put(item)  # for whoever asks again
        if isinstance(item, DownloadError):
            raise item
        return item

    def _put(self, item: _Answer | bytes | DownloadError) -> None:
        while not self._closed.is_set():
            with suppress(queue.Full):
                return self._items.put(item, timeout=_POLL)

    def _work(self) -> None:
        connection: HTTPConnection | None = None
        try:
            connection, response = self._follow()
            answer, left = _described(response, self._first)
            self._put(answer)
            while data := response.read1(_CHUNK):
                self._put(data)
                left = None if left is None else left - len(data)
                if self._closed.is_set():
                    return
            if left:
                raise DownloadError(f"the connection broke off {left} bytes before the end")
            self._put(b"")
        except DownloadError as exc:
            self._put(exc)
        except (OSError, HTTPException, ValueError) as exc:
            self._put(DownloadError(_reason(exc)))
        finally:
            if connection is not None:
                connection.close()

    def _follow(self) -> tuple[HTTPConnection, HTTPResponse]:
        """Asks for the file, and for that to which the answer redirects."""
        address, named = self._address, self._named
        for _ in range(_MOST_REDIRECTS + 1):
            parts = urlsplit(address)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise DownloadError("is redirected to what is no http(s) address")
            connection = self._connect(parts, named=named)
            connection.request("GET", _target(parts), headers=_headers(parts, self._first))
            response = connection.getresponse()
            place = response.getheader("Location")
            if response.status not in _REDIRECTS or not place:
                connection.sock.settimeout(STALL) if connection.sock else None
                return connection, response
            connection.close()
            address, named = urljoin(address, place), False
        raise DownloadError(f"is redirected more than {_MOST_REDIRECTS} times")

    def _connect(self, parts: SplitResult, *, named: bool) -> HTTPConnection:
        """Connects to an address's server, or to the proxy that the environment names. Refuses private addresses."""
        assert parts.hostname is not None
        host, port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
        proxy = None if proxy_bypass(host) else _proxy(parts.scheme)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        place = (host, port) if proxy is None else (proxy.hostname or "", proxy.port or 80)
        connection = kind(*place, timeout=CONNECT)
        if proxy is not None and kind is HTTPSConnection:
            connection.set_tunnel(host, port)
        try:
            connection.connect()
        except OSError as exc:
            raise DownloadError(_reason(exc, f"{place[0]}:{place[1]}")) from exc
        self._socket = connection.sock
        peer: tuple[str, int] = connection.sock.getpeername()[:2]
        if named and not self._access.named:
            self._access.named.add(peer)
        if not (self._access.private or peer in self._access.named or _is_public(peer[0])):
            connection.close()
            raise DownloadError(
                f"leads to the private address {peer[0]} ({host}), which is refused; allow it with --allow private"
            )
        return connection


def _is_public(ip: str) -> bool:
    address = ipaddress.ip_address(ip.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)  # ::ffff:10.0.0.1
    return (mapped or address).is_global and not (mapped or address).is_multicast


def _proxy(scheme: str) -> SplitResult | None:
    proxy = getproxies().get(scheme)
    return urlsplit(proxy if "://" in proxy else f"http://{proxy}") if proxy else None


def _target(parts: SplitResult) -> str:
    """Returns what is asked for: the whole address from a proxy, else path and query."""
    path = quote(parts.path or "/", safe=_PRINTABLE) + (
        f"?{quote(parts.query, safe=_PRINTABLE)}" if parts.query else ""
    )
    proxied = parts.scheme == "http" and _proxy("http") is not None and not proxy_bypass(parts.hostname or "")
    return f"http://{parts.netloc.rpartition('@')[2]}{path}" if proxied else path


def _headers(parts: SplitResult, first: int) -> dict[str, str]:
    headers = {"User-Agent": f"segmentation/{__version__}", "Range": f"bytes={first}-", "Accept": "*/*"}
    if parts.username is not None:
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = f"Basic {b64encode(secret.encode()).decode()}"
    return headers


def _described(response: HTTPResponse, first: int) -> tuple[_Answer, int | None]:
    """Returns the answer, and how many bytes are to come. Raises `DownloadError` for one without the file."""
    status = response.status
    if status not in (200, 206):
        raise DownloadError(_refusal(status))
    left = response.length
    if status == 200 and first:
        raise DownloadError("the server sends the whole file where a part was asked for")
    length = None if left is None else first + left
    ranges = status == 206 or response.getheader("Accept-Ranges", "").lower() == "bytes"
    return _Answer(length, ranges), left


def _refusal(status: int) -> str:
    phrase = f"{status} {HTTPStatus(status).phrase}" if status in HTTPStatus._value2member_map_ else str(status)
    if status in (404, 410):
        return f"no such file on the server ({phrase})"
    if status == 401:
        return f"the server asks for a user and password ({phrase}); write them as http://USER:PASSWORD@..."
    if status in (403, 407, 451):
        return f"the server refuses it ({phrase}); check the address and your permissions"
    return f"the server answers {phrase}" + ("; try again later" if status in (429, 500, 502, 503, 504) else "")


def _reason(exc: Exception, place: str = "the server") -> str:
    """Says in words what went wrong with a connection to `place`."""
    if isinstance(exc, socket.gaierror):
        return f"the name {place.rpartition(':')[0]} can't be found (DNS); check its spelling and the network"
    if isinstance(exc, ConnectionRefusedError):
        return f"{place} refuses the connection; does a server run there?"
    if isinstance(exc, TimeoutError):
        return f"no answer from {place} for {CONNECT:g} s"
    if isinstance(exc, ssl.SSLCertVerificationError):
        return f"the certificate of {place} is not valid ({exc.verify_message})"
    return f"{place}: {one_line(exc)}"
