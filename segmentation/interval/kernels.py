"""Names the kernels that propagate masks, compiled for the constants of `propagation.py`.

They are a program of their own, apart from the other kernels on masks, because few runs need them.
"""

from segmentation.gpu.kernels import KernelSource
from segmentation.interval import propagation
from segmentation.stages.masks.mask_kernels import BLOCK_ROWS

PROPAGATION = KernelSource(
    files=("stages/masks/sampling.cu", "stages/masks/sums.cu", "interval/propagation.cu"),
    constants=(
        *BLOCK_ROWS,
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
