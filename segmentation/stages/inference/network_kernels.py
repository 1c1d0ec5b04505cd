"""Names the kernels that a network's layers run."""

from segmentation.gpu.kernels import KernelSource

# Side, stride and dilation of the convolutions of each channel by itself that there are kernels for.
FORMS = {(3, 1, 1), (3, 2, 1), (3, 1, 2), (5, 1, 1), (5, 2, 1)}
EIGHT, WIDE = 8, 4  # channels, 16 bytes, and places beside each other that a thread makes
DEPTHWISE = KernelSource(files=("stages/inference/depthwise.cu",), constants=(("EIGHT", EIGHT), ("WIDE", WIDE)))
