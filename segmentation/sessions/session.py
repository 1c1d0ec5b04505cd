"""A session: many runs with the same network on the same machine."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, overload

from segmentation.errors import ConfigError, DeviceMemoryError, check_keywords
from segmentation.flow.trace import tracing
from segmentation.frames.picture_names import PICTURES
from segmentation.frames.source import Input, Source, opened, source_of
from segmentation.media.output_stream import Output, OutputStream, Target, as_target
from segmentation.media.pictures.still import is_still
from segmentation.options.access import access_of
from segmentation.options.config import Config
from segmentation.options.keywords import FrameOptions, Options, PictureOptions, RunOptions
from segmentation.options.project import with_project
from segmentation.pipeline.mask_stages import without_outputs
from segmentation.pipeline.output_paths import (
    check_names,
    check_output,
    check_results,
    check_streams,
    default_output,
    fill_name,
    with_name,
)
from segmentation.pipeline.report import Report
from segmentation.pipeline.request import Progress, RunRequest
from segmentation.pipeline.resources import Resources
from segmentation.pipeline.run import segment_once
from segmentation.pipeline.stream_status import StreamBoard
from segmentation.sessions.frame_iterator import MaskedFrame, masked_frames
from segmentation.sessions.open_video import Moment
from segmentation.sessions.pick import with_picked
from segmentation.sessions.picture_run import PictureRun, refused_for_pictures
from segmentation.sessions.pictures import Mask, Picture, Pictures, Rgb, as_mask, as_picture
from segmentation.sessions.retry import forget, halve_batch
from segmentation.system.closing import Closing
from segmentation.system.heap import trim_heap

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence


class Segmenter(Closing):
    """Segments videos one after the other, or several at a time from several threads.

    The network, the GPU's stream and CUDA graphs, the decoders and the encoders' process are made once and serve every
    run. Use it as a context manager: leaving it frees them.

        with Segmenter(effect="blur:40") as segmenter:
            for path in videos:
                segmenter.run(path)
    """

    def __init__(self, config: Config | None = None, **options: Unpack[Options]) -> None:
        """Options are the fields of `Config`, given as one object or as keywords; keywords win.

        Those of a project file count where others have their defaults. Nothing is loaded yet. Raises `ConfigError`, and
        `InputError` for a project file that can't be used.
        """
        check_keywords(options, Options.__annotations__, "Segmenter()")
        self.config = with_project(replace(config or Config(), **options))
        self._resources = Resources(self.config)
        self._pictures = Pictures(self._resources, self.config)

    def run(
        self,
        input: Input,
        output: Output | OutputStream | None = None,
        *,
        stop: threading.Event | None = None,
        progress: Progress | None = None,
        **options: Unpack[RunOptions],
    ) -> Report:
        """Segments one video or picture and writes the result, or several results with `also`.

        `input` is a file, an http(s) address, a camera or stream such as `rtsp://...` or `/dev/video0`, a named pipe,
        the bytes of a video, or a file object opened with "rb", which need not be seekable. `output` is a file, a named
        pipe or a file object opened with "wb", and defaults to `<stem>.segmented.mp4` beside the input, and for a
        picture's name to a picture. With `video=False` there is no output, and the input is no picture. Options replace
        those of the session for this run. Setting `stop` ends the run early, with playable files of the frames so far;
        before the first frame that is an `InputError`. `progress(done, expected)` is called after each batch, on the
        calling thread; `expected` is 0 where the length is unknown. An exception of `progress` ends the run and leaves
        no file.

        Raises `ConfigError`, `InputError`, `ModelError`, `EngineError`, `BackendError` or `OutputError`. Then only
        complete outputs are left. Raises `DeviceError` if the GPU fails on the way. Then the frames before are in
        playable files.
        """
        check_keywords(options, RunOptions.__annotations__, "run()", session=Options.__annotations__)
        config, stop = replace(self.config, **options) if options else self.config, stop or threading.Event()
        given = source_of(input, stop)
        with self.streams.watch(given) if given.is_live else nullcontext() as monitor:
            config = with_name(config, given)
            target = _target(given, output, config)
            check_results(config)
            check_names(given, target, config)
            with opened(given, stop) as source:
                check_streams(source, target, config)
                report = self.perform(RunRequest(source, target, config, stop, progress, monitor))
            if monitor is not None:
                monitor.finished(report)
                trim_heap()
            return report

    def perform(self, request: RunRequest) -> Report:
        """Does what `run` was asked for; again with smaller batches where the GPU's memory is full."""
        source, target, config = request.source, request.target, request.config
        named = source.stream is None and not source.is_live
        match target:
            case Path() if named and target.suffix.lower() in PICTURES:
                access = access_of(config, request.stop)
                if is_still(source, access):
                    return PictureRun(self._pictures, target, access, request)()
            case None if named and default_output(source).suffix.lower() in PICTURES:
                if is_still(source, access_of(config, request.stop)):
                    raise ConfigError(f"{source.text}: {refused_for_pictures(config)}")
        config = with_picked(self._resources, source, config, request.stop)
        request = replace(request, config=config)
        while True:
            try:
                with tracing(config, source.label) as trace:
                    return segment_once(self._resources, request, trace)
            except BaseException as exc:
                forget(exc)
                if source.is_read_once or not isinstance(exc, DeviceMemoryError):
                    raise
                halve_batch(self._resources, config, source.label, exc)

    @overload
    def masks(self, frames: Picture, *, refine: bool | None = None) -> Mask: ...

    @overload
    def masks(self, frames: Sequence[Picture], *, refine: bool | None = None) -> list[Mask]: ...

    def masks(self, frames: Picture | Sequence[Picture], *, refine: bool | None = None) -> Mask | list[Mask]:
        """Returns the mask of each picture: float32 (H, W) in 0..1, the probability of the kept classes.

        `frames` is one picture (H, W, 3) uint8 RGB, or an array of several (N, H, W, 3), which returns (N, H, W), or a
        list of pictures of any sizes, which returns a list. NumPy arrays and PyTorch's tensors are taken; a tensor on a
        GPU is copied to the host. `refine` replaces the session's option. Nothing is smoothed over time.

        Raises `InputError` for another shape or type, and `ConfigError`, `ModelError`, `EngineError`, `BackendError` or
        `DeviceError`.
        """
        pictures = self._pictures
        return pictures.masks(frames, pictures.config() if refine is None else pictures.config(refine=refine))

    def apply(self, frame: Picture, *, mask: Mask | None = None, **options: Unpack[PictureOptions]) -> Rgb:
        """Returns one picture (H, W, 3) uint8 RGB with the effect, and with alpha (H, W, 4) for `cutout`.

        `frame` is an array of NumPy or a tensor of PyTorch. `mask` (h, w) float32 in 0..1, of any size, takes the place
        of the network's. Options replace those of the session. Raises as `masks`.
        """
        check_keywords(options, PictureOptions.__annotations__, "apply()")
        config = self._pictures.config(**options)
        given = None if mask is None else as_mask(mask)
        picture = as_picture(frame, "the picture")
        return self._pictures.apply(picture, config, config.effects[:1], mask=given).pictures[0]

    def frames(self, source: Input | Moment, **options: Unpack[FrameOptions]) -> Generator[MaskedFrame, None, None]:
        """Returns an iterator over the frames of a video, each with its mask, smoothed and refined as in `run`.

        `source` is what `run` takes as its input, or a `Moment` of an open video. It is opened at the first frame, and
        read a few batches ahead of the loop, on threads that end with the iteration or with the iterator's `close()`.
        Options replace those of the session. A video without a frame in the wanted stretch yields nothing.

        Raises `ConfigError`. The iterator raises `InputError`, `ModelError`, `EngineError`, `BackendError` or
        `DeviceError`.
        """
        check_keywords(options, FrameOptions.__annotations__, "frames()")
        config = replace(without_outputs(self.config), **options)
        return masked_frames(self._resources, source, config)

    @property
    def streams(self) -> StreamBoard:
        """Reports the runs of live sources, see `Streams.status`."""
        return self._resources.streams

    def close(self) -> None:
        """Frees the session's resources. No run may be under way."""
        self._resources.close()


def _target(source: Source, output: Output | OutputStream | None, config: Config) -> Target | None:
    """Returns what a run writes its video to, `None` without a video. Raises `ConfigError`."""
    check_output(output, config)
    if not config.video:
        return None
    if output is None and source.stream is not None:
        raise ConfigError("output: name a file or give a file object; a default exists for files alone")
    return as_target(default_output(source, config) if output is None else fill_name(output, source), config)
