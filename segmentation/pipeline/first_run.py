"""The kernels of a run, which are compiled side by side while the network is loaded."""

from segmentation.frames import FORMATS, VideoInfo
from segmentation.frames.orientation import UPRIGHT
from segmentation.gpu.discovery import arch_of
from segmentation.options.config import Config
from segmentation.pipeline.planning.plan import Plan


def begin_kernels(plan: Plan, info: VideoInfo, config: Config, index: int) -> None:
    """Begins to compile the kernels that a run's stages ask for later, for GPU `index`."""
    from segmentation.gpu.kernels import KernelSource, Program, begin_compiling  # need the GPU's libraries
    from segmentation.interval.kernels import PROPAGATION
    from segmentation.stages.frame_kernels import FRAMES
    from segmentation.stages.inference.compiler.network_kernels import DEPTHWISE, INSTANCES, STEM
    from segmentation.stages.masks.mask_kernels import MASKS

    arch, infer = arch_of(index), plan.infer.name if plan.infer is not None else ""
    # Decoders and encoders have frames as they are stored, other stages turn them.
    programs = [Program(arch, FRAMES, FORMATS[plan.pix_fmt], shown) for shown in {UPRIGHT, info.orientation}]
    others: list[KernelSource] = [MASKS]
    others += [PROPAGATION] if config.interval else []
    layers = [STEM, *DEPTHWISE.values()]
    others += {"torch-fp16": layers, "torch-instances": [INSTANCES]}.get(infer, [])
    begin_compiling([*programs, *(Program(arch, source, FORMATS["yuv420p"]) for source in others)])
