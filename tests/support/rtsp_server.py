"""A camera on this machine: an RTSP server whose pictures carry their number and the time as a bar code.

It can fall silent, send late, lose packets, close or reset its connections, refuse new ones, ask for a password, and
change its size and its parameter sets.
"""

import base64
import hashlib
import random
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import islice
from types import TracebackType
from typing import Any

import av
from av.video.frame import PictureType
from barcode import drawn

_SAMPLES = 8000  # a second of sound
_REPORT = struct.pack(">BBHI20x", 0x80, 200, 6, 1)  # a sender report of RTCP, RFC 3550, 6.4.1
USER, PASSWORD = "someone", "sesame"


class RtspServer:
    """Sends H.264 in FU-A over the connection of the requests. Each client gets a stream that begins with a keyframe.

    The numbers of the frames go on whatever happens to the connections. `sent` has those that were sent, whole or not.
    """

    def __init__(
        self,
        *,
        size: tuple[int, int] = (320, 240),
        fps: int = 30,
        auth: str = "",
        sound: bool = False,
        recorded: Sequence[bytes] = (),
        phase: int = 0,
        payload: int = 1400,
    ) -> None:
        """`auth` is "Basic", "Digest" or nothing.

        Instead of drawn frames, `recorded` ones are sent round and round, see `recording`, from frame `phase` on.
        With `sound`, each frame comes with G.711 (mu-law, 8 kHz) whose bytes are the frame's number modulo 256.
        `payload` is how many bytes of a frame an RTP packet takes. Drawn frames are so small that few need two packets.
        """
        self.size, self.fps, self.auth, self.sound = size, fps, auth, sound
        self.references = 1  # frames to which one may refer, as the parameter sets state
        self._recorded, self._phase, self._payload = recorded, phase, payload
        self.sent: list[int] = []
        self.slowest = 0.0  # seconds: how long a frame has waited for a client that does not read
        self.silent = threading.Event()
        self.reporting = False  # whether RTCP goes on while it is silent
        self.losing = 0.0  # share of the picture's RTP packets that get lost, as over a bad network
        self.gathering = 0.0  # seconds of frames that are sent at once, as over a congested network
        self._ended = threading.Event()
        self._begin = time.monotonic()
        self._clients: list[socket.socket] = []
        self._listener = _listener(0)
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> "RtspServer":
        self.accept()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self.refuse()
        self.hang_up()

    def url(self, user: str = "", path: str = "cam") -> str:
        return f"rtsp://{user}{'@' if user else ''}127.0.0.1:{self.port}/{path}"

    def accept(self) -> None:
        """Takes connections (again)."""
        if self._listener.fileno() < 0:
            self._listener = _listener(self.port)
        self._listener.listen()
        threading.Thread(target=self._serve, args=(self._listener,), daemon=True).start()

    def refuse(self) -> None:
        """Takes no more connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # ends `accept` of the thread
        self._listener.close()

    def hang_up(self) -> None:
        """Closes all connections in the regular way (FIN)."""
        for client in self._drop():
            with suppress(OSError):  # the client was faster
                client.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Breaks all connections (RST)."""
        for client in self._drop():
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()

    def _drop(self) -> list[socket.socket]:
        clients, self._clients = self._clients, []
        return clients

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client = listener.accept()[0]
            except OSError:
                return
            self._clients.append(client)
            threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client: socket.socket) -> None:
        encoder = _encoder(self.size, self.fps, self.references)
        requests = client.makefile("rb")
        try:
            while lines := list(iter(lambda: requests.readline().strip().decode(), "")):
                method, url, _ = lines[0].split()
                headers = dict(line.split(": ", 1) for line in lines[1:])
                sequence = headers["CSeq"]
                if not self._known(method, headers.get("Authorization", "")):
                    realm = f'{self.auth} realm="camera", nonce="5ca1ab1e"'
                    _answer(client, sequence, "401 Unauthorized", {"WWW-Authenticate": realm})
                    continue
                if not url.split("?")[0].rstrip("/").endswith(("/cam", "/track", "/sound")):
                    _answer(client, sequence, "404 Not Found", {})
                    continue
                channels = "2-3" if url.endswith("/sound") else "0-1"
                more = {"Transport": f"RTP/AVP/TCP;unicast;interleaved={channels}"} if method == "SETUP" else {}
                body = _description(encoder, self.sound) if method == "DESCRIBE" else b""
                _answer(client, sequence, "200 OK", more, body)
                if method == "PLAY":
                    self._play(client, encoder)
                    return
        except OSError:
            pass

    def _known(self, method: str, given: str) -> bool:
        """Whether a request has the password, if it needs one."""
        if not self.auth or method == "OPTIONS":
            return True
        if self.auth == "Basic":
            return given == "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        fields = dict(re.findall(r'(\w+)="([^"]*)"', given))
        inner = _md5(f"{USER}:camera:{PASSWORD}"), _md5(f"{method}:{fields.get('uri')}")
        return fields.get("response") == _md5(f"{inner[0]}:5ca1ab1e:{inner[1]}")

    def _play(self, client: socket.socket, encoder: Any) -> None:
        sequence, begun = 0, not self._recorded
        gathered, numbers = bytearray(), list[int]()  # not yet sent
        dice = random.Random(1)
        while not self._ended.is_set() and client in self._clients:
            number = int((time.monotonic() - self._begin) * self.fps) + 1
            wait = self._begin + number / self.fps - time.monotonic()
            time.sleep(max(0.0, wait))
            if self.silent.is_set():
                if self.reporting:
                    client.sendall(struct.pack(">cBH", b"$", 1, len(_REPORT)) + _REPORT)
                continue
            place = (number + self._phase) % (len(self._recorded) or 1)
            begun = begun or place == 0
            if not begun:
                continue
            data = self._recorded[place] if self._recorded else _encoded(encoder, drawn(number, self.size), number)
            begin = time.monotonic()
            for payload, last in _payloads(data, self._payload):
                header = struct.pack(">BBHII", 0x80, 96 | last << 7, sequence, number * 90_000 // self.fps, 1)
                if dice.random() >= self.losing:
                    gathered += struct.pack(">cBH", b"$", 0, len(header + payload)) + header + payload
                sequence = sequence + 1 & 0xFFFF
            if self.sound:
                first, end = (count * _SAMPLES // self.fps for count in (number, number + 1))
                header = struct.pack(">BBHII", 0x80, 0, number & 0xFFFF, first, 2)
                payload = bytes([number & 0xFF]) * (end - first)
                gathered += struct.pack(">cBH", b"$", 2, len(header + payload)) + header + payload
            numbers.append(number)
            if len(numbers) >= self.gathering * self.fps:
                client.sendall(gathered)
                self.slowest = max(self.slowest, time.monotonic() - begin)
                self.sent += numbers
                gathered, numbers = bytearray(), []


def _listener(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # clients of before may still be closing
    listener.bind(("127.0.0.1", port))
    return listener


def _encoder(size: tuple[int, int], fps: int, references: int = 1) -> Any:
    encoder: Any = av.CodecContext.create("libx264", "w")
    encoder.width, encoder.height = size
    encoder.pix_fmt, encoder.time_base, encoder.framerate = "yuv420p", Fraction(1, fps), Fraction(fps)
    encoder.options = {"preset": "ultrafast", "tune": "zerolatency", "g": str(fps), "threads": "1"}
    encoder.options |= {"refs": str(references)}
    encoder.open()
    return encoder


def _encoded(encoder: Any, frame: av.VideoFrame, number: int) -> bytes:
    frame.pts, frame.time_base = number, encoder.time_base
    frame.pict_type = PictureType.NONE  # the encoder decides anew
    return b"".join(bytes(packet) for packet in encoder.encode(frame))


def recording(path: str, size: tuple[int, int], fps: int, seconds: int = 2) -> list[bytes]:
    """The first frames of a video, scaled and encoded as the cameras do it. They begin with a keyframe."""
    encoder = _encoder(size, fps)
    with av.open(path) as container:
        frames = islice(container.decode(video=0), seconds * fps)
        return [_encoded(encoder, frame.reformat(*size, "yuv420p"), number) for number, frame in enumerate(frames)]


def _description(encoder: Any, sound: bool) -> bytes:
    sets = ",".join(base64.b64encode(unit).decode() for unit in _units(encoder.extradata or b""))
    lines = ["v=0", "o=- 0 0 IN IP4 127.0.0.1", "s=camera", "t=0 0", "m=video 0 RTP/AVP 96", "a=rtpmap:96 H264/90000"]
    lines += [f"a=fmtp:96 packetization-mode=1;sprop-parameter-sets={sets}", "a=control:track"]
    lines += ["m=audio 0 RTP/AVP 0", "a=control:sound"] if sound else []
    return "\r\n".join([*lines, ""]).encode()


def _answer(client: socket.socket, sequence: str, status: str, headers: dict[str, str], body: bytes = b"") -> None:
    given = {"CSeq": sequence, "Session": "1", "Public": "DESCRIBE, SETUP, PLAY, TEARDOWN", **headers}
    if body:
        given |= {"Content-Type": "application/sdp", "Content-Length": str(len(body))}
    lines = [f"RTSP/1.0 {status}", *(f"{name}: {value}" for name, value in given.items()), "", ""]
    client.sendall("\r\n".join(lines).encode() + body)


def _units(data: bytes) -> list[bytes]:
    """The NAL units of a byte stream."""
    return [unit for unit in re.split(b"\0\0\0?\1", data) if unit]


def _payloads(data: bytes, size: int) -> Iterator[tuple[bytes, bool]]:
    """The payloads of a frame's RTP packets (RFC 6184), of so many bytes, and whether each is the last."""
    units = _units(data)
    for unit in units:
        if len(unit) <= size:
            yield unit, unit is units[-1]
            continue
        parts = [unit[at : at + size] for at in range(1, len(unit), size)]
        for number, part in enumerate(parts):
            final = number == len(parts) - 1
            fragment = bytes([unit[0] & 0x60 | 28, unit[0] & 0x1F | (number == 0) << 7 | final << 6])  # FU-A
            yield fragment + part, final and unit is units[-1]


def _md5(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()
