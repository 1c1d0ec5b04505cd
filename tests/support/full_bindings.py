"""Loads the bindings of the full TensorRT where its libraries are missing: their docstrings alone are read."""

import ctypes
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType


def full_bindings(folder: Path) -> ModuleType:
    """Returns the module `tensorrt` of the package `tensorrt-cu13-bindings`, whose folder is named, in this process.

    It needs the libraries of TensorRT. Stand-ins take their place, with functions that return NULL.
    """
    found = importlib.util.find_spec("tensorrt_bindings")
    assert found is not None and found.submodule_search_locations is not None
    module = Path(found.submodule_search_locations[0]) / "tensorrt.so"
    needed = re.findall(r"\[(libnv\w+\.so\.\d+)\]", _read("readelf", "-d", module))
    wanted = re.findall(r" U ((?:create|get|init)\w+)$", _read("nm", "-D", "--undefined-only", module), re.M)
    for number, name in enumerate(needed):
        functions = "".join(f"void *{function}(void) {{ return 0; }}\n" for function in wanted)
        library = folder / name
        command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", str(library), "-xc", "-"]
        subprocess.run(command, input="int nothing;\n" if number else functions, text=True, check=True)
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    spec = importlib.util.spec_from_file_location("tensorrt", module)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def _read(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":  # in a process of its own: the stand-ins would be found by other bindings
    sys.path[:0] = [str(Path(__file__).parent)]
    from bindings import Checker
    from paths import ROOT

    sys.path.insert(0, str(ROOT / "tests" / "engines"))
    import test_tensorrt_api as api

    trt = full_bindings(Path(sys.argv[1]))
    for path, least in ((api.BUILDING, api.BUILDS - api.BUILDS_RTX), (api.RUNNING, api.RUNS), (api.LOGGING, api.LOGS)):
        checked = Checker(trt, api.SEEDS, api.RTX_ONLY).check(api.source(path))
        missing = sorted(least - checked.seen)
        print(path, checked.problems, missing)
        assert not checked.problems and not missing
    levels = trt.HardwareCompatibilityLevel.__members__.keys()
    assert {"NONE", "AMPERE_PLUS", "SAME_COMPUTE_CAPABILITY"} <= levels, levels
    print("right")
