"""A headless Chromium that tests look at pages with, through the pipe of its DevTools protocol."""

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

_TIMEOUT = 240.0  # seconds: far more than anything here takes
_ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe")


class Browser:
    """One page. Use it as a context manager; the test is skipped where there is no Chromium."""

    def __init__(self, folder: Path, *, size: tuple[int, int] = (1280, 800), dark: bool = False) -> None:
        """`folder` keeps the browser's own files."""
        program = shutil.which("chromium")
        if program is None:
            pytest.skip("Chromium is not installed")
        (reads, self._commands), (self._answers, writes) = os.pipe(), os.pipe()
        arguments = [program, *_ARGUMENTS, f"--user-data-dir={folder}", f"--window-size={size[0]},{size[1]}"]

        def connect() -> None:  # the protocol has descriptors 3 and 4
            ends = os.dup(reads), os.dup(writes)
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self._process = subprocess.Popen(
            arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False, preexec_fn=connect
        )
        os.close(reads)
        os.close(writes)
        self._left = b""
        self._number = 0
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._of_page("Emulation.setEmulatedMedia", features=[scheme])

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._commands)  # ends it
        try:
            self._process.wait(240)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._answers)

    def open(self, url: str) -> None:
        """Loads a page, without what its scripts fetch."""
        self._of_page("Page.navigate", url=url)
        self.until("location.href !== 'about:blank' && document.readyState === 'complete'")

    def value(self, script: str) -> Any:
        """Returns what an expression of JavaScript is on the page."""
        answer = self._of_page("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, script: str, happened: Callable[[Any], bool] = bool) -> Any:
        """Waits until the value of an expression is as expected, and returns it."""
        deadline = time.monotonic() + _TIMEOUT
        while not happened(value := self.value(script)):
            assert time.monotonic() < deadline, f"{script} is {value!r}"
            time.sleep(0.05)
        return value

    def screenshot(self, path: Path) -> None:
        """Writes a picture of the page, as PNG."""
        path.write_bytes(base64.b64decode(self._of_page("Page.captureScreenshot", format="png")["data"]))

    def _of_page(self, method: str, **parameters: object) -> Any:
        return self._call(method, self._session, **parameters)

    def _call(self, method: str, session: str = "", **parameters: object) -> Any:
        self._number += 1
        of_session = {"sessionId": session} if session else {}
        message = {"id": self._number, "method": method, "params": parameters, **of_session}
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._left:
                data = os.read(self._answers, 1 << 20)
                assert data, "Chromium has ended"
                self._left += data
            answer, _, self._left = self._left.partition(b"\0")
            found = json.loads(answer)
            if found.get("id") == self._number:
                assert "error" not in found, found
                return found["result"]
