"""nvJPEG's C interface, as the real library and its header have it. Encoding itself is tested with `test_jpeg.py`."""

import ctypes
import re
from pathlib import Path
from typing import Any

import pytest

from segmentation import BackendError

pathfinder = pytest.importorskip("cuda.pathfinder")

from segmentation.encode import nvjpeg  # noqa: E402


@pytest.fixture(scope="module")
def library() -> Any:
    try:
        return nvjpeg.library()
    except BackendError as exc:
        pytest.skip(str(exc))


@pytest.fixture(scope="module")
def header(library: Any) -> str:
    """Without comments."""
    path = Path(library._name).parents[1] / "include" / "nvjpeg.h"
    if not path.is_file():
        pytest.skip("nvjpeg.h is not beside the library")
    return re.sub(r"//.*", "", path.read_text(encoding="utf-8"))


def c_type(declaration: str) -> Any:
    """What ctypes has for a parameter, as `nvjpeg` gives it."""
    kind = re.sub(r"\bconst\b|\w+$", "", declaration.strip()).replace(" ", "")
    pointers = ("nvjpegHandle_t", "nvjpegEncoderState_t", "nvjpegEncoderParams_t", "cudaStream_t", "unsignedchar*")
    if kind in pointers:
        return ctypes.c_void_p
    if kind in ("int", "libraryPropertyType", "nvjpegChromaSubsampling_t", "nvjpegInputFormat_t"):
        return ctypes.c_int
    targets = {"int*": ctypes.c_int, "size_t*": ctypes.c_size_t, "nvjpegImage_t*": nvjpeg._Image}
    return ctypes.POINTER(targets.get(kind) or {f"{name}*": ctypes.c_void_p for name in pointers}[kind])


@pytest.mark.parametrize("name", nvjpeg._FUNCTIONS)
def test_functions_are_those_of_the_header(name: str, library: Any, header: str) -> None:
    declared = re.search(rf"nvjpegStatus_t NVJPEGAPI {name}\s*\(([^)]*)\)", header)
    assert declared is not None
    assert [c_type(parameter) for parameter in declared[1].split(",")] == list(getattr(library, name).argtypes)


def test_numbers_are_those_of_the_header(header: str) -> None:
    numbers = {name: int(number) for name, number in re.findall(r"NVJPEG_(\w+)\s*=\s*(-?\d+)", header)}
    statuses = {name: number for name, number in numbers.items() if name.startswith("STATUS_")}
    assert statuses == {f"STATUS_{name}": number for number, name in enumerate(nvjpeg._STATUS)}
    assert (numbers["CSS_444"], numbers["INPUT_RGB"]) == (nvjpeg._CSS_444, nvjpeg._INPUT_RGB)
    assert re.search(r"define NVJPEG_MAX_COMPONENT 4\b", header)
    assert ctypes.sizeof(nvjpeg._Image) == 4 * 8 + 4 * 8


def test_version(library: Any) -> None:
    assert re.fullmatch(r"1\d(\.\d+){2}", nvjpeg.version())


def test_a_refused_call_is_named(library: Any) -> None:
    """Pictures that are nowhere, on no handle."""
    image = nvjpeg._Image()
    with pytest.raises(nvjpeg.NvJpegError, match=r"^NVJPEG_STATUS_INVALID_PARAMETER$"):
        library.nvjpegEncodeImage(None, None, None, ctypes.byref(image), nvjpeg._INPUT_RGB, 0, 0, None)
    with pytest.raises(ctypes.ArgumentError):
        library.nvjpegEncoderParamsSetQuality(None, "90", None)


def test_a_library_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise pathfinder.DynamicLibNotFoundError(f"no lib{name}.so\n  listdir ...")

    monkeypatch.setattr(nvjpeg, "load_nvidia_dynamic_lib", missing)
    with pytest.raises(BackendError, match=r"^nvJPEG is not installed; try: pip install 'nvidia-nvjpeg<14'$"):
        nvjpeg.library.__wrapped__()
