"""Names the kernels that a network's layers run, and those that read the outputs of networks of single things."""

from segmentation.frames.instances import EDGE, MOST
from segmentation.gpu.kernels import KernelSource

Form = tuple[int, int, int]  # of a convolution of each channel by itself: side, stride and dilation
EIGHT, WIDE = 8, 4  # channels, 16 bytes, and places beside each other that a thread makes
_FORMS = (3, 1, 1), (3, 2, 1), (3, 1, 2), (5, 1, 1), (5, 2, 1)


def _depthwise(form: Form) -> KernelSource:
    constants = ("EIGHT", EIGHT), ("WIDE", WIDE), *zip(("SIDE", "STRIDE", "DILATION"), form, strict=True)
    return KernelSource(files=("stages/inference/compiler/depthwise.cu",), constants=constants)


# A program for each form: all in one take as long to compile as all one behind the other.
DEPTHWISE: dict[Form, KernelSource] = {form: _depthwise(form) for form in _FORMS}

MOST_COMPARED = 1024  # proposals of a picture among which non-maximum suppression chooses: those of the highest scores
PROTOTYPES = 32  # of masks: YOLO's number
INSTANCES = KernelSource(
    files=("stages/masks/sampling.cu", "stages/inference/instances/instances.cu"),
    constants=(("MOST", MOST), ("COMPARED", MOST_COMPARED), ("EDGE", EDGE), ("PROTOTYPES", PROTOTYPES)),
)
