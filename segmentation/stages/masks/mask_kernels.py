"""Names the kernels that smooth and refine masks, compiled for the constants of the host's implementation."""

from segmentation.gpu.kernels import KernelSource
from segmentation.stages.masks import refinement, smoothing

MASKS = KernelSource(
    files=("stages/masks/masks.cu",),
    constants=(
        ("REACH", smoothing.REACH),
        ("BLOCK", smoothing.BLOCK),
        ("CHANGE", smoothing.CHANGE),
        ("CHANGE_BOX", smoothing.CHANGE_BOX),
        ("DOUBT", smoothing.DOUBT),
        ("DOUBT_BOX", smoothing.DOUBT_BOX),
        ("CUT", smoothing.CUT),
        ("BOX", refinement.BOX),
        ("EPSILON", refinement.EPSILON),
        ("MISFIT", refinement.MISFIT),
        ("REFINED", refinement.DOUBT[0]),
        ("UNREFINED", refinement.DOUBT[1]),
    ),
)
