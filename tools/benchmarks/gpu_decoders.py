"""What a GPU's NVDEC engines can do: decoders that know nothing of each other and keep no frame."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import threading
import time
from itertools import count
from types import TracebackType
from typing import Any

import PyNvVideoCodec as nvc
import torch
from av.packet import Packet
from cuda.core import Device

from segmentation.frames import VideoInfo
from segmentation.stages.decode.chunk_decoder import LEAST_CHUNK
from segmentation.stages.decode.chunks import exact_keyframe, read
from segmentation.stages.decode.nvdec_support import NVDEC_CODECS

_POLL = 0.001  # seconds between looks at how far they are


class Independent:
    """Decoders at work on a file's runs, again and again, until the context is left. Entering it waits until all have
    begun. Packets are read beforehand; the file's groups of pictures have to be closed."""

    def __init__(self, info: VideoInfo, decoders: int) -> None:
        self._codec = getattr(nvc.cudaVideoCodec, NVDEC_CODECS[info.codec])
        self._runs: list[list[Packet[Any]]] = []
        begins = exact_keyframe(info.codec)
        for packet in read(info, None):
            if not self._runs or (len(self._runs[-1]) >= LEAST_CHUNK and begins(packet)):
                self._runs.append([])
            self._runs[-1].append(packet)
        self._turns = count()
        self._decoded = [0] * decoders  # frames, by decoder
        self._errors: list[BaseException] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._guard, args=(i,), daemon=True) for i in range(decoders)]

    def __enter__(self) -> Independent:
        for thread in self._threads:
            thread.start()
        while not all(self._decoded):
            self._wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def decode(self, frames: int) -> int:
        """Waits until `frames` more have come out, or a few more than that: returns how many."""
        begin = sum(self._decoded)
        while sum(self._decoded) < begin + frames:
            self._wait()
        return sum(self._decoded) - begin

    def _wait(self) -> None:
        if self._errors:
            raise self._errors[0]
        time.sleep(_POLL)

    def _guard(self, index: int) -> None:
        try:
            self._work(index)
        except BaseException as exc:  # raised again where somebody waits
            self._errors.append(exc)

    def _work(self, index: int) -> None:
        torch.cuda.set_device(0)
        Device(0).set_current()
        stream = torch.cuda.Stream()  # kept: its handle does not keep it
        handle = stream.cuda_stream
        decoder = nvc.CreateDecoder(gpuid=0, codec=self._codec, cudastream=handle, usedevicememory=True)
        while not self._over.is_set():
            run = self._runs[next(self._turns) % len(self._runs)]
            before = self._decoded[index]
            for packet in run:
                if self._over.is_set():
                    return
                data = nvc.PacketData()
                data.bsl_data, data.bsl, data.pts = packet.buffer_ptr, packet.buffer_size, packet.pts or 0
                self._decoded[index] += len(decoder.Decode(data))
            self._decoded[index] += len(decoder.Decode(nvc.PacketData()))  # an empty one: what it still holds
            if self._decoded[index] - before != len(run):
                raise RuntimeError(f"{len(run)} packets gave {self._decoded[index] - before} frames")
