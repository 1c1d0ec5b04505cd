"""The answer of `--plan`: what would serve each stage, and how the inputs would be shared."""

import json
import threading
from collections.abc import Sequence
from dataclasses import replace

from segmentation.cli.inputs.find_inputs import Inputs
from segmentation.cli.inputs.jobs import Job, make_jobs
from segmentation.cli.inputs.standard_streams import STANDARD, is_stdin, video_in
from segmentation.errors import BackendError
from segmentation.frames.source import opened, source_of
from segmentation.gpu.discovery import (
    device_index,
    driver_version,
    find_gpu,
    library_versions,
    require_video_libraries,
)
from segmentation.live.reader import probe_any
from segmentation.options.access import access_of
from segmentation.options.command import Arguments
from segmentation.options.config import Config
from segmentation.pipeline.opened_run import choose
from segmentation.pipeline.output_paths import check_live
from segmentation.pipeline.planning.parallelism import Parallelism, choose_parallelism
from segmentation.pipeline.resources import Resources
from segmentation.stages.decode.nvdec_support import nvdec_engines, nvdec_formats


def describe_plan(config: Config, options: Arguments, inputs: Inputs) -> str:
    """Returns the plan, for the first of the inputs if there are any, as text or as JSON.

    Raises `SegmentationError`, as where the arguments stand for no input.
    """
    if inputs.missing and not inputs.sources:
        raise inputs.missing[0][1]
    jobs = make_jobs(inputs.sources, options.output, config) if inputs.sources else []
    shared = parallelism_of(options, config, jobs)
    config = shared.applied(config)
    info = None
    for job in jobs[:1]:
        config = replace(config, **job.options)
        never = threading.Event()
        given = video_in(STANDARD) if is_stdin(job.source.text) else job.source
        with opened(source_of(given, never), never) as source:
            check_live(source, config)
            info = probe_any(source, access_of(config))
        if info.live is not None:
            info.live.close()
    plan = choose(Resources(config), config, info).plan
    if options.json:
        numbers = {"jobs": shared.jobs, "processes": shared.processes}
        return json.dumps(plan.names() | ({"workers": options.workers} if options.workers else numbers))
    how = f"two at a time for each of the workers {options.workers}" if options.workers else str(shared)
    return "\n".join([*_machine(config), f"{'inputs':<12} {how}", str(plan)])


def parallelism_of(options: Arguments, config: Config, jobs: Sequence[Job]) -> Parallelism:
    """Returns how many inputs are under way at a time, and in how many processes."""
    # Workers need no others, and pipes can't go to them.
    alone = options.workers or any(job.piped for job in jobs)
    processes = 1 if alone and options.processes == "auto" else options.processes
    return choose_parallelism(config, [job.source for job in jobs], options.jobs, processes)


def _machine(config: Config) -> list[str]:
    """Returns a line each about the GPU, the libraries and NVDEC; a single line if there is no GPU."""
    try:
        index = device_index(config)
    except BackendError as exc:
        return [f"{'GPU':<12} none: {exc}"]
    return [
        f"{'GPU':<12} {find_gpu(index)}, driver {driver_version()}",
        f"{'libraries':<12} {library_versions()}",
        f"{'NVDEC':<12} {_nvdec(config, index)}",
    ]


def _nvdec(config: Config, index: int) -> str:
    """Returns NVDEC's engines and formats, or the reason why NVDEC can't be asked."""
    try:
        require_video_libraries()
        formats = nvdec_formats(index)
        return f"{nvdec_engines(config, None)} engines: {', '.join(formats)}"
    except BackendError as exc:
        return f"not to be asked: {exc}"
