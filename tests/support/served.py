"""`segmentation serve` as a process, and requests to it."""

import json
import re
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from program import Program, start

TIMEOUT = 240.0  # seconds: far more than anything here takes


class Served:
    """A server on a port of its own. Use it as a context manager; the test is skipped without the extra `web`."""

    files: Path  # that it shows, where a test has named some

    def __init__(self, work: Path, *arguments: str | Path, before: str = "") -> None:
        for module in ("starlette", "uvicorn", "python_multipart"):
            pytest.importorskip(module)
        self._arguments = ["serve", "--port", "0", "--work", work, *arguments]
        self._before = before

    def __enter__(self) -> "Served":
        self.process: Program = start(*self._arguments, before=self._before)
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        address = re.search(r"http://\S+", line)
        assert address is not None, line
        self.url = address[0]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        running = self.process.poll() is None
        self.process.terminate()
        try:
            code = self.process.wait(TIMEOUT)
        finally:
            self.process.kill()
        assert code == 0 or error is not None or not running, "a signal is the usual end of a server"

    def ask(
        self, path: str, fields: dict[str, Any] | None = None, headers: dict[str, str] | None = None, method: str = ""
    ) -> tuple[int, bytes, dict[str, str]]:
        """Returns status, body and headers. `fields` go as multipart: paths as files, objects as JSON."""
        headers, data = dict(headers or {}), None
        if fields is not None:
            data, headers["Content-Type"] = multipart(fields)
        request = Request(self.url + path, data, headers, method=method or None)
        try:
            with urlopen(request, timeout=TIMEOUT) as answer:
                return answer.status, answer.read(), dict(answer.headers)
        except HTTPError as exc:
            return exc.code, exc.read(), dict(exc.headers)

    def json(self, path: str, fields: dict[str, Any] | None = None) -> Any:
        return json.loads(self.ask(path, fields)[1])

    def job(self, fields: dict[str, Any]) -> str:
        """Puts a job in the queue; returns its id."""
        status, body, _ = self.ask("api/jobs", fields)
        assert status == 202, body
        return str(json.loads(body)["id"])

    def until(self, id: str, *states: str) -> Any:
        """Waits until the job has one of the states, and returns it."""
        deadline = time.monotonic() + TIMEOUT
        while (job := self.json(f"api/jobs/{id}"))["state"] not in states:
            assert time.monotonic() < deadline, job
            time.sleep(0.05)
        return job


def multipart(fields: dict[str, Any]) -> tuple[bytes, str]:
    """Returns a body and its type."""
    boundary = uuid.uuid4().hex
    parts = []
    for name, value in fields.items():
        file = f'; filename="{value.name}"' if isinstance(value, Path) else ""
        content = value.read_bytes() if file else value if isinstance(value, str) else json.dumps(value)
        content = content if isinstance(content, bytes) else content.encode()
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'.encode()
        parts.append(head + content + b"\r\n")
    return b"".join(parts) + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"
