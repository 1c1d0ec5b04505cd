"""Answers over HTTP that don't end."""

import socket

import pytest

from segmentation.media.timed_response import TimedResponse


def test_an_answer_whose_bytes_are_always_there_ends_at_its_deadline() -> None:
    server, client = socket.socketpair()
    with server, client:
        server.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000 + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        client.settimeout(1e-6)  # seconds: has passed before the first byte is read
        with pytest.raises(TimeoutError):
            TimedResponse(client).begin()
        client.settimeout(240)
        with TimedResponse(client) as answer:
            answer.begin()
            assert answer.status == 200
