"""SRT by the program srt-live-transmit (Debian: srt-tools), since the FFmpeg of PyAV's wheels lacks it.

Each connection has a process, with SRT on its one side and MPEG-TS in a pipe on the other.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import time
from urllib.parse import urlsplit

from segmentation.errors import hide_secrets, one_line

_PADDING = b"\x47\x1f\xff\x10" + b"\xff" * 184  # a packet of MPEG-TS
_PACKET = 7 * len(_PADDING)  # bytes of a packet of SRT, so that none of MPEG-TS is torn
_HELD = 4096  # bytes that the program may hold back: it reads so many at once, and sends whole packets of SRT alone
BUFFER = 24 * _PACKET  # bytes that are best written at once
_PROGRAM = "srt-live-transmit"
_PIPE = "file://con"
_PATIENCE = 1.0  # seconds that the program gets to end
_DELIVERY = 0.5  # seconds for what was sent last, which the receiver holds back for its latency
# Where packets of video, sound or private data begin (H.222.0, table 2-22): neither tables nor padding.
_BEGINNING = re.compile(rb"\x00\x00\x01[\xbd\xc0-\xef\xfd]")
_CONNECTED = re.compile(r"SRT (?:source|target) connected|Accepted SRT source connection")
_REJECTED = re.compile(r"REJECT reported from HS processing: (.+?)(?: - not processing further)?$")
_NO_ANSWER = "no answer, or the connection was closed at once"
# Ends the program if this process is killed: at the end of its input it goes on.
_GUARD = 'read -r _ || kill "$1"'


class SrtInput:
    """A file of what comes from an address."""

    def __init__(self, address: str, stall: float) -> None:
        """A source is silent that begins no packet of video or sound for `stall` seconds, from now on.

        Raises `OSError`, or `ValueError` for an address that is none, and without the program.
        """
        _check(address, ("caller", "listener"))
        self._transmitter = _Transmitter(address, _PIPE)
        self._stall = self._left = stall

    def read(self, size: int) -> bytes:
        """Returns some bytes, none at the end. Raises `ConnectionError`, and `TimeoutError` for a silent source."""
        transmitter, begin = self._transmitter, time.monotonic()
        while not transmitter.wait_for(transmitter.output, select.POLLIN, begin + self._left):
            pass
        data = os.read(transmitter.output, size)
        if not data and not transmitter.connected:
            raise transmitter.fault()
        # Waiting counts alone: FFmpeg's decoders take their time.
        self._left = self._stall if _BEGINNING.search(data) else self._left - (time.monotonic() - begin)
        return data

    def close(self) -> None:
        self._transmitter.close()


class SrtOutput:
    """A file of what goes to an address."""

    def __init__(self, address: str, limit: float) -> None:
        """Returns once the connection stands. `limit` are the seconds for that, and for each write.

        Raises `OSError`, or `ValueError` for an address that is none, and without the program.
        """
        _check(address, ("caller",))
        self._transmitter = transmitter = _Transmitter("-buffering:1", f"-chunk:{_PACKET}", _PIPE, address)
        self._limit, deadline = limit, time.monotonic() + limit
        self._written = 0  # bytes
        try:
            while not transmitter.connected:
                if transmitter.wait_for(transmitter.input, 0, deadline):
                    raise transmitter.fault()
        except TimeoutError:
            transmitter.close()
            raise ConnectionError(_NO_ANSWER) from None
        except BaseException:
            transmitter.close()
            raise

    def write(self, data: bytes) -> int:
        """Writes all of `data`. Raises `ConnectionError` and `TimeoutError`."""
        transmitter, deadline, rest = self._transmitter, time.monotonic() + self._limit, memoryview(data)
        while rest:
            if transmitter.wait_for(transmitter.input, select.POLLOUT, deadline):
                try:
                    rest = rest[os.write(transmitter.input, rest) :]
                except BrokenPipeError:
                    raise transmitter.fault() from None
        self._written += len(data)
        return len(data)

    def close(self) -> None:
        """Waits until all has arrived, and disconnects. Raises as `write` does."""
        try:
            if self._transmitter.is_alive():
                missing = -(self._written + _HELD) % _PACKET
                self.write(_PADDING * ((_HELD + missing) // len(_PADDING)))
                time.sleep(_DELIVERY)
        finally:
            self._transmitter.close()


class _Transmitter:
    """The program, from its start to its end."""

    def __init__(self, *arguments: str) -> None:
        self.connected = False
        self._begun = ""  # a line of its messages
        self._last = ""  # line
        # In groups of their own they do not get the signals that a terminal sends to all in the foreground.
        try:
            self._process = subprocess.Popen(
                [_PROGRAM, "-a:no", *arguments],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
            )
        except FileNotFoundError:
            raise ValueError(f"needs the program {_PROGRAM} (Debian: srt-tools)") from None
        pipes = self._process.stdin, self._process.stdout, self._process.stderr
        self._pipes = [pipe for pipe in pipes if pipe is not None]
        self.input, self.output, self._messages = (pipe.fileno() for pipe in self._pipes)
        os.set_blocking(self.input, False)
        try:
            self._guard = subprocess.Popen(
                ["sh", "-c", _GUARD, "sh", str(self._process.pid)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )
        except BaseException:
            self._end()
            raise

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def wait_for(self, descriptor: int, event: int, deadline: float) -> bool:
        """Waits until the program says something, or `descriptor` is ready: then returns True.

        Raises `TimeoutError` at the deadline, and `ConnectionError` if the other side rejects the connection.
        """
        poll = select.poll()
        poll.register(descriptor, event)
        if self._messages >= 0:
            poll.register(self._messages, select.POLLIN)
        ready = dict(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
        if not ready:
            raise TimeoutError
        if self._messages in ready:
            self._listen()
        return descriptor in ready

    def _listen(self) -> None:
        """Reads the messages that are there."""
        data = os.read(self._messages, 4096)
        if not data:
            self._messages = -1
        *lines, self._begun = (self._begun + data.decode(errors="replace")).split("\n")
        for line in filter(None, lines):
            self._last = line
            self.connected = self.connected or _CONNECTED.search(line) is not None
            if rejected := _REJECTED.search(line):
                raise ConnectionError(f"the connection is rejected ({one_line(rejected[1])})")

    def fault(self) -> ConnectionError:
        """Says why the program has ended."""
        while self._messages >= 0:
            self._listen()
        code = self._process.wait()
        if code:
            text = hide_secrets(one_line(self._last.removeprefix("ERROR: ").removeprefix("error: ")))
            return ConnectionError(f"{_PROGRAM} has ended with code {code}: {text}")
        return ConnectionError("the connection is lost" if self.connected else _NO_ANSWER)

    def close(self) -> None:
        """Ends the program, which says so to the other side."""
        self._end()
        self._guard.communicate(b"\n")

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in self._pipes:
            pipe.close()


def _check(address: str, modes: tuple[str, ...]) -> None:
    """Raises `ValueError` for an address without a port, a mode that is not among `modes`, and such a passphrase."""
    place, _, query = address.partition("?")  # where `#` belongs to the value of `streamid`
    parts = urlsplit(place)
    if parts.port is None:
        raise ValueError("the address has no port; write srt://HOST:PORT")
    given = dict(option.partition("=")[::2] for option in query.split("&"))
    mode = given.get("mode", "caller" if parts.hostname else "listener")
    if mode not in modes:
        raise ValueError(f"mode={mode} is not possible here; write mode={' or mode='.join(modes)}")
    if "passphrase" in given and not 10 <= len(given["passphrase"].encode()) <= 79:
        raise ValueError("a passphrase has 10 to 79 bytes")
