"""Names the kernels that work on masks, compiled for the constants of the host's implementations.

Those that propagate masks are a program of their own, because few runs need it.
"""

from segmentation.gpu.kernels import KernelSource
from segmentation.interval import propagation
from segmentation.stages.masks import refinement, smoothing

ROWS = 4  # pixels below each other that a thread of some kernels makes, with one set of columns
BOX_ROWS = 2  # the same of kernels that add up boxes, in shared memory
_ROWS = (("ROWS", ROWS), ("BOX_ROWS", BOX_ROWS))
MASKS = KernelSource(
    files=("stages/masks/sampling.cu", "stages/masks/sums.cu", "stages/masks/masks.cu"),
    constants=(
        *_ROWS,
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
PROPAGATION = KernelSource(
    files=("stages/masks/sampling.cu", "stages/masks/sums.cu", "interval/propagation.cu"),
    constants=(
        *_ROWS,
        ("FARTHEST", max(propagation.RADII)),
        ("NEAREST", min(propagation.RADII)),
        ("BOX", propagation.BOX),
        ("STEP", propagation.STEP),
        ("FLOW_BOX", propagation.FLOW_BOX),
        ("RESIDUAL_BOX", propagation.RESIDUAL_BOX),
        ("RESIDUAL", propagation.RESIDUAL),
        ("UNLIKE", propagation.UNLIKE),
        ("SMALLEST", propagation.SMALLEST),
    ),
)
