"""Refuses requests of other sites and of strangers before anything reads them."""

from __future__ import annotations

import hmac
from hashlib import sha256
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from segmentation.sessions.status_server import is_local
from segmentation.web.problems import problem

COOKIE = "segmentation"
_OPEN = ("/healthz", "/login", "/static/")  # without the token
_SAFE = ("GET", "HEAD", "OPTIONS")
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # with none, the page's own form would come from the origin "null"
    "X-Content-Type-Options": "nosniff",
}


class Guard:
    """Checks Host, Origin and the token, and sets the headers of all answers."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        """Without a `token` only requests that name this machine are answered."""
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        try:
            refused = self._refused(scope)
        except ValueError:  # of `urlsplit`, such as for half of an IPv6 address
            refused = HTTPStatus.BAD_REQUEST, "the header Host or Origin has no address that can be read"
        answer = self._app if refused is None else _refusal(scope, *refused)
        await answer(scope, receive, send_guarded)

    def _refused(self, scope: Scope) -> tuple[HTTPStatus, str] | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._token is None and not is_local(urlsplit(f"//{host}").hostname or ""):
            return HTTPStatus.FORBIDDEN, f"host {host!r}: is not this machine"
        if scope["method"] not in _SAFE:
            origin = headers.get("origin")
            if origin is not None and urlsplit(origin).netloc != host:
                return HTTPStatus.FORBIDDEN, f"origin {origin!r}: is another site"
            if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
                return HTTPStatus.FORBIDDEN, "the request comes from another site"
        if self._token is not None and not scope["path"].startswith(_OPEN) and not _allowed(self._token, headers):
            return (
                HTTPStatus.UNAUTHORIZED,
                "the token is needed: as the header Authorization: Bearer TOKEN, or at /login",
            )
        return None


def _refusal(scope: Scope, status: HTTPStatus, detail: str) -> Response:
    """Returns the problem; somebody who opens a page without the token is led to where it is asked for."""
    opens = scope["method"] == "GET" and "text/html" in Headers(scope=scope).get("accept", "")
    if status is HTTPStatus.UNAUTHORIZED and opens:
        return RedirectResponse("/login", HTTPStatus.SEE_OTHER)
    return problem(status, detail)


def _allowed(token: str, headers: Headers) -> bool:
    kind, _, given = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return same(given.strip(), token)
    return same(cookie_parser(headers.get("cookie", "")).get(COOKIE, ""), cookie_of(token))


def cookie_of(token: str) -> str:
    """Returns the cookie's value, which does not give the token away."""
    return hmac.new(token.encode(), b"cookie of the page", sha256).hexdigest()


def same(given: str, wanted: str) -> bool:
    """Compares in constant time."""
    return hmac.compare_digest(given.encode(errors="replace"), wanted.encode())
