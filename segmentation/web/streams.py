"""Passes on what the process of live streams reports at its `--status` address."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from http.client import HTTPException as NoAnswer
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from segmentation.errors import ConfigError, hide_secrets, one_line, printable
from segmentation.sessions.prometheus import CONTENT_TYPE, head
from segmentation.sessions.status_server import is_local, page

_TIMEOUT = 5.0  # seconds
_LONGEST = 16 << 20  # bytes of an answer
_AT_A_TIME = 32  # requests: each may wait a second for a picture


class StreamsRelay:
    """Asks one status server, and nothing else: no path of it but these, no redirect, no proxy."""

    def __init__(self, address: str, own_port: int) -> None:
        """`address` is `HOST:PORT`, or `:PORT` of this machine, as `--status` has it. Raises `ConfigError`.

        `own_port` is the port of the page's own server, which would ask itself without end.
        """
        host, separator, port = address.removeprefix("http://").rstrip("/").rpartition(":")
        if not separator or not port.isdecimal() or not 0 < int(port) < 65536 or {"/", "@"} & set(host):
            raise ConfigError(f"streams {hide_secrets(address)!r}: write HOST:PORT or :PORT of --status, such as :9100")
        self._address = f"{host}:{port}"
        self._place = host.strip("[]") or "127.0.0.1", int(port)
        if is_local(self._place[0]) and self._place[1] == own_port:
            raise ConfigError(f"streams {self._address}: is the page's own port; give that of --status")
        self._pool = ThreadPoolExecutor(_AT_A_TIME, "segmentation-streams")

    def routes(self) -> list[Route]:
        """Returns the page at `/live`, and the paths that it reads, which are the status server's own."""
        files = [Route(path, self._page) for path in ("/live", "/streams.css", "/streams.js")]
        return [*files, Route("/streams", self._status), Route("/streams/{name}.jpg", self._picture)]

    async def metrics(self) -> str:
        """Returns the figures in Prometheus' text format, and whether the streams' process answers."""
        try:
            of_streams = (await self._get("/metrics", CONTENT_TYPE)).decode()
        except HTTPException:
            of_streams = ""
        answers = f"segmentation_streams_answer {bool(of_streams):d}"
        lines = (*head("streams_answer", "gauge", "Whether the process of the live streams answers."), answers)
        return of_streams + "".join(f"{line}\n" for line in lines)

    def close(self) -> None:
        """Waits for no answer."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _page(self, request: Request) -> Response:
        content, kind = page("/" if request.url.path == "/live" else request.url.path)
        return Response(content, media_type=kind)

    async def _status(self, request: Request) -> Response:
        kind = "application/json"
        return Response(await self._get("/streams", kind), media_type=kind)

    async def _picture(self, request: Request) -> Response:
        kind = "image/jpeg"
        name = quote(request.path_params["name"], safe="")
        return Response(await self._get(f"/streams/{name}.jpg", kind), media_type=kind)

    async def _get(self, path: str, kind: str) -> bytes:
        try:
            answer = await asyncio.get_running_loop().run_in_executor(self._pool, self._ask, path)
        except (OSError, NoAnswer, UnicodeError) as exc:
            raise HTTPException(502, f"streams {self._address}: does not answer ({one_line(exc)})") from exc
        status, given, body = answer
        if status != 200:
            raise HTTPException(status if status in (404, 503) else 502, self._reason(status, body))
        if given != kind or len(body) > _LONGEST:
            raise HTTPException(502, f"streams {self._address}: is not the --status of live streams")
        return body

    def _ask(self, path: str) -> tuple[int, str | None, bytes]:
        connection = HTTPConnection(*self._place, timeout=_TIMEOUT)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type"), answer.read(_LONGEST + 1)
        finally:
            connection.close()

    def _reason(self, status: int, body: bytes) -> str:
        try:
            text = printable(str(json.loads(body)["error"]))
        except (ValueError, TypeError, KeyError, RecursionError):
            text = f"answers {status}"
        return f"streams {self._address}: {text}"
