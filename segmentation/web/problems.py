"""Errors as answers: RFC 9457's problem+json, whose `detail` is the program's one line."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import JSONResponse

from segmentation.errors import ConfigError, InputError, OutputError, SegmentationError


class TooMuch(SegmentationError):
    """A request that is larger, slower or one more than the server takes."""


def problem(status: HTTPStatus, detail: str) -> JSONResponse:
    """Returns an answer of this status."""
    content = {"type": "about:blank", "title": status.phrase, "status": status.value, "detail": detail}
    return JSONResponse(content, status, media_type="application/problem+json")


def status_of(exc: SegmentationError) -> HTTPStatus:
    """Returns the status of an error."""
    match exc:
        case ConfigError():
            return HTTPStatus.UNPROCESSABLE_ENTITY
        case InputError():
            return HTTPStatus.UNSUPPORTED_MEDIA_TYPE
        case OutputError():
            return HTTPStatus.INSUFFICIENT_STORAGE
        case TooMuch():
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    return HTTPStatus.INTERNAL_SERVER_ERROR
