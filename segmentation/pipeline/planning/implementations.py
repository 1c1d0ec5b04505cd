"""The implementations of each stage: one record each, with all that the plan chooses by."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial

_FOUND = ("optimized", "auto")  # modes that use what the machine has
_PLAIN = ("baseline", "auto")


@dataclass(frozen=True, slots=True)
class Implementation:
    """A class that serves a stage. Its module, with its heavy imports, is loaded only when it is a candidate."""

    place: str  # "module:Class"
    _: KW_ONLY
    rank: int = 0  # of the candidates of a stage, the lowest is tried first
    modes: tuple[str, ...] = ()  # in which it is a candidate
    instance_modes: tuple[str, ...] = ()  # likewise, for networks of instances
    on_gpu: bool = False  # its module fails without a GPU, which is looked for before the import
    processor: bool = False  # runs any network, on pictures in host memory, by a provider of its own
    runs_states: bool = False  # runs networks that carry states from frame to frame
    live: str = ""  # reads live sources in its place
    substitute: str = ""  # serves the stage where the GPU lacks an engine: a decoder for the codec, or NVENC
    fallback: str = ""  # infers where the constructor finds out that the network can't run, or is not to
    extra: str = "gpu"  # of the package, with the libraries that its module needs


_processor = partial(Implementation, processor=True, runs_states=True, fallback="onnxruntime")

IMPLEMENTATIONS = {
    "decode": {
        "pyav": Implementation("segmentation.stages.decode.pyav:PyAVDecoder", rank=3, modes=_PLAIN, live="live"),
        "nvdec": Implementation(
            "segmentation.stages.decode.nvdec:NvdecDecoder",
            rank=2,
            modes=_FOUND,
            on_gpu=True,
            live="live-nvdec",
            substitute="pyav",
        ),
        "nvdec-native": Implementation(
            "segmentation.stages.decode.native.decoder:NativeNvdecDecoder",
            rank=1,
            modes=_FOUND,
            on_gpu=True,
            live="live-nvdec",
            substitute="pyav",
        ),
        "live": Implementation("segmentation.live.decoder:LiveDecoder"),
        "live-nvdec": Implementation(
            "segmentation.live.nvdec_decoder:LiveNvdecDecoder", on_gpu=True, substitute="live"
        ),
    },
    "preprocess": {
        "opencv": Implementation("segmentation.stages.preprocess.opencv:OpenCVPreprocessor", rank=2, modes=_PLAIN),
        "cuda": Implementation(
            "segmentation.stages.preprocess.cuda:CudaPreprocessor", rank=1, modes=_FOUND, on_gpu=True
        ),
    },
    "infer": {
        "onnxruntime": Implementation(
            "segmentation.stages.inference.onnxruntime:OnnxRuntimeInference", rank=5, modes=_PLAIN, runs_states=True
        ),
        "torch": Implementation(  # where PyTorch finds a CUDA device, see its `describe`
            "segmentation.stages.inference.torch:TorchInference", rank=4, modes=_PLAIN, fallback="onnxruntime"
        ),
        "torch-fp16": Implementation(
            "segmentation.stages.inference.torch_fp16:TorchFp16Inference",
            rank=2,
            modes=_FOUND,
            on_gpu=True,
            fallback="onnxruntime",
        ),
        "tensorrt": Implementation(
            "segmentation.engines.inference:TensorRTInference",
            rank=1,
            modes=_FOUND,
            on_gpu=True,
            runs_states=True,
            fallback="torch-fp16",
        ),
        "function": Implementation("segmentation.stages.inference.function:FunctionInference"),
        "nothing": Implementation("segmentation.stages.inference.nothing:NothingInference", on_gpu=True),
        "instances": Implementation(
            "segmentation.stages.inference.instances.onnx_instances:InstanceInference", rank=5, instance_modes=_PLAIN
        ),
        "torch-instances": Implementation(
            "segmentation.stages.inference.instances.torch_instances:TorchInstanceInference",
            rank=2,
            instance_modes=_FOUND,
            on_gpu=True,
            fallback="instances",
        ),
        "onnxruntime-cuda": _processor(
            "segmentation.stages.inference.processors:CudaInference", rank=3, modes=("auto",), instance_modes=("auto",)
        ),
        "openvino": _processor("segmentation.stages.inference.openvino:OpenVinoInference", extra="openvino"),
        "coreml": _processor("segmentation.stages.inference.processors:CoreMlInference"),
        "directml": _processor("segmentation.stages.inference.processors:DirectMlInference"),
        "migraphx": _processor("segmentation.stages.inference.processors:MigraphxInference"),
        "rocm": _processor("segmentation.stages.inference.processors:RocmInference"),
    },
    "postprocess": {
        "opencv": Implementation("segmentation.stages.postprocess.opencv:OpenCVPostprocessor", rank=2, modes=_PLAIN),
        "cvcuda": Implementation(
            "segmentation.stages.postprocess.cvcuda:CvCudaPostprocessor", rank=1, modes=_FOUND, on_gpu=True
        ),
    },
    "encode": {
        "x264": Implementation("segmentation.stages.encode.pyav:PyAVEncoder", rank=2, modes=_PLAIN),
        "x264-segments": Implementation("segmentation.stages.encode.segments:SegmentEncoder"),
        "nvenc": Implementation(
            "segmentation.stages.encode.nvenc:NvencEncoder",
            rank=1,
            modes=_FOUND,
            on_gpu=True,
            substitute="x264-segments",
        ),
        "jpeg": Implementation("segmentation.stages.encode.jpeg:JpegEncoder", on_gpu=True),
        "pictures": Implementation("segmentation.stages.encode.pictures:PicturesEncoder"),
        "cutout": Implementation("segmentation.stages.encode.cutout:CutoutEncoder"),
    },
}


def candidates(stage: str, mode: str, *, instances: bool = False) -> tuple[str, ...]:
    """Returns the names of those that may serve a stage, the best first; for a network of `instances` if so given."""
    known = IMPLEMENTATIONS[stage]
    named = [name for name, one in known.items() if mode in (one.instance_modes if instances else one.modes)]
    return tuple(sorted(named, key=lambda name: known[name].rank))
