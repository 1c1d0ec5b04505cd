"""Names the kernels that a network's layers run, and those that read the outputs of networks of single things."""

from typing import NamedTuple

from segmentation.frames.instances import EDGE, MOST
from segmentation.gpu.kernels import KernelSource


class LayerForm(NamedTuple):
    """The form of a convolution of each channel by itself."""

    side: int
    stride: int
    dilation: int


EIGHT, WIDE = 8, 4  # channels, 16 bytes, and places beside each other that a thread makes
_FORMS = (
    LayerForm(3, 1, 1),
    LayerForm(3, 2, 1),
    LayerForm(3, 1, 2),
    LayerForm(5, 1, 1),
    LayerForm(5, 2, 1),
)
_HALF = "stages/inference/compiler/half.cu"


def _depthwise(form: LayerForm) -> KernelSource:
    constants = ("EIGHT", EIGHT), ("WIDE", WIDE), *((name.upper(), value) for name, value in form._asdict().items())
    return KernelSource(files=(_HALF, "stages/inference/compiler/depthwise.cu"), constants=constants)


# A program for each form: all in one take as long to compile as all one behind the other.
DEPTHWISE: dict[LayerForm, KernelSource] = {form: _depthwise(form) for form in _FORMS}


class SeparableForm(NamedTuple):
    """The channels of a convolution of 1x1 before one of each channel by itself, and the squares of the pool behind."""

    inputs: int
    outputs: int
    pool: int = 1


def tile_of(form: SeparableForm) -> tuple[int, int]:
    """Returns the places, across and down, that a block of threads computes between the two convolutions.

    The outermost are only read. Of 64 channels they fill the 48 KiB of memory that a block has, and of 16 likewise.
    """
    return (128 if form.outputs == 16 else 32), 12


def _separable(form: SeparableForm) -> KernelSource:
    sizes = dict(zip(("IN", "OUT", "POOL", "TILE_X", "TILE_Y"), (*form, *tile_of(form)), strict=True))
    constants = ("EIGHT", EIGHT), *sizes.items()
    return KernelSource(files=(_HALF, "stages/inference/compiler/separable.cu"), constants=constants)


# Of YuNet.
SEPARABLE: dict[SeparableForm, KernelSource] = {
    form: _separable(form)
    for form in (
        SeparableForm(16, 16, pool=2),
        SeparableForm(16, 16),
        SeparableForm(16, 64),
        SeparableForm(64, 64),
        SeparableForm(64, 64, pool=2),
        SeparableForm(64, 8),
    )
}

PLANES, SIDE, STRIDE = 3, 3, 2  # of a network's first convolution
STEM = KernelSource(
    files=(_HALF, "stages/inference/compiler/stem.cu"),
    constants=(("EIGHT", EIGHT), ("WIDE", WIDE), ("PLANES", PLANES), ("SIDE", SIDE), ("STRIDE", STRIDE)),
)

MOST_COMPARED = 1024  # proposals of a picture among which non-maximum suppression chooses: those of the highest scores
PROTOTYPES = 32  # of masks: YOLO's number
INSTANCES = KernelSource(
    files=("stages/masks/sampling.cu", "stages/inference/instances/instances.cu"),
    constants=(("MOST", MOST), ("COMPARED", MOST_COMPARED), ("EDGE", EDGE), ("PROTOTYPES", PROTOTYPES)),
)
