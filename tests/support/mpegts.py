"""MPEG-TS in real time: pictures with bar codes, and AAC."""

import threading
import time
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
