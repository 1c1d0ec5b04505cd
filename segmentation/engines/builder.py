"""Builds a plan from a graph, with TensorRT 10.13 and newer, TensorRT 11 or TensorRT-RTX."""

import logging
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import onnx

from segmentation.engines.spec import EngineOptions
from segmentation.engines.variant import Variant, logger
from segmentation.errors import EngineError, one_line
from segmentation.models.model import Model
from segmentation.models.sidecar import TensorSpec
from segmentation.system.atomic_file import write_atomically

log = logging.getLogger(__name__)

_HARDWARE = {"none": "NONE", "ampere-plus": "AMPERE_PLUS", "same-compute-capability": "SAME_COMPUTE_CAPABILITY"}
_DTYPES = {"FLOAT": "float32", "HALF": "float16"}


@dataclass(frozen=True, slots=True)
class Built:
    """A plan with its input and output, as the builder describes them."""

    plan: bytes
    input: TensorSpec
    output: TensorSpec


def build_plan(
    graph: onnx.ModelProto,
    model: Model,
    options: EngineOptions,
    variant: Variant,
    capability: tuple[int, int] | None = None,
    timing_cache: Path | None = None,
) -> Built:
    """Builds a prepared graph. Raises `EngineError`.

    `capability` is the one that TensorRT-RTX builds for; `None` is all but Turing's. `timing_cache` is a file that is
    read and written. TensorRT-RTX times nothing and leaves the file alone.
    """
    trt: Any = import_module(variant.module)
    messages = logger(trt)
    messages.errors.clear()
    builder = trt.Builder(messages)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, messages)
    if not parser.parse(graph.SerializeToString()):
        error = parser.get_error(0)
        node = f"node {error.node_name()} ({error.node_operator()})" if error.node_operator() else "the graph"
        raise EngineError(
            f"{model.path}: {node} can't be built by {variant} ({one_line(error.desc())}); replace it in the model, "
            "or run the model with --infer torch or --infer onnxruntime"
        )
    config = builder.create_builder_config()
    source, output = network.get_input(0), network.get_output(0)
    if options.fixed_batch is None:
        profile = builder.create_optimization_profile()
        least, best, largest = ((size, 3, model.height, model.width) for size in options.batch)
        profile.set_shape(source.name, least, best, largest)
        config.add_optimization_profile(profile)
    _configure(trt, config, options, rtx=variant.rtx, capability=capability)
    timings = None if variant.rtx else timing_cache
    if timings is not None:
        known = timings.read_bytes() if timings.is_file() else b""
        config.set_timing_cache(config.create_timing_cache(known), False)
    log.info("build: %s, batch %s", variant, "-".join(map(str, options.batch)))
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        reason = messages.errors[-1] if messages.errors else "it gave no reason"
        raise EngineError(
            f"{model.path}: {variant} can't build it ({one_line(reason)}); try a larger --workspace or another "
            "--precision, or run the model with --infer torch or --infer onnxruntime"
        )
    if timings is not None:
        _keep_timings(config.get_timing_cache().serialize(), timings)
    return Built(bytes(plan), _described(source), _described(output))


def _configure(
    trt: ModuleType, config: Any, options: EngineOptions, *, rtx: bool, capability: tuple[int, int] | None
) -> None:
    """Sets the options on an IBuilderConfig of the module `trt`."""
    config.max_aux_streams = options.aux_streams
    if options.optimization_level is not None:
        config.builder_optimization_level = options.optimization_level
    if options.workspace is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, options.workspace << 20)
    if rtx:
        _configure_rtx(trt, config, capability)
        return
    level = _HARDWARE[options.hardware_compatibility]
    config.hardware_compatibility_level = getattr(trt.HardwareCompatibilityLevel, level)
    if options.version_compatible:
        config.set_flag(trt.BuilderFlag.VERSION_COMPATIBLE)
        config.set_flag(trt.BuilderFlag.EXCLUDE_LEAN_RUNTIME)  # no host code in the plan


def _configure_rtx(trt: ModuleType, config: Any, capability: tuple[int, int] | None) -> None:
    """Sets what TensorRT-RTX alone has."""
    if capability is not None:
        config.num_compute_capabilities = 1
        config.set_compute_capability(getattr(trt.ComputeCapability, "SM{}{}".format(*capability)), 0)


def _described(tensor: Any) -> TensorSpec:
    """Returns the name, dtype ("float32" or "float16") and shape of an ITensor."""
    return {"name": tensor.name, "dtype": _DTYPES[tensor.dtype.name], "shape": list(tensor.shape)}


def _keep_timings(timings: Any, path: Path) -> None:
    """Writes a timing cache (IHostMemory). Without the file, later builds only take longer."""
    try:
        write_atomically(path, bytes(timings))
    except OSError as exc:
        log.warning("%s: the timing cache cannot be written (%s)", path, exc.strerror)
