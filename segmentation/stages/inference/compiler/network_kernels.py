"""Names the kernels that a network's layers run, and those that read the outputs of networks of single things."""

from segmentation.frames.instances import EDGE, MOST
from segmentation.gpu.kernels import KernelSource

# Side, stride and dilation of the convolutions of each channel by itself that there are kernels for.
FORMS = {(3, 1, 1), (3, 2, 1), (3, 1, 2), (5, 1, 1), (5, 2, 1)}
EIGHT, WIDE = 8, 4  # channels, 16 bytes, and places beside each other that a thread makes
DEPTHWISE = KernelSource(
    files=("stages/inference/compiler/depthwise.cu",), constants=(("EIGHT", EIGHT), ("WIDE", WIDE))
)

MOST_COMPARED = 1024  # proposals of a picture among which non-maximum suppression chooses: those of the highest scores
PROTOTYPES = 32  # of masks: YOLO's number
INSTANCES = KernelSource(
    files=("stages/masks/sampling.cu", "stages/inference/instances/instances.cu"),
    constants=(("MOST", MOST), ("COMPARED", MOST_COMPARED), ("EDGE", EDGE), ("PROTOTYPES", PROTOTYPES)),
)
