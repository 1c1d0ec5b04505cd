"""Serves the page and the API by uvicorn."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from segmentation.errors import ConfigError, one_line
from segmentation.options.keywords import FrameOptions, Options
from segmentation.sessions.status_server import is_local
from segmentation.web.app import Server, make_app
from segmentation.web.events import Changes
from segmentation.web.preview_process import PreviewProcess
from segmentation.web.runner import JobRunner
from segmentation.web.shown import ShownInputs
from segmentation.web.store import Store
from segmentation.web.streams import StreamsRelay
from segmentation.web.watch import WatchedFolder
from segmentation.web.webhooks import Webhooks

_MOST = 256  # connections at a time
_PATIENCE = 10.0  # seconds that a client may take for the head of its first request
_LINGER = 60.0  # seconds after an answer, in which the rest of its request has to come, and the head of the next one


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to serve."""

    host: str
    port: int  # 0 for any that is free
    work: Path
    files: Path | None
    streams: str | None  # HOST:PORT of the status server of live streams
    token: str | None
    jobs: int
    workers: str | None  # of each job, as `Workers` takes them
    limits: FrameOptions  # options that hold for all jobs
    longest_upload: int  # bytes
    age: float  # seconds that results are kept
    size: int  # bytes of results and uploads
    private: bool  # whether webhooks may be private addresses
    watch: tuple[Path, Path] | None  # a folder whose files become jobs by themselves, and the one for their outputs
    watch_options: Options  # of those jobs


def serve(settings: Settings, started: Callable[[str], None]) -> None:
    """Serves until a signal comes. `started` gets the page's address. Raises `ConfigError`."""
    if settings.token is None and not is_local(settings.host):
        raise ConfigError(f"host {settings.host}: others can reach it; name a file with a token, --token-file FILE")
    if settings.files is not None and not settings.files.is_dir():
        raise ConfigError(f"files {settings.files}: is no folder")
    if settings.watch is not None:
        _check_watched(*settings.watch)
    listening = _listen(settings.host, settings.port)
    changes = Changes()
    store = Store(settings.work, changes.announce)
    webhooks = Webhooks(store, private=settings.private)
    kept = settings.age, settings.size
    runner = JobRunner(store, settings.jobs, settings.limits, *kept, webhooks.wake, settings.workers)
    watched = settings.watch and WatchedFolder(store, *settings.watch, settings.watch_options, runner.wake)
    server = Server(
        store=store,
        runner=runner,
        webhooks=webhooks,
        watched=watched,
        previews=PreviewProcess(settings.limits),
        changes=changes,
        shown=ShownInputs(store, settings.files),
        streams=None if settings.streams is None else StreamsRelay(settings.streams, settings.port),
        token=settings.token,
        longest_upload=settings.longest_upload,
    )
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it warns of each body that is none
    config = uvicorn.Config(
        make_app(server),
        http=_Protocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MOST,
        timeout_keep_alive=int(_PATIENCE),
        timeout_graceful_shutdown=1,  # streams of events have no end of their own
    )
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    _AnnouncedServer(config, lambda: started(f"http://{host}:{listening.getsockname()[1]}/")).run(sockets=[listening])


def _check_watched(folder: Path, to: Path) -> None:
    """Makes the folder for outputs. Raises `ConfigError`."""
    if not folder.is_dir():
        raise ConfigError(f"watch {folder}: is no folder")
    if to.resolve() == folder.resolve():
        raise ConfigError(f"to {to}: is the folder of --watch itself, where outputs would be inputs; name another one")
    try:
        to.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise ConfigError(f"to {to}: can't be made ({one_line(exc)})") from exc


class _AnnouncedServer(uvicorn.Server):
    """Calls `begun` once it answers requests and signals."""

    def __init__(self, config: uvicorn.Config, begun: Callable[[], None]) -> None:
        super().__init__(config)
        self._begun = begun

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._begun()


class _Protocol(H11Protocol):
    """HTTP/1.1, where a client that does not send its next request in time is hung up on.

    Each byte puts off uvicorn's own limit, so that a few drips would hold a connection for ever.
    """

    _limit: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._limit = self.loop.call_later(_PATIENCE, self._hang_up, self.cycle)

    def on_response_complete(self) -> None:
        self._limit.cancel()
        self._limit = self.loop.call_later(_LINGER, self._hang_up, self.cycle)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._limit.cancel()
        super().connection_lost(exc)

    def _hang_up(self, answered: object) -> None:
        """Closes the connection, unless another request has come since."""
        if self.cycle is answered and not self.transport.is_closing():
            self.transport.close()


def _listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens. Raises `ConfigError`."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_MOST)
    except OSError as exc:
        raise ConfigError(f"{host}:{port}: can't be listened on ({one_line(exc)}); name another --port") from exc
