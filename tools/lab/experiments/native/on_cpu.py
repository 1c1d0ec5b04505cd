"""Runs the native decoder on a stand-in driver, without a GPU: are all frames there, in order, with their own pixels?

    NATIVE_LIBRARY=... NATIVE_LIBCUDA=... NATIVE_LIBNVCUVID=... python on_cpu.py VIDEO...

See `build.sh FOLDER test`. Expected are PyAV's times, and samples that are the check sum of a frame's packet.
"""

import os
import sys
from typing import Any

import fakes
import native

from segmentation.frames import FORMATS
from segmentation.media.opening.probe import probe
from segmentation.media.opening.stream_properties import working_format
from segmentation.options.config import Config
from segmentation.stages.decode import nvdec
from segmentation.stages.decode.pyav import PyAVDecoder


def check_sum(data: bytes) -> int:
    return (7 + sum(data)) & 0xFF


def check(path: str, **options: Any) -> str:
    info = probe(path)
    os.environ["STAND_IN_WIDTH"], os.environ["STAND_IN_HEIGHT"] = str(info.width), str(info.height)
    config, form = Config(batch_size=16, **options), working_format(info.pix_fmt, tuple(FORMATS))
    sums = {packet.pts: check_sum(bytes(packet)) for packet in nvdec.read(info, None)}
    expected = [
        (frame.pts, frame.duration) for batch in PyAVDecoder(info, form, config, None) for frame in batch.frames
    ]
    decoder = native.NativeDecoder(info, form, config, fakes.FakeGpu())
    found, wrong, batches = [], 0, 0
    for batch in decoder:
        batches += 1
        for row, frame in enumerate(batch.frames):
            found.append((frame.pts, frame.duration))
            y, u, v = (plane[row] for plane in batch.planes)
            value = sums[frame.pts]
            good = (y == value).all() and (u == (value + 1) % 256).all() and (v == (value + 2) % 256).all()
            wrong += not good
    decoder.close()
    same = "equal" if found == expected else f"DIFFERENT ({len(expected)} expected)"
    counts = f"{len(found)} frames in {batches} batches, times {same}, {wrong} wrong, damaged {decoder.damaged}"
    return f"{path} {options}: {counts}"


for given in sys.argv[1:]:
    print(check(given))
    print(check(given, start=1.0, duration=1.0))
    print(check(given, max_frames=20))
print("calls, ms in calls:", native.NativeDecoder.totals[0], native.NativeDecoder.totals[1] // 10**6)
