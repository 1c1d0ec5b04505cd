"""Compares the native decoder's frames with today's: planes, times, durations, damage."""

import sys
import time
import zlib
from functools import cache
from typing import Any

import native
import torch
from common import ROOT, WAYS, Results, clip, way

from segmentation.errors import SegmentationError
from segmentation.frames import FORMATS
from segmentation.gpu.context import Gpu
from segmentation.media.opening.probe import probe
from segmentation.media.opening.stream_properties import working_format
from segmentation.options.config import Config
from segmentation.stages.decode.nvdec import NvdecDecoder
from segmentation.stages.decode.nvdec_session_pool import NvdecSessionPool

_BUDGET = float(sys.argv[1]) if len(sys.argv) > 1 else 40  # seconds


@cache
def weights(count: int) -> torch.Tensor:
    return torch.arange(count, device="cuda", dtype=torch.int64) * 2654435761 * 2 + 1


def check_sums(plane: torch.Tensor) -> list[int]:
    """Returns a number for each picture of a plane (N, h, w), of all its samples and their places."""
    rows = plane.reshape(len(plane), -1)
    if rows.shape[1] * rows.element_size() % 4:
        return [zlib.crc32(row.tobytes()) for row in rows.cpu().numpy()]
    numbers = rows.view(torch.int32).to(torch.int64)
    return [int(n) for n in (numbers * weights(numbers.shape[1])).sum(1).cpu()]


def frames(kind: Any, path: str, gpu: Gpu, pool: Any, **options: Any) -> tuple[list[Any], int]:
    """Returns pts, duration and check sums of all frames, and how many are damaged."""
    info = probe(path)
    decoder = kind(
        info, working_format(info.pix_fmt, tuple(FORMATS)), Config(batch_size=16, **options), gpu, sessions=pool
    )
    found = []
    try:
        for batch in decoder:
            with torch.cuda.stream(gpu.stream):
                sums = list(zip(*(check_sums(plane[: len(batch.frames)]) for plane in batch.planes), strict=True))
            for row, frame in enumerate(batch.frames):
                found.append((frame.pts, frame.duration, sums[row], frame.messages))
    finally:
        decoder.close()
    return found, decoder.damaged


expectations: dict[str, Any] = {}


def compared(path: str, gpu: Gpu, today: Any, pool: Any, **options: Any) -> dict[str, Any]:
    """Returns whether both agree, and where they don't."""

    def attempt(kind: Any, sessions: Any) -> Any:
        try:
            return frames(kind, path, gpu, sessions, **options)
        except SegmentationError as exc:
            return f"{type(exc).__name__}: {exc}"

    key = f"{path} {options}"
    if key not in expectations:
        expectations[key] = attempt(NvdecDecoder, today)
    expected = expectations[key]
    got = attempt(native.NativeDecoder, pool)
    if isinstance(expected, str) or isinstance(got, str):
        return {"equal": expected == got, "today": str(expected)[:160], "native": str(got)[:160]}
    (a, lost), (b, others) = expected, got
    different = [i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y]
    result: dict[str, Any] = {"equal": a == b and lost == others, "frames": len(a)}
    if not result["equal"]:
        planes = [i for i in different if a[i][2] != b[i][2]]
        times = [i for i in different if a[i][:2] != b[i][:2]]
        result |= {"native": len(b), "planes": len(planes), "times": len(times), "first": different[:3]}
        result |= {"damaged": (lost, others)}
        if times:
            result["pts"] = [(a[i][0], b[i][0]) for i in times[:4]]
    return result


def main() -> None:
    gpu, begin = Gpu(), time.perf_counter()
    ways, files = Results("parity-ways"), Results("parity")
    long = str(clip(480))
    today = NvdecSessionPool()
    for name in WAYS:
        with way(name):
            pool = NvdecSessionPool()
            ways.attempt(name, lambda pool=pool: compared(long, gpu, today, pool))
            pool.close()
    good = [name for name, found in ways.all.items() if found[0].get("equal")]
    shared = ROOT.parent / "shared"
    given = [shared / "clips" / "signing-walk.mkv", shared / "clips" / "signing-yes.mkv"]
    given += [clip(120, "hevc"), clip(90, "vp9")]
    given += [p for folder in ("corpus", "faults") for p in sorted((shared / folder).glob("*")) if p.suffix in _VIDEO]
    with way(good[0] if good else "own,sync"):
        pool = NvdecSessionPool()
        files.attempt("start", lambda: compared(long, gpu, today, pool, start=3.3, duration=7.7))
        files.attempt("batch 3", lambda: compared(str(given[0]), gpu, today, pool, max_frames=50))
        for path in given:
            if time.perf_counter() - begin > _BUDGET:
                break
            files.attempt(path.name, lambda path=path: compared(str(path), gpu, today, pool))


_VIDEO = (".mp4", ".mov", ".mkv", ".ts", ".mts", ".webm", ".avi")
main()
