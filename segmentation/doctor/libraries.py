"""The libraries: each is imported, since one that is installed may still lack libraries of its own."""

from collections import defaultdict
from collections.abc import Iterator

from segmentation.doctor.finding import ABSENT, FAILED, OK, Finding, Request
from segmentation.errors import one_line
from segmentation.gpu.discovery import find_gpu, installed_version
from segmentation.system.imports import imported
from segmentation.system.installation import install

# Module, packages that bring it, the extra that does; "" is what every installation has.
_LIBRARIES = (
    ("av", ("av",), ""),
    ("numpy", ("numpy",), ""),
    ("cv2", ("opencv-python-headless", "opencv-python"), ""),
    ("onnxruntime", ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-migraphx"), ""),
    ("lap", ("lap",), ""),
    ("platformdirs", ("platformdirs",), ""),
    ("torch", ("torch",), "gpu"),
    ("torchvision", ("torchvision",), "gpu"),
    ("cvcuda", ("cvcuda-cu13",), "gpu"),
    ("PyNvVideoCodec", ("PyNvVideoCodec",), "gpu"),
    ("cuda.core", ("cuda-core",), "gpu"),
    ("nvtx", ("nvtx",), "gpu"),
    ("onnx2torch", ("onnx2torch",), "gpu"),
    ("onnx", ("onnx",), "gpu"),
    ("tensorrt", ("tensorrt-cu13", "tensorrt"), "tensorrt"),
    ("tensorrt_rtx", ("tensorrt-rtx",), "rtx"),
    ("tensorrt_lean", ("tensorrt-lean-cu13",), "tensorrt"),
    ("openvino", ("openvino",), "openvino"),
)
_NVIDIA = ("gpu", "tensorrt", "rtx")


def check(request: Request) -> Iterator[Finding]:
    """Yields a finding for each library that is installed or needed, and one for each extra that lacks others."""
    gpu, lacking = find_gpu() is not None, defaultdict[str, list[str]](list)
    for module, packages, extra in _LIBRARIES:
        version = next(filter(None, map(installed_version, packages)), "")
        if version:
            yield _imported(module, packages[0], version, may_fail=extra in _NVIDIA and not gpu)
        else:
            lacking[extra].append(packages[0])
    for extra, names in lacking.items():
        needed = extra == "" or (extra == "gpu" and gpu)
        detail = f"{', '.join(names)}: not installed"
        outcome, name = FAILED if needed else ABSENT, f"extra {extra}" if extra else "required"
        yield Finding(name=name, outcome=outcome, detail=detail, mend=install(extra))


def _imported(module: str, name: str, version: str, *, may_fail: bool) -> Finding:
    """Returns the finding on a library that is installed. Without a driver, several of NVIDIA's can't be loaded."""
    try:
        library = imported(module)
    except Exception as exc:  # errors of loading a library have no common class
        detail = f"{version} can't be loaded ({one_line(exc)})"
        if may_fail:
            return Finding(name=name, outcome=ABSENT, detail=detail)
        return Finding(name=name, outcome=FAILED, detail=detail, mend=f"pip install --force-reinstall {name}")
    more = f" ({', '.join(library.get_available_providers())})" if module == "onnxruntime" else ""
    return Finding(name=name, outcome=OK, detail=f"{version}{more}")
