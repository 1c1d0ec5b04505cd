"""Clients that send a byte now and then are hung up on, whatever they have sent before."""

import asyncio

import pytest

pytest.importorskip("uvicorn")

import uvicorn
from starlette.responses import PlainTextResponse
from uvicorn.server import ServerState

from segmentation.web import serve

WHOLE = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
KINDS = {
    "a first head": (b"GET / HTTP/1.1\r\nHost: ", b""),
    "a later head": (WHOLE, b"G"),
    "the rest of a body that was refused": (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n", b""),
}


async def drips(begin: bytes, then: bytes) -> bytes:
    """Returns what a client gets that sends `begin` and `then`, and then a byte every so often, until the end."""
    config = uvicorn.Config(PlainTextResponse("answer"), log_config=None, timeout_keep_alive=3600)
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(lambda: serve._Protocol(config, state, {}), "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(begin)
        got = await reader.readuntil(b"answer") if begin.endswith(b"\r\n\r\n") else b""
        writer.write(then)
        while not reader.at_eof():
            writer.write(b"a")
            try:
                got += await asyncio.wait_for(reader.read(100), 0.01)
            except TimeoutError:
                continue
            except ConnectionError:
                break
        writer.close()
    return got


@pytest.mark.parametrize("kind", KINDS)
def test_drips_do_not_hold_a_connection(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "_PATIENCE", 0.1)
    monkeypatch.setattr(serve, "_LINGER", 0.1)
    begin, then = KINDS[kind]
    got = asyncio.run(asyncio.wait_for(drips(begin, then), 120))
    assert got == b"" or got.endswith(b"answer")
