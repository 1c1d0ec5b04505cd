"""Measures decoders alone, in turn: today's, the native one in several ways, and what NVDEC can do."""

import sys
import threading
import time
from itertools import count
from typing import Any

import native
import torch
from common import WAYS, Results, Watch, clip, measured, way
from cuda.core import Device
from native_session import DROP, MAP_ONLY, NativeSession, Packets

from segmentation.frames import FORMATS
from segmentation.gpu.context import Gpu
from segmentation.media.opening.probe import probe
from segmentation.media.opening.stream_properties import working_format
from segmentation.options.config import Config
from segmentation.stages.decode.chunks import exact_keyframe, read
from segmentation.stages.decode.nvdec import NvdecDecoder
from segmentation.stages.decode.nvdec_session_pool import NvdecSessionPool
from segmentation.stages.decode.nvdec_support import nvdec_engines
from segmentation.stages.decode.stream_format import StreamFormat

_FRAMES = 4800


def ordered(kind: Any, path: str, gpu: Gpu, pool: Any) -> int:
    info, done = probe(path), 0
    decoder = kind(info, working_format(info.pix_fmt, tuple(FORMATS)), Config(batch_size=16), gpu, sessions=pool)
    for batch in decoder:
        done += len(batch)
    gpu.stream.synchronize()
    decoder.close()
    return done


def limit(runs: list[Packets], info: Any, threads: int, seconds: float = 1.5) -> dict[str, float]:
    """Returns the rate of native sessions that know nothing of each other and copy nothing."""
    shown, turns, over, errors = [0] * threads, count(), threading.Event(), []

    def work(index: int) -> None:
        try:
            torch.cuda.set_device(0)
            Device(0).set_current()
            stream = torch.cuda.Stream()
            form = StreamFormat(0, info.codec, info.width, info.height, info.pix_fmt, info.extradata, "chunks")  # type: ignore[arg-type]
            session = NativeSession(form, stream=stream.cuda_stream, kernel=0, bytes=1, subsampled=True, sync=False)
            while not over.is_set():
                shown[index] += session.decode(runs[next(turns) % len(runs)], 0, 0, False).shown
            session.decode(Packets((), (), (), ()), 0, 0, True)
            session.close()
        except BaseException as exc:
            errors.append(exc)

    made = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(threads)]
    for thread in made:
        thread.start()
    deadline = time.perf_counter() + 6
    while not all(shown) and not errors and time.perf_counter() < deadline:
        time.sleep(0.002)

    def wait() -> int:
        before = sum(shown)
        time.sleep(seconds)
        return sum(shown) - before

    result = measured(wait)
    over.set()
    for thread in made:
        thread.join(5)
    if errors:
        raise errors[0]
    return result


def runs_of(info: Any, keep: int) -> list[Packets]:
    groups: list[list[Any]] = []
    begins = exact_keyframe(info.codec)
    for packet in read(info, None):
        if not groups or (len(groups[-1]) >= 24 and begins(packet)):
            groups.append([])
        groups[-1].append(packet)
    return [Packets(g, [p.pts for p in g], list(range(len(g))), [keep] * len(g)) for g in groups]


def reading(info: Any) -> int:
    return sum(1 for _ in read(info, None))


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    gpu, results = Gpu(), Results("alone")
    path, short = str(clip(_FRAMES)), str(clip(600))
    info = probe(path)
    engines = nvdec_engines(Config(), info)
    results.attempt("reader alone", lambda: measured(lambda: reading(info)))
    for name in [*(("today", *(f"native {name}" for name in WAYS)) * rounds), "today"]:
        kind = NvdecDecoder if name == "today" else native.NativeDecoder
        with way(name.removeprefix("native ")):
            pool = NvdecSessionPool()
            results.attempt(f"(first) {name}", lambda k=kind, p=pool: measured(lambda: ordered(k, short, gpu, p)))
            before = list(native.NativeDecoder.totals)
            watch = Watch()
            with watch:
                results.attempt(name, lambda k=kind, p=pool: measured(lambda: ordered(k, path, gpu, p)))
            pool.close()
        spent = [a - b for a, b in zip(native.NativeDecoder.totals, before, strict=True)]
        results.all[name][-1] |= {"calls": spent[0], "ms_in": [round(v / 1e6) for v in spent[1:]], **watch.found()}
    probed = probe(short)
    for keep, name in ((MAP_ONLY, "mapped"), (DROP, "not mapped")):
        runs = runs_of(probed, keep)
        for threads in (engines, 2 * engines):
            results.attempt(f"limit, {threads} native, {name}", lambda r=runs, t=threads: limit(r, probed, t))

    def of_today() -> dict[str, float]:
        from gpu_decoders import Independent

        with Independent(probed, engines) as independent:
            return measured(lambda: independent.decode(4800))

    results.attempt(f"limit, {engines} of PyNvVideoCodec", of_today)


main()
