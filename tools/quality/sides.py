"""The sides of compare_sides.py: each decodes a file, and finds its masks, by the program's own stages."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from segmentation import Config, SegmentationError
from segmentation.errors import BackendError
from segmentation.frames import FORMATS, Planes, VideoInfo
from segmentation.gpu.errors import gpu_errors
from segmentation.media.opening.probe import probe
from segmentation.media.opening.stream_properties import working_format
from segmentation.options.access import access_of
from segmentation.pipeline.mask_stages import make_transfer
from segmentation.pipeline.planning.implementations import IMPLEMENTATIONS, Implementation
from segmentation.pipeline.planning.plan import Plan, make_plan, with_stage
from segmentation.pipeline.resources import Resources
from segmentation.sessions.frame_iterator import masked_frames
from segmentation.stages.decode.timestamps import Timeline

NAMED = {"one-thread": "side_decoders:OneThread", "chunks": "side_decoders:InChunks"}
ON_GPU = {"gpu": None, "gpu-nvdec": "nvdec"}  # with their decoders
FFMPEG = "ffmpeg"


@dataclass(frozen=True, slots=True)
class Shown:
    """A frame that a side puts out. The digest is SHA-256 of its planes, row by row without padding."""

    pts: int
    digest: str
    planes: Planes | None  # `None` where a side has only the digest


@dataclass(slots=True)
class Outcome:
    """What a side made of a file."""

    decoder: str = ""
    fallback: str = ""  # why it is not the side's own decoder
    codec: str = ""
    frames: int = 0
    damaged: int | None = 0  # frames lost or broken; `None` if the side can't tell
    cut_short: bool = False
    refusal: str = ""
    sha256: str = ""  # of all times and digests

    _all: hashlib._Hash = field(default_factory=hashlib.sha256, repr=False)

    def count(self, shown: Shown) -> Shown:
        self.frames += 1
        self._all.update(f"{shown.pts} {shown.digest}\n".encode())
        self.sha256 = self._all.hexdigest()
        return shown


class Side:
    """Stages of this program, chosen by name: `cpu`, one of `ON_GPU`, a decoder of `NAMED`, or MODULE:CLASS."""

    def __init__(self, name: str) -> None:
        """Raises `BackendError` where the side can't run at all."""
        decoder = None
        if name != "cpu" and name not in ON_GPU:
            decoder = name
            IMPLEMENTATIONS["decode"][name] = Implementation(NAMED.get(name, name))
        self._cpu = Config(device="cpu", mode="baseline", decode="pyav", infer="onnxruntime")
        self._config = replace(self._cpu, decode=decoder or "pyav")
        if name in ON_GPU:
            self._config = Config(mode="optimized", decode=ON_GPU[name])
        self._resources = Resources(self._config)
        make_plan(self._config)

    def frames(self, path: str, outcome: Outcome) -> Iterator[Shown]:
        """Yields the frames of a file. Whatever else there is to say of them is in `outcome` afterwards."""
        try:
            with gpu_errors():
                yield from map(outcome.count, self._frames(path, outcome))
        except SegmentationError as exc:
            outcome.refusal = str(exc)

    def _frames(self, path: str, outcome: Outcome) -> Iterator[Shown]:
        info = probe(path, access_of(self._config))
        outcome.codec = info.codec
        plan, pix_fmt = self._plan(info, outcome)
        resources = self._resources
        gpu = resources.gpu if plan.decode.on_gpu else None
        if gpu is not None:
            gpu.enter()
        batch = resources.batch_size(self._config, None, on_gpu=gpu is not None, live=False)
        config = replace(self._config, batch_size=batch)
        sessions = resources.nvdec_sessions if gpu is not None else None
        decoder = plan.decode.implementation(info, pix_fmt, config, gpu, sessions=sessions)
        transfer = make_transfer(gpu, info, pix_fmt, batch)
        transfer.enter()
        try:
            for batch in decoder:
                for frame in transfer.frames(batch, "host").frames:
                    yield Shown(frame.pts, digest(frame.planes), frame.planes)
        finally:
            decoder.close()
            outcome.damaged, outcome.cut_short = decoder.damaged, decoder.cut_short

    def _plan(self, info: VideoInfo, outcome: Outcome) -> tuple[Plan, str]:
        """The plan with the side's decoder, or with PyAV's where that can't decode the video, and why."""
        pix_fmt = working_format(info.pix_fmt, tuple(FORMATS))
        try:
            plan = make_plan(self._config, info)
            outcome.fallback = plan.decode.instead_of
        except BackendError as exc:
            plan = make_plan(self._cpu, info)
            outcome.fallback = str(exc)
        if plan.decode.on_gpu and pix_fmt != info.pix_fmt.replace("yuvj", "yuv"):
            outcome.fallback = "NVDEC converts nothing"
            plan = with_stage(plan, "decode", "pyav", self._config, info)
        outcome.decoder = plan.decode.name
        return plan, pix_fmt

    def masks(self, path: str, most: int) -> Generator[NDArray[np.bool_], None, None]:
        """Yields what is kept of the first frames: (H, W), by all stages up to the refined mask."""
        config = replace(self._config, max_frames=most)
        if self._config.decode not in (None, "pyav"):  # its refusal is no matter of masks
            try:
                make_plan(config, probe(path, access_of(config)))
            except BackendError:
                config = replace(config, decode="pyav")
        for frame in masked_frames(self._resources, path, config):
            yield frame.mask > config.threshold

    def close(self) -> None:
        self._resources.close()


class Program:
    """FFmpeg's own program, of another version than PyAV's libraries, without masks. Nobody says what is damaged."""

    def frames(self, path: str, outcome: Outcome) -> Iterator[Shown]:
        """As `Side.frames`."""
        outcome.decoder, outcome.damaged = FFMPEG, None
        try:
            info = probe(path)
        except SegmentationError as exc:
            outcome.refusal = str(exc)
            return
        timeline = Timeline(info, Config())
        unit = Fraction(1)
        pix_fmt = working_format(info.pix_fmt, tuple(FORMATS))
        if info.pix_fmt.replace("yuvj", "yuv") == pix_fmt:  # else full range would be converted
            pix_fmt = info.pix_fmt
        with subprocess.Popen(_command(path, info, pix_fmt), stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("#tb 0:"):
                    unit = Fraction(line.split(":")[1].strip())
                elif not line.startswith("#"):
                    _, _, pts, _, _, found = (part.strip() for part in line.split(","))
                    placed = timeline.place(round(int(pts) * unit / info.time_base))
                    yield outcome.count(Shown(placed, found, None))

    def masks(self, path: str, most: int) -> Generator[NDArray[np.bool_], None, None]:
        yield from ()

    def close(self) -> None: ...


def _command(path: str, info: VideoInfo, pix_fmt: str) -> list[str]:
    given = ["-v", "quiet", "-nostdin", "-flags", "+unaligned", "-noautorotate", "-copyts", "-i", f"file:{path}"]
    kept = ["-map", f"0:{info.stream_index}", "-fps_mode", "passthrough", "-enc_time_base", "-1"]
    return [FFMPEG, *given, *kept, "-pix_fmt", pix_fmt, "-f", "framehash", "-hash", "sha256", "-"]


def digest(planes: Planes) -> str:
    """Returns SHA-256 of the planes' samples."""
    made = hashlib.sha256()
    for plane in planes:
        made.update(np.ascontiguousarray(plane).data)
    return made.hexdigest()


def side(name: str) -> Side | Program:
    """Returns the side of that name."""
    return Program() if name == FFMPEG else Side(name)
