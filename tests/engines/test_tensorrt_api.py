"""Checks the names and arguments of calls to TensorRT against the real bindings, see bindings.py.

The bindings of TensorRT-RTX and TensorRT are complete. Those of TensorRT's lean runtime are for running engines.
"""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from bindings import Checker, signatures
from paths import ROOT

SEEDS = {
    "logger": {"trt": "module"},
    "_described": {"tensor": "ITensor"},
    "_configure": {"config": "IBuilderConfig"},
    "_configure_rtx": {"config": "IBuilderConfig"},
    "_keep_timings": {"timings": "IHostMemory"},
    "_execute": {"context": "IExecutionContext"},
    "_load_runtime": {"loader": "Runtime"},
}
RTX_ONLY = frozenset({"_rtx_context", "_keep_kernels", "_configure_rtx"})
RUNNING = "segmentation/engines/session.py"
BUILDING = "segmentation/engines/builder.py"
LOGGING = "segmentation/engines/variant.py"
# What must at least have been found, or the check has lost track of something.
RUNS = {
    "module.Runtime",
    "Runtime.deserialize_cuda_engine",
    "Runtime.load_runtime",
    "ICudaEngine.num_io_tensors",
    "ICudaEngine.get_tensor_name",
    "ICudaEngine.get_tensor_mode",
    "ICudaEngine.get_tensor_shape",
    "ICudaEngine.create_execution_context",
    "IExecutionContext.set_input_shape",
    "IExecutionContext.set_tensor_address",
    "IExecutionContext.execute_async_v3",
    "TensorIOMode.INPUT",
}
RUNS_RTX = {
    "ICudaEngine.create_runtime_config",
    "IRuntimeConfig.create_runtime_cache",
    "IRuntimeConfig.set_runtime_cache",
    "IRuntimeConfig.cuda_graph_strategy",
    "IRuntimeCache.serialize",
    "IRuntimeCache.deserialize",
    "CudaGraphStrategy.WHOLE_GRAPH_CAPTURE",
}
BUILDS = {
    "module.Builder",
    "Builder.create_network",
    "Builder.create_builder_config",
    "Builder.create_optimization_profile",
    "Builder.build_serialized_network",
    "NetworkDefinitionCreationFlag.STRONGLY_TYPED",
    "INetworkDefinition.get_input",
    "INetworkDefinition.get_output",
    "ITensor.name",
    "ITensor.dtype",
    "ITensor.shape",
    "OnnxParser.parse",
    "OnnxParser.get_error",
    "ParserError.desc",
    "ParserError.node_name",
    "ParserError.node_operator",
    "IOptimizationProfile.set_shape",
    "IBuilderConfig.add_optimization_profile",
    "IBuilderConfig.max_aux_streams",
    "IBuilderConfig.builder_optimization_level",
    "IBuilderConfig.set_memory_pool_limit",
    "IBuilderConfig.num_compute_capabilities",
    "IBuilderConfig.set_compute_capability",
    "IBuilderConfig.hardware_compatibility_level",
    "IBuilderConfig.set_flag",
    "IBuilderConfig.create_timing_cache",
    "IBuilderConfig.set_timing_cache",
    "IBuilderConfig.get_timing_cache",
    "ITimingCache.serialize",
    "BuilderFlag.VERSION_COMPATIBLE",
    "BuilderFlag.EXCLUDE_LEAN_RUNTIME",
    "MemoryPoolType.WORKSPACE",
}
BUILDS_RTX = {"IBuilderConfig.num_compute_capabilities", "IBuilderConfig.set_compute_capability"}
LOGS = {"module.ILogger", "ILogger.ERROR", "ILogger.INTERNAL_ERROR"}


@pytest.fixture(scope="module")
def rtx() -> ModuleType:
    return pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed")


@pytest.fixture(scope="module")
def lean() -> ModuleType:
    """TensorRT 11's running half. Only looked at: its Runtime ends the process where there is no CUDA driver."""
    pytest.importorskip("tensorrt_lean_bindings", reason="TensorRT's lean runtime is not installed")
    from tensorrt_lean_bindings import tensorrt_lean

    assert isinstance(tensorrt_lean, ModuleType)
    return tensorrt_lean


def source(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("path", "least"), [(BUILDING, BUILDS), (RUNNING, RUNS | RUNS_RTX), (LOGGING, LOGS)], ids=["build", "run", "log"]
)
def test_names_and_arguments_are_those_of_tensorrt_rtx(rtx: ModuleType, path: str, least: set[str]) -> None:
    checked = Checker(rtx, SEEDS).check(source(path))
    assert checked.problems == []
    assert least <= checked.seen, least - checked.seen


@pytest.mark.parametrize(("path", "least"), [(RUNNING, RUNS), (LOGGING, LOGS)], ids=["run", "log"])
def test_names_and_arguments_of_running_are_those_of_tensorrt_11(lean: ModuleType, path: str, least: set[str]) -> None:
    checked = Checker(lean, SEEDS, RTX_ONLY).check(source(path))
    assert checked.problems == []
    assert least <= checked.seen, least - checked.seen


def test_names_and_arguments_are_those_of_the_full_tensorrt(tmp_path: Path) -> None:
    """Of its bindings alone, in a process of its own, see full_bindings.py."""
    if importlib.util.find_spec("tensorrt_bindings") is None or not shutil.which("gcc"):
        pytest.skip("TensorRT's bindings or gcc are not installed")
    program = ROOT / "tests" / "support" / "full_bindings.py"
    done = subprocess.run([sys.executable, program, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith("right\n"), done.stdout + done.stderr


def test_tensorrt_11_has_the_builders_flags(lean: ModuleType, rtx: ModuleType) -> None:
    """Its builder can't be had here, but its lists of flags, levels and memory pools come with the lean runtime."""
    used = Checker(rtx, SEEDS).check(source(BUILDING)).seen
    listed = {name for name in used if hasattr(lean, name.split(".")[0]) and name.split(".")[1].isupper()}
    assert {"BuilderFlag.VERSION_COMPATIBLE", "MemoryPoolType.WORKSPACE"} <= listed
    for name in listed:
        group, member = name.split(".")
        assert member in getattr(lean, group).__members__, name
    assert {"NONE", "AMPERE_PLUS", "SAME_COMPUTE_CAPABILITY"} <= lean.HardwareCompatibilityLevel.__members__.keys()


def test_every_compute_capability_of_tensorrt_rtx_has_its_name(rtx: ModuleType) -> None:
    from segmentation.engines.variant import serves

    known = {name for name in rtx.ComputeCapability.__members__ if name.startswith("SM")}
    ours = {
        f"SM{major}{minor}" for major in range(5, 13) for minor in range(10) if serves("tensorrt_rtx", (major, minor))
    }
    assert known <= ours  # 12.x is served as it comes: SM122 and later are not known yet
    assert {name for name in ours if not name.startswith("SM12")} <= known


@pytest.mark.parametrize(
    ("path", "right", "wrong"),
    [
        (RUNNING, "context.execute_async_v3(", "context.execute_async_v4("),
        (RUNNING, "context.execute_async_v3(self._own.cuda_stream)", "context.execute_async_v3()"),
        (RUNNING, "context.execute_async_v3(self._own.cuda_stream)", 'context.execute_async_v3("0")'),
        (RUNNING, "set_tensor_address(self._input_name, ", "set_tensor_address("),
        (RUNNING, "set_tensor_address(self._output_name, ", "set_output_address(self._output_name, "),
        (RUNNING, "set_input_shape(self._input_name, shape)", "set_input_shape(self._input_name, dims=shape)"),
        (RUNNING, "self._runtime.deserialize_cuda_engine(plan)", "self._runtime.deserialize_engine(plan)"),
        (RUNNING, "self._engine.num_io_tensors", "self._engine.num_bindings"),
        (RUNNING, "mode.INPUT", "mode.INPUTS"),
        (RUNNING, "config.set_runtime_cache(self._cache)", "config.set_cache(self._cache)"),
        (RUNNING, "config.cuda_graph_strategy = ", "config.graph_strategy = "),
        (RUNNING, "bytes(self._cache.serialize())", "bytes(self._cache.serialise())"),
        (BUILDING, "builder.create_network(", "builder.make_network("),
        (BUILDING, "trt.OnnxParser(network, messages)", "trt.OnnxParser(network)"),
        (BUILDING, "parser.get_error(0)", 'parser.get_error("first")'),
        (BUILDING, "error.node_operator()", "error.node_operation()"),
        (
            BUILDING,
            "profile.set_shape(source.name, least, best, largest)",
            "profile.set_shape(source.name, least, best)",
        ),
        (BUILDING, "config.max_aux_streams", "config.max_auxiliary_streams"),
        (BUILDING, "trt.MemoryPoolType.WORKSPACE", "trt.MemoryPoolType.WORKSPACES"),
        (BUILDING, "config.create_timing_cache(known), False)", "config.create_timing_cache(known))"),
        (BUILDING, "config.get_timing_cache().serialize()", "config.get_timing_cache().dump()"),
        (BUILDING, "trt.BuilderFlag.VERSION_COMPATIBLE", "trt.BuilderFlag.FP16"),
        (BUILDING, "tensor.dtype", "tensor.type"),
        (LOGGING, "trt.ILogger.ERROR", "trt.ILogger.ERRORS"),
    ],
)
def test_a_misspelt_name_or_a_wrong_argument_is_found(rtx: ModuleType, path: str, right: str, wrong: str) -> None:
    text = source(path)
    assert right in text
    assert Checker(rtx, SEEDS).check(text.replace(right, wrong)).problems


def test_signatures_are_read_from_docstrings(rtx: ModuleType) -> None:
    (one,) = signatures(rtx.IExecutionContext.execute_async_v3)
    assert one.parameters == (("stream_handle", "typing.SupportsInt", False),) and one.returns == "bool"
    assert len(signatures(rtx.IExecutionContext.set_input_shape)) == 3
    assert signatures(rtx.ICudaEngine.create_execution_context)[0].parameters[0][2]


def test_nothing_else_touches_tensorrt() -> None:
    """Other files would escape the checks above."""
    for path in (ROOT / "segmentation").rglob("*.py"):
        relative = path.relative_to(ROOT).as_posix()
        if relative not in (RUNNING, BUILDING, LOGGING):
            assert "trt." not in Path(path).read_text(encoding="utf-8"), relative
