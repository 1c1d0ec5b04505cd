"""The builder: a graph becomes a plan, with TensorRT 10.13 and newer, TensorRT 11 or TensorRT-RTX."""

import logging
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import onnx

from segmentation.atomic_file import write_atomically
from segmentation.errors import EngineError, one_line
from segmentation.models.model import Model
from segmentation.tensorrt.spec import EngineOptions
from segmentation.tensorrt.variant import Variant, logger

log = logging.getLogger(__name__)

_HARDWARE = {"none": "NONE", "ampere-plus": "AMPERE_PLUS", "same-compute-capability": "SAME_COMPUTE_CAPABILITY"}

_DTYPES = {"FLOAT": "float32", "HALF": "float16"}


@dataclass(frozen=True, slots=True)
class Built:
    """A plan, and its input and output as the builder sees them: name, dtype, shape (-1 where dynamic)."""

    plan: bytes
    input: dict[str, Any]
    output: dict[str, Any]


def build_plan(
    graph: onnx.ModelProto,
    model: Model,
    options: EngineOptions,
    variant: Variant,
    capability: tuple[int, int] | None = None,
    timing_cache: Path | None = None,
) -> Built:
    """Builds a prepared graph. `capability` is the one that TensorRT-RTX builds for, None: all but Turing.

    `timing_cache` is read and written, if given (TensorRT-RTX times nothing and has none). Raises `EngineError`.
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
            f"{model.path}: {node} can't be built by {variant} ({one_line(error.desc())}); replace it in the "
            "model, or run the model with --infer torch or --infer onnxruntime"
        )
    config = builder.create_builder_config()
    source, output = network.get_input(0), network.get_output(0)
    if options.fixed_batch is None:
        profile = builder.create_optimization_profile()
        least, best, largest = ((size, 3, model.height, model.width) for size in options.batch)
        profile.set_shape(source.name, least, best, largest)
        config.add_optimization_profile(profile)
    config.max_aux_streams = options.aux_streams
    if options.optimization_level is not None:
        config.builder_optimization_level = options.optimization_level
    if options.workspace is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, options.workspace << 20)
    if variant.rtx:
        if capability is not None:
            config.num_compute_capabilities = 1
            config.set_compute_capability(getattr(trt.ComputeCapability, "SM{}{}".format(*capability)), 0)
    else:
        level = _HARDWARE[options.hardware_compatibility]
        config.hardware_compatibility_level = getattr(trt.HardwareCompatibilityLevel, level)
        if options.version_compatible:
            config.set_flag(trt.BuilderFlag.VERSION_COMPATIBLE)
            config.set_flag(trt.BuilderFlag.EXCLUDE_LEAN_RUNTIME)  # no host code in the plan
        if timing_cache is not None:
            known = timing_cache.read_bytes() if timing_cache.is_file() else b""
            config.set_timing_cache(config.create_timing_cache(known), False)
    log.info("build: %s, batch %s", variant, "-".join(map(str, options.batch)))
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        reason = messages.errors[-1] if messages.errors else "it gave no reason"
        raise EngineError(
            f"{model.path}: {variant} can't build it ({one_line(reason)}); try a larger --workspace or another "
            "--precision, or run the model with --infer torch or --infer onnxruntime"
        )
    if not variant.rtx and timing_cache is not None:
        _keep(config.get_timing_cache().serialize(), timing_cache)
    return Built(bytes(plan), _described(source), _described(output))


def _described(tensor: Any) -> dict[str, Any]:
    """An ITensor's name, dtype ("float32" or "float16") and shape."""
    return {"name": tensor.name, "dtype": _DTYPES[tensor.dtype.name], "shape": list(tensor.shape)}


def _keep(timings: Any, path: Path) -> None:
    """Writes a timing cache; without it, later builds only take longer."""
    try:
        write_atomically(path, bytes(timings))
    except OSError as exc:
        log.warning("%s: the timing cache cannot be written (%s)", path, exc.strerror)
