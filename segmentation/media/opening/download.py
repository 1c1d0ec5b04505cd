"""Reads http(s) addresses as files. A thread fetches ahead, so that waiting ends with a signal and has a limit.

FFmpeg's own client follows redirects and playlists to any address. Here `urllib.request` makes the requests, and each
connection's real peer is checked, after the name was looked up, so that a name whose address changes in between leads
nowhere either. urllib3 and requests need subclasses for this check too, and neither reads ahead nor seeks.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import queue
import socket
import ssl
import stat
import string
import threading
import time
import weakref
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, responses
from io import BytesIO
from typing import BinaryIO
from urllib.error import URLError
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit
from urllib.request import HTTPSHandler, OpenerDirector, ProxyHandler, Request, UnknownHandler

import av.error

from segmentation._version import __version__
from segmentation.errors import one_line
from segmentation.media.opening.joined_ts import JoinedTs
from segmentation.media.timed_response import TimedResponse
from segmentation.system.access import Access
from segmentation.system.interrupts import carries_interrupts
from segmentation.system.safe_files import UNWAITED

CONNECT, STALL = 20.0, 60.0  # seconds without an answer, and without a byte
_POLL = 0.1  # seconds between looks at `Access.stop`
_CHUNK, _AHEAD = 1 << 16, 32  # bytes of a read, and reads ahead
_NEAR = 1 << 20  # bytes that are read over rather than asked for anew
_MOST_REDIRECTS = 8
_MOST_FILES = 256  # that are opened before the first packet: a playlist may name itself
_PLAYLIST = b"#EXTM3U"  # its beginning (RFC 8216, 4.3.1.1)
_VARIANT = b"#EXT-X-STREAM-INF"  # of a video, in a playlist (4.3.4.2)
_MOST_VARIANTS = 1000  # FFmpeg takes 10 kB for each, before any of them is opened
_LONGEST_PLAYLIST = 1 << 22  # bytes
_LEAST = 1 << 16  # bytes that have to come while a reader waits for `STALL` seconds: about 1 kB a second


class DownloadError(av.error.FFmpegError):
    """A read that failed. To decoders and muxers it is what any read of FFmpeg's that fails is."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.EIO, text)


class Files:
    """Opens what a container reads, as PyAV's `io_open`: the input itself, and what an allowed playlist names."""

    def __init__(self, name: str, access: Access) -> None:
        """`name` is the input's: an address, or the absolute path of a file."""
        self._name, self._access = name, access
        self._failed = threading.Event()
        self._opened = 0  # files
        self._listed = _Listed()
        self.complete = False  # the container is open, and may read as many files as it has segments
        self.beginning = b""  # of the input, if it is an address

    @carries_interrupts
    def __call__(self, url: str, flags: int, options: dict[str, str]) -> HttpFile | BinaryIO | JoinedTs:
        if self._failed.is_set():  # PyAV prints an error that follows another
            return BytesIO()
        try:
            return self._open(url)
        except BaseException:  # an interrupt too: FFmpeg would go on with the next file
            self._failed.set()
            raise

    def _open(self, url: str) -> HttpFile | BinaryIO | JoinedTs:
        if url != self._name and not self._access.playlists:
            raise DownloadError("names another file, which is refused")
        self._opened += 1
        if self.complete:  # a live playlist comes again and again
            self._listed = _Listed()
        if self._opened > _MOST_FILES and not self.complete:
            raise DownloadError(f"is a playlist that leads to more than {_MOST_FILES} files before the first frame")
        if url.startswith(("http://", "https://")):
            file = HttpFile(url, self._access, named=url == self._name, failed=self._failed, read=self._note)
            if url != self._name:
                return file
            self.beginning = file.beginning
            return JoinedTs(file)
        if url.startswith("crypto"):
            raise DownloadError("is an encrypted playlist, which is not supported")
        if self._name.startswith(("http://", "https://")):
            raise DownloadError("is a playlist that names something other than http(s) addresses, which is refused")
        try:
            local: BinaryIO = open(url.removeprefix("file:"), "rb", opener=_open_regular)  # noqa: SIM115, FFmpeg closes it
        except OSError as exc:
            raise DownloadError(f"names {url}, which cannot be opened ({one_line(exc)})") from exc
        _check_playlist(local)
        return local

    def _note(self, file: HttpFile, data: bytes) -> None:
        """Notes bytes that are read. Raises `DownloadError` where playlists are too long, together before a frame."""
        if file.beginning.startswith(_PLAYLIST):
            self._listed.add(data)


class _Listed:
    """How much playlists list, together."""

    def __init__(self) -> None:
        self._bytes = self._variants = 0
        self._rest = b""  # in which a word may have begun

    def add(self, text: bytes) -> None:
        """Counts what comes next. Raises `DownloadError` if it is too much."""
        self._bytes += len(text)
        if self._bytes > _LONGEST_PLAYLIST:
            raise DownloadError(f"is a playlist of more than {_LONGEST_PLAYLIST >> 20} MiB")
        text = self._rest + text
        self._variants += text.count(_VARIANT)
        self._rest = text[-len(_VARIANT) + 1 :]
        if self._variants > _MOST_VARIANTS:
            raise DownloadError(f"is a playlist of more than {_MOST_VARIANTS} variants")


def _check_playlist(file: BinaryIO) -> None:
    """Looks at a file's beginning, and goes back to it. Raises `DownloadError` for a playlist that is too long."""
    if file.read(len(_PLAYLIST)) == _PLAYLIST:
        try:
            _Listed().add(file.read(_LONGEST_PLAYLIST + 1))
        except DownloadError:
            file.close()
            raise
    file.seek(0)


def _open_regular(path: str, flags: int) -> int:
    """Opens a file for `open`. Raises `OSError` for a pipe or device, which may never come to an end."""
    descriptor = os.open(path, flags | UNWAITED)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "no regular file")


class HttpFile:
    """An address as a file that can be read, and sought where the server sends parts. Raises `DownloadError`."""

    def __init__(
        self,
        address: str,
        access: Access,
        *,
        named: bool,
        failed: threading.Event | None = None,
        read: Callable[[HttpFile, bytes], None] = lambda file, data: None,
    ) -> None:
        """`named`: the user wrote this very address, so that it may be a private one.

        `failed` is set by the first error. Afterwards the file seems to have ended. `read` is called with what each
        read returns, and may raise `DownloadError`.
        """
        self._ask = partial(_Download, address, access, named)
        self._failed = failed or threading.Event()
        self._note = read
        self._position = 0
        self._begin(0)
        self._length, self._parts = self._download.length, self._download.parts
        self.beginning = self._chunk[:1024]  # of the file

    def _begin(self, first: int) -> None:
        self._download = self._ask(first)
        self._close = weakref.finalize(self, self._download.closed.set)
        self._at, self._chunk = first, self._download.take()

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

    @carries_interrupts
    def read(self, size: int) -> bytes:
        """Returns some bytes, none at the end."""
        if self._failed.is_set():
            return b""
        try:
            return self._read(size)
        except BaseException:  # an interrupt too
            self._failed.set()
            raise

    def _read(self, size: int) -> bytes:
        if self._length is not None and self._position >= self._length:
            return b""
        if not 0 <= self._position - self._at <= _NEAR:
            self.close()
            self._begin(self._position)
        while self._position >= self._at + len(self._chunk):
            self._at += len(self._chunk)
            self._chunk = self._download.take()
            if not self._chunk:
                self._length = self._at
                return b""
        first = self._position - self._at
        data = self._chunk[first : first + size]
        self._position += len(data)
        self._note(self, data)
        return data

    def close(self) -> None:
        self._close()


class _Download:
    """One request, made and answered on a thread of its own."""

    def __init__(self, address: str, access: Access, named: bool, first: int) -> None:
        self._address, self._access, self._named, self._first = address, access, named, first
        self.length: int | None = None  # of the whole file
        self.parts = False  # whether the server sends parts of the file
        self._missing, self._patience = "answer", CONNECT
        self._waited, self._came = 0.0, 0  # seconds, and bytes that came meanwhile
        self._items: queue.Queue[bytes | DownloadError] = queue.Queue(_AHEAD)
        self.closed = threading.Event()
        try:
            threading.Thread(target=self._work, daemon=True).start()
        except RuntimeError as exc:
            raise DownloadError(one_line(exc)) from exc

    def take(self) -> bytes:
        """Waits for bytes; returns none at the end. Single bytes, now and then, are no data."""
        begin = time.monotonic()
        while True:
            with suppress(queue.Empty):
                item = self._items.get(timeout=_POLL)
                break
            if self._access.stop.is_set():
                raise DownloadError("stopped while waiting for data")
            if time.monotonic() - begin > self._patience:
                raise self._given_up(f"no {self._missing}")
        if isinstance(item, DownloadError):
            raise item
        self._waited += time.monotonic() - begin
        self._came += len(item)
        if self._came >= _LEAST or self._items.qsize():
            self._waited, self._came = 0.0, 0
        elif self._waited > self._patience:
            raise self._given_up(f"{self._came} bytes")
        return item

    def _given_up(self, what: str) -> DownloadError:
        return DownloadError(f"{what} from {urlsplit(self._address).hostname} for {self._patience:g} s")

    def _put(self, item: bytes | DownloadError) -> None:
        while not self.closed.is_set():
            with suppress(queue.Full):
                return self._items.put(item, timeout=_POLL)

    def _work(self) -> None:
        try:
            with self._follow() as response:
                self._describe(response)
                while not self.closed.is_set() and (data := self._read(response)):
                    self._put(data)
            if response.length:
                raise DownloadError(f"the connection broke off {response.length} bytes before the end")
            self._put(b"")
        except DownloadError as exc:
            self._put(exc)
        except (OSError, HTTPException, ValueError) as exc:
            self._put(DownloadError(_reason(exc)))

    @staticmethod
    def _read(response: TimedResponse) -> bytes:
        response.restart()
        return response.read1(_CHUNK)

    def _follow(self) -> TimedResponse:
        """Asks for the file, and for that to which the answer redirects."""
        opener, address = checked_opener(self._check), self._address
        for _ in range(_MOST_REDIRECTS + 1):
            if not is_http(address):
                begin = "is" if address == self._address else "is redirected to what is"
                raise DownloadError(f"{begin} no http(s) address")
            request = request_for(address, {"Range": f"bytes={self._first}-", "Accept": "*/*"})
            try:
                response: TimedResponse = opener.open(request, timeout=2 * STALL)  # `take` gives up before
            except URLError as exc:
                raise DownloadError(_reason(exc.reason, request.host)) from exc
            place = response.headers["Location"]
            if response.status not in (301, 302, 303, 307, 308) or not place:
                return response
            response.close()
            address = urljoin(address, place)
        raise DownloadError(f"is redirected more than {_MOST_REDIRECTS} times")

    def _check(self, connection: HTTPConnection) -> None:
        """Refuses a connection to a private address, unless it is allowed or that of the server that was named."""
        peer: tuple[str, int] = connection.sock.getpeername()[:2]
        if self._named and not self._access.named:
            self._access.named.add(peer)
        if not (self._access.private or peer in self._access.named or is_public(peer[0])):
            host = "" if connection.host == peer[0] else f" ({connection.host})"
            place = f"the private address {peer[0]}{host}"
            raise DownloadError(f"leads to {place}, which is refused; allow it with --allow private")

    def _describe(self, response: HTTPResponse) -> None:
        """Takes the file's properties from the answer. Raises `DownloadError` for an answer without the file."""
        if response.status not in (200, 206):
            raise DownloadError(_refusal(response.status))
        if response.status == 200 and self._first:
            raise DownloadError("the server sends the whole file where a part was asked for")
        if response.length is not None:
            self.length = self._first + response.length
            self.parts = response.status == 206 or response.headers.get("Accept-Ranges", "").lower() == "bytes"
        self._missing, self._patience = "data", STALL


def checked_opener(check: Callable[[HTTPConnection], None]) -> OpenerDirector:
    """Returns an opener that uses the environment's proxies, and follows no redirect.

    It calls `check` before a request is sent, where an `OSError` becomes the reason of an `URLError`.
    """

    class Connection(HTTPConnection):
        response_class = TimedResponse

        def connect(self) -> None:
            super().connect()
            check(self)

    class SecureConnection(Connection, HTTPSConnection):
        pass

    class Handler(HTTPSHandler):
        http_request = HTTPSHandler.https_request

        def http_open(self, request: Request) -> HTTPResponse:
            return self.do_open(Connection, request)

        def https_open(self, request: Request) -> HTTPResponse:
            return self.do_open(SecureConnection, request)

    opener = OpenerDirector()  # `build_opener` would follow redirects by itself, and open file: and ftp:
    for handler in (ProxyHandler(), Handler(), UnknownHandler()):
        opener.add_handler(handler)
    return opener


def is_public(ip: str) -> bool:
    """Returns whether an IP address is neither private, of this machine, link-local nor multicast."""
    address = ipaddress.ip_address(ip.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)  # ::ffff:10.0.0.1
    return (mapped or address).is_global and not (mapped or address).is_multicast


def is_http(address: str) -> bool:
    """Returns whether an address is one of http(s), with a host. Raises `ValueError` where it can't be one."""
    parts = urlsplit(address)
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def request_for(address: str, headers: Mapping[str, str], data: bytes | None = None) -> Request:
    """Returns the request for an address, with `data` a POST. User and password become a header.

    Raises `ValueError` for a host that can't be a name.
    """
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2].encode("idna").decode()
    plain = urlunsplit((parts.scheme, host, parts.path, parts.query, ""))
    request = Request(
        quote(plain, safe=string.punctuation), data, {"User-Agent": f"segmentation/{__version__}", **headers}
    )
    if parts.username is not None:
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_header("Authorization", f"Basic {b64encode(secret.encode()).decode()}")
    return request


def _refusal(status: int) -> str:
    phrase = f"{status} {responses.get(status, '')}".rstrip()
    if status in (404, 410):
        return f"no such file on the server ({phrase})"
    if status == 401:
        return f"the server asks for a user and password ({phrase}); write them as http://USER:PASSWORD@..."
    if status in (403, 407, 451):
        return f"the server refuses it ({phrase}); check the address and your permissions"
    return f"the server answers {phrase}" + ("; try again later" if status in (429, 500, 502, 503, 504) else "")


def _reason(exc: BaseException | str, place: str = "the server") -> str:
    """Says in words what went wrong with a connection to `place`."""
    if isinstance(exc, socket.gaierror):
        return f"the name {urlsplit(f'//{place}').hostname} can't be found (DNS); check its spelling and the network"
    if isinstance(exc, ConnectionRefusedError):
        return f"{place} refuses the connection; does a server run there?"
    if isinstance(exc, ssl.SSLCertVerificationError):
        return f"the certificate of {place} is not valid ({exc.verify_message})"
    return f"{place}: {one_line(exc)}"
