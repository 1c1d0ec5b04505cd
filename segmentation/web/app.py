"""The routes of `segmentation serve`: the page, the API, and the figures for machines that watch it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import asdict, dataclass
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from secrets import token_hex
from typing import cast, get_args

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Match, Route

from segmentation.errors import ConfigError, OutputError, SegmentationError, hide_secrets, reported
from segmentation.frames.source import is_url
from segmentation.sessions.prometheus import CONTENT_TYPE, head, labels
from segmentation.web.events import Changes
from segmentation.web.guard import COOKIE, Guard, cookie_of, same
from segmentation.web.job_json import job_json
from segmentation.web.openapi import openapi
from segmentation.web.options import command, parsed
from segmentation.web.preview import View
from segmentation.web.preview_process import PreviewProcess
from segmentation.web.problems import problem, status_of
from segmentation.web.runner import JobRunner
from segmentation.web.shown import FILES, ShownInputs
from segmentation.web.store import QueuedJob, Store
from segmentation.web.streams import StreamsRelay
from segmentation.web.upload import Upload, leave_out_rest
from segmentation.web.watch import WatchedFolder
from segmentation.web.webhooks import Webhooks

_STATIC = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_WIDEST = 3840  # pixels of a frame that is asked for
# Fields of requests, beside `file`.
_OF_FRAMES = ("options", "project", "source", "time", "view", "width")
_OF_JOBS = ("options", "project", "source", "webhook")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Holds the parts that the routes work with."""

    store: Store
    runner: JobRunner
    webhooks: Webhooks
    watched: WatchedFolder | None
    previews: PreviewProcess
    changes: Changes
    shown: ShownInputs
    streams: StreamsRelay | None
    token: str | None
    longest_upload: int  # bytes


def make_app(server: Server) -> Starlette:
    """Returns the application. It runs the queue while it is up."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        server.changes.attach(asyncio.get_running_loop())
        with server.webhooks, server.runner, server.watched or nullcontext():
            yield
        if server.streams is not None:
            server.streams.close()
        server.previews.close()
        server.store.close()

    api = _Api(server)
    routes = [
        Route("/", api.page),
        Route("/static/{name}", api.static),
        Route("/login", api.login, methods=["GET", "POST"]),
        Route("/healthz", api.health),
        Route("/readyz", api.ready),
        Route("/metrics", api.metrics),
        Route("/api/openapi.json", api.openapi),
        Route("/api/inputs", api.inputs),
        Route("/api/inputs", api.add_input, methods=["POST"]),
        Route("/api/inputs/{id:path}", api.input),
        Route("/api/inputs/{id:path}", api.remove_input, methods=["DELETE"]),
        Route("/api/frames", api.frame, methods=["POST"]),
        Route("/api/masks", api.mask, methods=["POST"]),
        Route("/api/command", api.command, methods=["POST"]),
        Route("/api/events", api.all_events),
        Route("/api/jobs", api.jobs),
        Route("/api/jobs", api.add_job, methods=["POST"]),
        Route("/api/jobs/{id}", api.job),
        Route("/api/jobs/{id}", api.remove_job, methods=["DELETE"]),
        Route("/api/jobs/{id}/events", api.events),
        Route("/api/jobs/{id}/output", api.output),
        *(() if server.streams is None else server.streams.routes()),
    ]
    handlers = {SegmentationError: _failed, HTTPException: _refused, Exception: _failed}
    guard = Middleware(Guard, token=server.token)
    return Starlette(routes=routes, middleware=[guard], exception_handlers=handlers, lifespan=lifespan)


def metrics(jobs: Mapping[str, int], previews: int) -> Iterator[str]:
    """Yields figures as the lines of Prometheus' text format: of jobs by their state, and of frames and masks."""
    yield from head("jobs", "gauge", "Jobs by their state.")
    for state, count in jobs.items():
        yield f"segmentation_jobs{labels(state=state)} {count}"
    yield from head("previews_total", "counter", "Frames and masks that were asked for and rendered.")
    yield f"segmentation_previews_total {previews}"


class _Api:
    """Answers requests. Errors are raised, and become problems."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._turn = asyncio.Lock()  # of a frame: those that nobody waits for any more are left out

    async def page(self, request: Request) -> Response:
        page = _file("index.html")
        if self._server.streams is not None:
            page = page.replace(b'href="/live" hidden', b'href="/live"')
        return Response(page, media_type="text/html")

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if (kind := _STATIC.get(name.rpartition(".")[2])) is None or "/" in name:
            raise HTTPException(404)
        return _static(name, kind)

    async def login(self, request: Request) -> Response:
        if request.method != "POST":
            return _static("login.html", "text/html")
        token = self._server.token
        with self._server.store.new_folder("inputs", keep=False) as folder:
            given = (await Upload(folder, 0, ("token",)).read(request)).fields.get("token", "")
        if token is None or not same(given, token):
            raise HTTPException(403, "the token is another")
        answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        secure = request.headers.get("x-forwarded-proto", request.url.scheme) == "https"
        answer.set_cookie(COOKIE, cookie_of(token), httponly=True, samesite="strict", secure=secure)
        return answer

    async def health(self, request: Request) -> Response:
        return PlainTextResponse("alive\n")

    async def ready(self, request: Request) -> Response:
        try:
            counts = self._server.store.counts()
        except OutputError as exc:
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, str(exc))
        if why := self._server.runner.refusal():
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, why)
        return JSONResponse(counts)

    async def metrics(self, request: Request) -> Response:
        lines = metrics(self._server.store.counts(), self._server.previews.rendered)
        of_streams = "" if self._server.streams is None else await self._server.streams.metrics()
        return Response("".join(f"{line}\n" for line in lines) + of_streams, media_type=CONTENT_TYPE)

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(openapi())

    async def inputs(self, request: Request) -> Response:
        return JSONResponse([{"id": one.id, "name": one.name} for one in self._server.shown.all()])

    async def add_input(self, request: Request) -> Response:
        with self._server.store.new_folder("inputs") as folder:
            upload = await Upload(folder, self._server.longest_upload, ()).read(request)
            about = await asyncio.to_thread(self._server.previews.about, upload.stored())
            one = self._server.store.add_input(upload.stored())
        return JSONResponse({"id": one.id, "name": one.name, **asdict(about)}, HTTPStatus.CREATED)

    async def input(self, request: Request) -> Response:
        one = self._server.shown.find(request.path_params["id"])
        about = await asyncio.to_thread(self._server.previews.about, one)
        return JSONResponse({"id": one.id, "name": one.name, **asdict(about)})

    async def remove_input(self, request: Request) -> Response:
        one = self._server.shown.find(request.path_params["id"])
        if one.id.startswith(FILES):
            raise HTTPException(403, f"{one.name}: is a file of the server's folder, and no upload; it stays")
        if self._server.store.in_use(one.path):
            raise HTTPException(409, f"{one.name}: a job reads it; cancel the job first")
        self._server.store.forget_input(one.id)
        return Response(status_code=204)

    async def frame(self, request: Request) -> Response:
        with self._server.store.new_folder("inputs", keep=False) as folder:
            upload = await Upload(folder, self._server.longest_upload, _OF_FRAMES).read(request)
            fields = upload.fields
            view = fields.get("view", "result")
            if view not in get_args(View):
                raise ConfigError(f"view {view!r}: choose {', '.join(get_args(View))}")
            source = upload.stored() if upload.path else self._server.shown.find(fields.get("source", ""))
            arguments = (
                source,
                _number(fields, "time", 0.0, 1e9),
                cast(View, view),
                parsed(fields.get("options", "")),
                int(_number(fields, "width", 1280, _WIDEST, least=16)),
                fields.get("project", ""),
            )
            async with self._turn:
                if await request.is_disconnected():  # such as where a slider has moved on
                    return Response(status_code=204)
                picture = await asyncio.to_thread(self._server.previews.frame, *arguments)
        return Response(picture, media_type="image/png" if view == "correction" else "image/jpeg")

    async def mask(self, request: Request) -> Response:
        with self._server.store.new_folder("inputs", keep=False) as folder:
            upload = await Upload(folder, self._server.longest_upload, ("options",)).read(request)
            picture = await asyncio.to_thread(
                self._server.previews.mask, upload.stored(), parsed(upload.fields.get("options", ""))
            )
        return Response(picture, media_type="image/png")

    async def command(self, request: Request) -> Response:
        with self._server.store.new_folder("inputs", keep=False) as folder:
            fields = (await Upload(folder, 0, ("name", "options", "project")).read(request)).fields
        options = dict(parsed(fields.get("options", "")))
        if fields.get("project"):
            options["project"] = fields["project"]
        return JSONResponse({"command": command(fields.get("name", "input.mp4"), options)})

    async def jobs(self, request: Request) -> Response:
        return JSONResponse([job_json(job) for job in self._server.store.jobs()])

    async def add_job(self, request: Request) -> Response:
        store = self._server.store
        if why := self._server.runner.refusal():
            await leave_out_rest(request)
            raise HTTPException(503, why)
        with store.new_folder("inputs") as folder:
            upload = await Upload(folder, self._server.longest_upload, _OF_JOBS).read(request)
            options = parsed(upload.fields.get("options", ""))
            webhook = self._server.webhooks.checked(upload.fields.get("webhook", ""))
            source = upload.fields.get("source", "")
            if upload.path is not None:
                one = store.add_input(upload.stored())
                name, source = one.name, one.path
            else:
                folder.rmdir()
                if is_url(source):
                    name = hide_secrets(source).partition("?")[0].rstrip("/").rpartition("/")[2]
                else:
                    one = self._server.shown.find(source)
                    name, source = one.name, one.path
            id = token_hex(8)
            given = dict(options) | store.write_project(id, upload.fields.get("project", ""))
            job = QueuedJob(id, name, source, given, webhook=webhook)
            store.add(job)
        self._server.runner.wake()
        return JSONResponse({"id": job.id}, 202, headers={"Location": f"/api/jobs/{job.id}"})

    async def job(self, request: Request) -> Response:
        return JSONResponse(job_json(self._job(request)))

    async def remove_job(self, request: Request) -> Response:
        """Cancels a job that is not over; removes one that is."""
        job = self._job(request)
        if not self._server.runner.cancel(job.id):
            self._server.store.forget(job.id)
        return Response(status_code=204)

    async def output(self, request: Request) -> Response:
        job = self._job(request)
        path = self._server.store.output(job)
        if path is None or not path.is_file():
            raise HTTPException(404, f"{job.id}: has no output; its state is {job.state}")
        return FileResponse(path, filename=path.name, media_type=_media_type(path.name))

    async def events(self, request: Request) -> Response:
        id = self._job(request).id

        def now() -> tuple[object, bool]:
            job = self._server.store.job(id)
            return None if job is None else job_json(job), job is None or job.over

        return _stream(self._server.changes.follow(now))

    async def all_events(self, request: Request) -> Response:
        return _stream(
            self._server.changes.follow(lambda: ([job_json(job) for job in self._server.store.jobs()], False))
        )

    def _job(self, request: Request) -> QueuedJob:
        job = self._server.store.job(request.path_params["id"])
        if job is None:
            raise HTTPException(404, f"{request.path_params['id']}: no such job")
        return job


def _stream(events: AsyncIterator[str]) -> Response:
    return StreamingResponse(events, media_type="text/event-stream")


def _static(name: str, kind: str) -> Response:
    return Response(_file(name), media_type=kind)


def _file(name: str) -> bytes:
    file = files(__package__).joinpath("static", name)
    if not file.is_file():
        raise HTTPException(404)
    return file.read_bytes()


def _number(fields: dict[str, str], name: str, default: float, most: float, least: float = 0.0) -> float:
    """Returns a field's number, `default` without the field. Raises `ConfigError`."""
    text = fields.get(name, str(default))
    try:
        if least <= (value := float(text)) <= most:
            return value
    except ValueError:
        pass
    raise ConfigError(f"{name} {text!r}: must be a number, {least:g} to {most:g}")


def _media_type(name: str) -> str:
    """Returns the type of an output; what is not a picture or a video has none that a browser shows."""
    kinds = {".mp4": "video/mp4", ".mov": "video/quicktime", ".mkv": "video/x-matroska", ".webm": "video/webm"}
    kinds |= {".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".png": "image/png", ".webp": "image/webp"}
    kinds |= {".gif": "image/gif"}
    return kinds.get(Path(name).suffix.lower(), "application/octet-stream")


async def _failed(request: Request, exc: Exception) -> Response:
    error = reported(exc)
    return problem(status_of(error), str(error))


async def _refused(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    answer = problem(HTTPStatus(exc.status_code), exc.detail)
    if exc.status_code == HTTPStatus.METHOD_NOT_ALLOWED:  # several routes may have the path
        routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
        answer.headers["Allow"] = ", ".join(sorted({method for route in routes for method in route.methods}))
    return answer
