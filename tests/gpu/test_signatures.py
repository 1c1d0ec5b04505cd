"""Arguments that don't fit a kernel's parameters are refused before anything is queued."""

import struct
from typing import Any

import numpy as np
import pytest

from segmentation.gpu.signatures import Parameter, signatures_of

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

SOURCE = """
struct Shades {
    float matrix[3][4], scale[3], offset[3];
};
struct Matrix {
    float of[2][3];
};
extern "C" __global__ void first(const sample *y, long long pitch, float gain, int width, float4 *target,
                                 unsigned char *__restrict__ rgb, const Shades *shades) {}
extern "C" __global__ void second(int frame, const Matrix matrix) {}
"""


def signature(name: str = "first", sample: str = "unsigned char") -> Any:
    return signatures_of(SOURCE, sample)[name]


def arguments() -> list[Any]:
    floats, samples = torch.zeros(24), torch.zeros(8, dtype=torch.uint8)
    return [samples, np.int64(640), np.float32(0.5), 7, floats, samples, floats]


def test_signatures_are_read_from_the_source() -> None:
    assert [str(p) for p in signature().parameters] == [
        "y (unsigned char *)",
        "pitch (long long)",
        "gain (float)",
        "width (int)",
        "target (float4 *)",
        "rgb (unsigned char *)",
        "shades (float *)",
    ]
    assert signature("second").parameters[1] == Parameter("matrix[0]", "float")
    assert len(signature("second").parameters) == 1 + 6


def test_arguments_lie_as_in_c() -> None:
    given = arguments()
    y, pitch, gain, width, target, rgb, shades = struct.unpack("PqfiPPP", signature().pack(tuple(given)))
    assert (y, target, rgb, shades) == tuple(given[i].data_ptr() for i in (0, 4, 5, 6))
    assert (pitch, gain, width) == (640, 0.5, 7)
    numbers = np.arange(6, dtype=np.float32)
    assert struct.unpack("i6f", signature("second").pack((3, *numbers))) == (3, *numbers)


def test_an_address_stands_for_any_pointer() -> None:
    given = [np.uint64(4096), *arguments()[1:]]
    assert struct.unpack_from("P", signature().pack(tuple(given))) == (4096,)


@pytest.mark.parametrize("number", range(7))
def test_a_missing_argument_is_refused(number: int) -> None:
    given = arguments()
    del given[number]
    with pytest.raises(TypeError, match=r"^kernel first: "):
        signature().pack(tuple(given))


def test_the_error_names_the_kernel_the_parameter_and_both_types() -> None:
    given = arguments()
    with pytest.raises(TypeError) as caught:
        signature().pack(tuple(given[:6]))
    assert str(caught.value) == "kernel first: shades (float *) is missing, behind 6 arguments"
    with pytest.raises(TypeError) as caught:
        signature().pack((*given, 5))
    assert str(caught.value) == "kernel first: int is behind the last of 7 arguments"
    given[1], given[2] = given[2], given[1]
    with pytest.raises(TypeError) as caught:
        signature().pack(tuple(given))
    assert str(caught.value) == "kernel first: pitch (long long) can't take float32"
    with pytest.raises(TypeError) as caught:
        signature().pack((torch.zeros(8), *given[1:]))
    assert str(caught.value) == "kernel first: y (unsigned char *) can't take torch.float32"


@pytest.mark.parametrize("pair", [(0, 1), (0, 4), (1, 3), (2, 3), (3, 4), (4, 5)])
def test_swapped_arguments_are_refused(pair: tuple[int, int]) -> None:
    given, (a, b) = arguments(), pair
    given[a], given[b] = given[b], given[a]
    with pytest.raises(TypeError, match=r"^kernel first: "):
        signature().pack(tuple(given))


@pytest.mark.parametrize(
    ("number", "value"),
    [
        *((number, value) for number in (1, 2, 3) for value in (0.5, np.float64(0.5), True, np.int32(1), None, "1")),
        *((0, value) for value in (640, np.int64(640), np.zeros(8, np.uint8), None, torch.zeros(8).half())),
        (1, 640),
        (3, np.int64(640)),
    ],
)
def test_an_argument_of_another_type_is_refused(number: int, value: Any) -> None:
    given = arguments()
    given[number] = value
    with pytest.raises(TypeError, match=f"^kernel first: {signature().parameters[number].name} "):
        signature().pack(tuple(given))


def test_samples_have_the_depth_of_the_program() -> None:
    deep = signature(sample="unsigned short")
    rest = arguments()[1:]
    for dtype in (torch.uint16, torch.int16):
        deep.pack((torch.zeros(8, dtype=dtype), *rest))
    with pytest.raises(TypeError, match=r"y \(unsigned short \*\) can't take torch.uint8"):
        deep.pack((torch.zeros(8, dtype=torch.uint8), *rest))
    with pytest.raises(TypeError, match=r"y \(unsigned char \*\) can't take torch.uint16"):
        signature().pack((torch.zeros(8, dtype=torch.uint16), *rest))


def test_a_refused_call_is_refused_again() -> None:
    checked = signature()
    for _ in range(2):
        checked.pack(tuple(arguments()))
        with pytest.raises(TypeError):
            checked.pack(tuple(reversed(arguments())))


@pytest.mark.parametrize("parameters", ["double x", "double *x", "Unknown x", "long *x", "int **x", ""])
def test_parameters_that_cannot_be_checked_are_refused(parameters: str) -> None:
    with pytest.raises(ValueError, match="kernel odd: "):
        signatures_of(f'extern "C" __global__ void odd({parameters}) {{}}', "unsigned char")
