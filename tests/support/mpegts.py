"""MPEG-TS: in real time, pictures with bar codes and AAC; and files changed packet by packet (ISO/IEC 13818-1)."""

import threading
import time
from collections.abc import Container
from fractions import Fraction
from typing import Any

import av
import barcode
import numpy as np

FPS = 30


def send(to: Any, ended: threading.Event) -> None:
    """Writes to an address or a file until `ended`. Each second of the sound is silent but for its first tenth."""
    with av.open(to, "w", format="mpegts", container_options={"flush_packets": "1"}) as out:
        video: Any = out.add_stream("libx264", rate=FPS)
        video.width, video.height, video.pix_fmt = 320, 240, "yuv420p"
        video.options = {"preset": "ultrafast", "tune": "zerolatency", "g": "10"}
        audio: Any = out.add_stream("aac", rate=48_000, layout="mono")
        begin, number, samples = time.monotonic(), 0, 0
        while not ended.wait(max(0.0, begin + number / FPS - time.monotonic())):
            picture = barcode.drawn(number, (320, 240))
            picture.pts, picture.time_base = number, Fraction(1, FPS)
            out.mux(video.encode(picture))
            number += 1
            while samples * FPS < number * 48_000:
                at = np.arange(samples, samples + 1024)
                wave = np.sin(at / 10) * (at % 48_000 < 4_800) * 0.5
                frame = av.AudioFrame.from_ndarray(wave[None].astype(np.float32), "fltp", "mono")
                frame.sample_rate, frame.pts, frame.time_base = 48_000, samples, Fraction(1, 48_000)
                out.mux(audio.encode(frame))
                samples += 1024


def with_wrong_times(ts: bytes, pid: int, numbers: Container[int], seconds: float) -> bytes:
    """Returns a stream whose PES packets of these numbers, counted in their PID, state times so much later."""
    data = bytearray(ts)
    begins = [at for at in range(0, len(data), 188) if _pid(data, at) == pid and data[at + 1] & 0x40]
    for number, at in enumerate(begins):
        pes = at + 4 + (1 + data[at + 4] if data[at + 3] & 0x20 else 0)
        for field in range(pes + 9, pes + (19 if data[pes + 7] & 0x40 else 14), 5):  # pts, and dts where there is one
            if number in numbers:
                data[field : field + 5] = _later(data[field : field + 5], round(seconds * 90_000))
    return bytes(data)


def _pid(data: bytes | bytearray, at: int) -> int:
    return (data[at + 1] & 0x1F) << 8 | data[at + 2]


def _later(field: bytes | bytearray, ticks: int) -> bytes:
    """Returns a time of 33 bits, with its marks, that is so much later."""
    time = (field[0] >> 1 & 7) << 30 | field[1] << 22 | field[2] >> 1 << 15 | field[3] << 7 | field[4] >> 1
    time = (time + ticks) % (1 << 33)
    return bytes(
        [
            field[0] & 0xF1 | time >> 30 << 1,
            time >> 22 & 255,
            time >> 14 & 254 | 1,
            time >> 7 & 255,
            time << 1 & 254 | 1,
        ]
    )


def without_packet(ts: bytes, pid: int, number: int) -> bytes:
    """Returns a stream that has lost a packet of 188 bytes: the second one of the PES of this number in its PID."""
    of_pid = [at for at in range(0, len(ts), 188) if _pid(ts, at) == pid]
    begins = [n for n, at in enumerate(of_pid) if ts[at + 1] & 0x40]
    at = of_pid[begins[number] + 1]
    return ts[:at] + ts[at + 188 :]
