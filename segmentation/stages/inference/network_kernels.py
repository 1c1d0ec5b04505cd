"""Names the kernels that a network's layers run."""

from segmentation.gpu.kernels import KernelSource

SIDES, STRIDES = (3, 5), (1, 2)  # of the convolutions that there are kernels for
EIGHT, WIDE = 8, 4  # channels, 16 bytes, and places beside each other that a thread makes
DEPTHWISE = KernelSource(files=("stages/inference/depthwise.cu",), constants=(("EIGHT", EIGHT), ("WIDE", WIDE)))
