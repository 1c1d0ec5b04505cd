"""The description of the API, whose options come from `Config`."""

from __future__ import annotations

from collections.abc import Mapping

from segmentation._version import __version__
from segmentation.web.options import schema

_JOB = {
    "type": "object",
    "required": ["id", "name", "state", "frames", "expected", "error", "output", "complete"],
    "properties": {
        "id": {"type": "string"},
        "name": {"type": "string", "description": "the input's"},
        "state": {"enum": ["queued", "running", "done", "failed", "cancelled"]},
        "frames": {"type": "integer", "description": "that are done"},
        "expected": {"type": "integer", "description": "frames of the input; 0 where that is unknown"},
        "error": {"type": ["string", "null"], "description": "one line, of a job that has failed"},
        "output": {"type": ["string", "null"], "description": "name of the file"},
        "options": {"type": "object", "description": "as they were given"},
        "created": {"type": "number", "description": "seconds since 1970"},
        "ended": {"type": ["number", "null"], "description": "likewise; null until it is over"},
        "under_way": {"type": "boolean", "description": "whether it waits or runs"},
        "complete": {"type": "boolean", "description": "false where frames of the input were damaged or missing"},
        "command": {"type": "string", "description": "the command line that does the same"},
    },
}
_FILE = {"type": "string", "format": "binary"}
_SOURCE = {"type": "string", "description": "an input's id, or for jobs an http(s) address"}
_OPTIONS = {"$ref": "#/components/schemas/Options"}


def openapi() -> dict[str, object]:
    """Returns the description as OpenAPI 3.1."""
    job, input, jobs = _json("Job"), _json("Input"), _json("Job", several=True)
    project = {"type": "string", "description": "the text of a project file, whose corrections count"}
    of_jobs = {"file": _FILE, "source": _SOURCE, "options": _OPTIONS, "project": project}
    webhook = {
        "type": "string",
        "description": "an http(s) address that gets the job, as JSON by POST, when it is over",
    }
    of_frames = of_jobs | {
        "time": {"type": "number", "minimum": 0, "maximum": 1e9, "description": "seconds from the beginning"},
        "view": {"enum": ["result", "mask", "input", "correction"], "default": "result"},
        "width": {"type": "integer", "minimum": 16, "maximum": 3840, "default": 1280},
    }
    picture = _bytes("image/jpeg") | _bytes("image/png")
    name = {"type": "string", "default": "input.mp4", "description": "of the input"}
    of_command = {
        "name": name,
        "options": _OPTIONS,
        "project": project | {"description": "its file's name, where there are corrections"},
    }
    command = {"application/json": {"schema": {"type": "object", "properties": {"command": {"type": "string"}}}}}
    created = {"application/json": {"schema": {"type": "object", "properties": {"id": {"type": "string"}}}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "segmentation", "version": __version__},
        "paths": {
            "/api/inputs": {
                "get": _does("Lists uploads and the files of the folder", 200, _json("Input", several=True)),
                "post": _does("Uploads a file", 201, input, body={"file": _FILE}),
            },
            "/api/inputs/{id}": {
                "get": _does("Describes an input", 200, input, id=True),
                "delete": _does("Removes an upload", 204, id=True),
            },
            "/api/frames": {"post": _does("Renders one frame", 200, picture, body=of_frames)},
            "/api/masks": {
                "post": _does(
                    "Finds a picture's mask", 200, _bytes("image/png"), body={"file": _FILE, "options": _OPTIONS}
                )
            },
            "/api/command": {"post": _does("Writes the command line of a job", 200, command, body=of_command)},
            "/api/events": {"get": _does("Sends all jobs at each change", 200, _bytes("text/event-stream"))},
            "/api/jobs": {
                "get": _does("Lists the latest 100 jobs", 200, jobs),
                "post": _does("Puts a job in the queue", 202, created, body=of_jobs | {"webhook": webhook}),
            },
            "/api/jobs/{id}": {
                "get": _does("Describes a job", 200, job, id=True),
                "delete": _does("Cancels a job, or removes one that is over", 204, id=True),
            },
            "/api/jobs/{id}/events": {
                "get": _does("Sends the job at each change", 200, _bytes("text/event-stream"), id=True)
            },
            "/api/jobs/{id}/output": {"get": _does("Sends the output, also in ranges", 200, _bytes("*/*"), id=True)},
        },
        "components": {"schemas": _schemas(), "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
    }


def _schemas() -> dict[str, object]:
    names = {name: {"type": "string"} for name in ("id", "name")}
    numbers = {name: {"type": "number"} for name in ("width", "height", "seconds", "rate")}
    line = {"type": "string", "description": "one line: what, which value, what to do"}
    return {
        "Job": _JOB,
        "Options": schema() | {"examples": [{"effect": "blur:40", "feather": 2}]},
        "Input": {"type": "object", "required": ["id", "name"], "properties": names | numbers},
        "Problem": {
            "type": "object",
            "properties": {"title": {"type": "string"}, "status": {"type": "integer"}, "detail": line},
        },
    }


def _does(
    summary: str, status: int, content: object = None, body: Mapping[str, object] | None = None, *, id: bool = False
) -> dict[str, object]:
    """Returns an operation, whose errors are problems."""
    success = {"description": summary} | ({} if content is None else {"content": content})
    error = {"description": "one line", "content": {"application/problem+json": _of("Problem")}}
    operation: dict[str, object] = {"summary": summary, "responses": {str(status): success, "default": error}}
    if id:
        operation["parameters"] = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
    if body is not None:
        inputs = [{"required": [name]} for name in ("file", "source") if name in body]
        fields: dict[str, object] = {"type": "object", "properties": body} | ({"anyOf": inputs} if inputs else {})
        form: dict[str, dict[str, object]] = {"schema": fields, "encoding": {}}
        if "options" in body:
            form["encoding"] = {"options": {"contentType": "application/json"}}
        operation["requestBody"] = {"required": True, "content": {"multipart/form-data": form}}
    return operation


def _json(name: str, *, several: bool = False) -> dict[str, object]:
    one = _of(name)["schema"]
    return {"application/json": {"schema": {"type": "array", "items": one} if several else one}}


def _of(name: str) -> dict[str, dict[str, str]]:
    return {"schema": {"$ref": f"#/components/schemas/{name}"}}


def _bytes(kind: str) -> dict[str, object]:
    return {kind: {}}
