"""One run: an input and its outputs, from open to report."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path

from segmentation.errors import DeviceError, DeviceMemoryError, InputError, Stopped
from segmentation.flow.threads import opencv_threads, until
from segmentation.flow.trace import Trace
from segmentation.frames import Frame, FrameBatch, Memory
from segmentation.frames.sinks import FinishedBatch
from segmentation.gpu.discovery import device_kept
from segmentation.gpu.errors import gpu_errors
from segmentation.media.bitstream.losses import TOLERATED
from segmentation.media.output_clock import DefaultClock
from segmentation.options.config import Config
from segmentation.pipeline.composite_step import CompositeStep
from segmentation.pipeline.compositor import Compositor
from segmentation.pipeline.mask_stages import make_network_masks, make_transfer
from segmentation.pipeline.mask_steps import make_mask_steps
from segmentation.pipeline.opened_run import OpenedRun, open_run
from segmentation.pipeline.outputs import EncodingBatch, Outputs
from segmentation.pipeline.records import Records, open_records
from segmentation.pipeline.report import Report
from segmentation.pipeline.request import RunRequest
from segmentation.pipeline.resources import Resources
from segmentation.pipeline.time_report import (
    missing_streams,
    report_damage,
    report_late,
    retimed_packets,
    warn_of_times,
)
from segmentation.pipeline.verification.verify import Verified
from segmentation.stages.decode.timestamps import expected, within_limit
from segmentation.stages.mask_source import MaskSource, SavedMasks

log = logging.getLogger(__name__)


def segment_once(resources: Resources, request: RunRequest, trace: Trace | None) -> Report:
    """Takes one input through all stages, once. Raises as `segment` does."""
    begin = time.perf_counter()
    with device_kept(), ExitStack() as exits:
        with resources.turn_to_start(request.source):
            run = Run(resources, request, opened_for(resources, request, exits, trace), exits, trace)
        end = run.drive()
    verified = run.check(end)
    report = run.report(verified, time.perf_counter() - begin)
    run.complete(report)
    return report


def opened_for(resources: Resources, request: RunRequest, exits: ExitStack, trace: Trace | None = None) -> OpenedRun:
    """Returns the input of a run. Raises as `segment` does."""
    return open_run(
        resources,
        request.source,
        request.config,
        exits,
        target=request.target,
        stop=request.stop,
        monitor=request.monitor,
        trace=trace,
        preload=True,
    )


class Run:
    """The stages of one input, with its outputs."""

    def __init__(
        self, resources: Resources, request: RunRequest, opened: OpenedRun, exits: ExitStack, trace: Trace | None
    ) -> None:
        """Opens the outputs, and builds sinks and stages, which `exits` closes.

        A file's decoding begins at once, while the network is still being loaded.
        """
        self._resources, self._request, self._opened, self._trace = resources, request, opened, trace
        self._info, self._config, self._gpu, self._clock = opened.info, opened.config, opened.gpu, opened.clock
        self._model, self._classes = opened.choices.model, opened.choices.classes
        self._source = request.source.label
        self._frames = 0  # written
        self._last: Frame | None = None
        self._fault: DeviceError | None = None  # of the GPU, after the first frames were written
        self._plan = plan = opened.plan
        for line in str(plan).splitlines():
            log.info("plan: %s", line)
        info, gpu, pix_fmt, kept = self._info, self._gpu, plan.pix_fmt, opened.choices.kept
        self._outputs = exits.enter_context(self._make_outputs())
        self._overlap = opened.overlap(exits, trace)
        self._records = self._make_records(exits)
        with gpu_errors():
            sessions = resources.nvdec_sessions if plan.decode.on_gpu else None
            self._decoder = plan.decode.implementation(info, pix_fmt, self._stretch, gpu, sessions=sessions)
            exits.callback(self._decoder.close)
            batches = until(request.stop, self._clock.steps("decode", self._wanted()))
            # A live source has a thread of its own, and its frames wait where those that are late can be dropped.
            self._decoded = self._overlap(batches, "decoded") if info.live is None else batches
            self._outputs.build(resources, exits, opened.end, kept)
            self._transfer = make_transfer(gpu, info, pix_fmt, opened.batch_size)
            compositor = self._make_compositor()
            self._masks = self._mask_source(compositor.memory, exits)
            self._composite = CompositeStep(
                resources, opened, self._outputs, compositor, self._masks, self._transfer, request.monitor
            )
        exits.enter_context(opencv_threads.one_a_frame(busy=gpu is not None or self._masks.workers > 1))

    def drive(self) -> Fraction | None:
        """Takes all frames through the stages, and completes the files. Returns where the outputs end, in seconds."""
        self._write(self._batches())
        return self._finish()

    def check(self, end: Fraction | None) -> list[Verified]:
        """Verifies the outputs for which that was asked, once they are closed. Raises `OutputError`."""
        return self._outputs.check(end, self._decoder.damaged, stopped=self._request.stop.is_set())

    def complete(self, report: Report) -> None:
        """Writes what needs the report, once the outputs are closed. Raises `OutputError`."""
        self._records.complete_audit(report)

    def report(self, verified: Sequence[Verified], seconds: float) -> Report:
        """Returns the report of a run that took so many seconds."""
        videos = [str(output.muxer.target) for output in self._outputs]
        live, counts = self._info.live, self._opened.choices.counts
        return Report(
            input=self._source,
            output=videos[0] if videos else None,
            also=tuple(videos[1:]),
            parts={str(muxer.target): muxer.parts for muxer in (o.muxer for o in self._outputs) if muxer.parts},
            frames=self._frames,
            damaged=self._decoder.damaged,
            retimed=self._retimed,
            left_out={} if self._outputs.main is None else dict(+self._outputs.main.left_out),
            late=self._late,
            inferred=self._masks.inferred,
            found=self._records.found,
            unknown=self._records.unknown,
            received=self._frames if live is None else live.received,
            dropped={} if live is None else live.dropped_in(self._frames),
            reconnects=0 if live is None else live.reconnects,
            repeated=0 if live is None else live.repeated,
            unsent=self._unsent,
            latency={} if live is None else live.latencies.summary(),
            doubtful=self._records.doubtful,
            counts={} if counts is None else counts.total,
            complete=self._complete,
            seconds=round(seconds, 3),
            fps=round(self._frames / seconds, 2),
            plan=self._plan.names(),
            stages={stage: round(spent, 3) for stage, spent in self._clock.totals().items()},
            verified=verified[0] if verified else None,
        )

    def _make_outputs(self) -> Outputs:
        """Returns the video outputs, to be opened."""
        return Outputs(self._info, self._plan, self._clock)

    def _make_compositor(self) -> Compositor:
        """Returns what makes the frames of all outputs; without a video it refines masks for the results alone."""
        made_by = self._outputs.made_by or [(self._config.effects[0], None)]
        memory = self._plan.mask_memory
        return Compositor(made_by, memory, self._info, self._plan.pix_fmt, self._config, self._gpu, self._transfer)

    def _make_records(self, exits: ExitStack) -> Records:
        """Opens the sinks besides the videos."""
        seconds = (self._outputs.main or DefaultClock(self._info, self._config)).seconds
        return open_records(self._opened, self._source, seconds, exits)

    @property
    def _stretch(self) -> Config:
        """The options that the decoder obeys."""
        return self._config

    def _wanted(self) -> Iterator[FrameBatch]:
        """The batches that the network is to see."""
        return within_limit(self._info, self._decoder)

    def _mask_source(self, memory: Memory, exits: ExitStack) -> MaskSource:
        """Returns saved masks, or the network, which is loaded last: it is being loaded on another thread meanwhile.

        `memory` is where they are composited.
        """
        if self._opened.saved is not None:
            return SavedMasks(self._opened.saved, self._clock, on_gpu=memory == "cuda")
        pix_fmt = self._plan.pix_fmt
        self._plan, masks = make_network_masks(self._resources, self._opened, pix_fmt, self._transfer, exits, memory)
        return masks

    def _batches(self) -> Iterator[FinishedBatch]:
        """Starts the chain of stages, each in threads of its own; yields the batches behind the last encoder."""
        batches: Iterator[EncodingBatch] = self._processed()
        # With many live sources a change of threads takes longer than what the sinks of a frame without a video do.
        if self._gpu is None or self._info.live is None or self._outputs.main is not None:
            batches = self._overlap(batches, "processed")
        for number, output in enumerate(self._outputs, 1):
            name = "encoded" if number == 1 else f"encoded {number}"
            batches = self._overlap(output.encoding(batches, self._transfer), name)
        return map(self._copied, batches)

    def _copied(self, batch: EncodingBatch) -> FinishedBatch:
        """Returns a batch whose arrays are on the host.

        Where no encoder on the host waits for the GPU, this does, so that no more batches are queued there than the
        queues before hold.
        """
        if batch.copied is not None:
            self._clock.call("wait", batch.finished.frames, batch.copied.synchronize)
        return batch.finished

    def _processed(self) -> Iterator[EncodingBatch]:
        """Yields the batches that are to be encoded."""
        resources, opened, plan = self._resources, self._opened, self._plan
        steps = make_mask_steps(resources, opened, plan, self._classes, self._transfer, plan.frame_memory)
        return self._masks.finished(self._decoded, self._composite, self._overlap, steps)

    def _write(self, batches: Iterator[FinishedBatch]) -> None:
        """Gives the batches to all sinks. If the GPU fails on the way, the frames so far are kept."""
        try:
            for batch in batches:
                for sink in (*self._outputs.sinks, *self._records.sinks):
                    sink.write(batch)
                self._count(batch.frames)
                self._last = batch.frames.frames[-1]
                if self._request.progress is not None:
                    self._request.progress(self._frames, expected(self._info, self._config))
        except DeviceError as exc:
            if self._last is None or (isinstance(exc, DeviceMemoryError) and self._can_halve):
                raise
            self._fault = exc

    def _count(self, frames: FrameBatch) -> None:
        """Counts frames that are through."""
        live = self._info.live
        if live is not None and frames.repeated:
            live.repeated += len(frames)
            return
        self._frames += len(frames)
        if live is not None:
            live.written(len(frames))

    def _finish(self) -> Fraction | None:
        """Completes all files. Returns where the outputs end, in seconds on the source's clock."""
        info, config, fault = self._info, self._config, self._fault
        if self._last is None:
            kind = Stopped if self._request.stop.is_set() else InputError
            raise self._reader_failure or kind(f"{self._source}: {self._why_nothing()}; nothing was written")
        main = self._outputs.main
        report_late(self._source, self._late, config, () if main is None else main.other_videos)
        report_damage(self._source, self._decoder.damaged, self._frames, config)
        stopped = fault is not None or self._request.stop.is_set() or self._frames == config.max_frames
        if not stopped and config.duration is None:
            self._masks.check_end()
        end = (self._last.pts + self._last.duration) * info.time_base if stopped else self._opened.end
        fragment = fault is not None or self._stopped_early
        if fault is None:
            self._outputs.finish(end, fragment=fragment)
            self._clock.totals()  # so that the trace has all of it
            complete = True
        else:
            complete = self._outputs.finish_without_gpu(end)
        for sink in self._records.sinks:
            sink.finish(end, fragment=fragment)
        warn_of_times(self._source, self._decoder.source, self._retimed)
        if self._trace is not None:
            self._trace.finish()
        if fault is not None:
            before = f"the {self._frames} frames before are" if complete else "what was finished before is"
            raise DeviceError(f"{self._source}: {fault}; {before} in {self._files}") from fault
        if self._reader_failure is not None:
            log.warning("%s: the %d frames before its failure are in %s", self._source, self._frames, self._files)
            raise self._reader_failure
        return end

    @property
    def _reader_failure(self) -> Exception | None:
        """The bug that has ended the reader of a live source, if there was one."""
        return None if self._info.live is None else self._info.live.failure

    @property
    def _files(self) -> str:
        """The files that the run has written: its videos, or without them the others."""
        videos = [output.muxer.target for output in self._outputs]
        others = [name for name in (self._config.results, self._config.save_masks) if isinstance(name, str | Path)]
        return ", ".join(map(str, videos or others)) or "the counts"

    @property
    def _late(self) -> dict[int, str]:
        source = self._decoder.source
        return {} if source is None else missing_streams(source.late, self._config)

    @property
    def _retimed(self) -> dict[int, int]:
        source, video = self._decoder.source, self._info.stream_index
        return retimed_packets(video, 0 if source is None else source.retimed(video), self._outputs.main)

    @property
    def _unsent(self) -> int:
        return 0 if self._info.live is None else self._info.live.unsent

    @property
    def _complete(self) -> bool:
        """Whether the outputs have all that was asked for, but for `TOLERATED` frames: damaged, unsent or unknown."""
        damaged = self._decoder.damaged + self._unsent + self._records.unknown
        lossy = damaged > TOLERATED * (self._frames + damaged)
        cut_short = self._decoder.cut_short or any(output.muxer.is_incomplete for output in self._outputs)
        doubtful = self._config.strict and self._records.doubtful > 0
        return not (lossy or cut_short or doubtful or self._late or self._stopped_early)

    @property
    def _stopped_early(self) -> bool:
        """Whether the run was stopped before the end of the input. A camera's usual end is being stopped."""
        return self._request.stop.is_set() and self._info.live is None

    def _why_nothing(self) -> str:
        info = self._info
        if self._request.stop.is_set():
            return "stopped before the first frame"
        if info.live is not None:
            return "no frame came once the network was ready"
        length = f" of {float(info.end - info.start):.1f} s" if info.end is not None else ""
        if (duration := self._config.duration) is not None:
            return f"no frame within {duration:g} s (--duration) from {self._config.start:g} s on in this video{length}"
        return f"no frame at --start {self._config.start:g} s or later in this video{length}"

    @property
    def _can_halve(self) -> bool:
        """Whether another attempt could take fewer frames at a time."""
        info = self._info
        again = info.live is None and not info.source.is_read_once
        return again and self._config.batch_size != 1 and (self._model is None or self._model.batch_on_gpu is None)
