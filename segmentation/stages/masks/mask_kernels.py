"""Names the kernels that work on masks, compiled for the constants of the host's implementations."""

from segmentation.gpu.kernels import KernelSource
from segmentation.stages.masks import color_edge, refinement, smoothing

ROWS = 4  # pixels below each other that a thread of some kernels makes, with one set of columns
BOX_ROWS = 2  # the same of kernels that add up boxes, in shared memory
BLOCK_ROWS = (("ROWS", ROWS), ("BOX_ROWS", BOX_ROWS))
MASKS = KernelSource(
    files=("stages/masks/sampling.cu", "stages/masks/sums.cu", "stages/masks/masks.cu"),
    constants=(
        *BLOCK_ROWS,
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
        ("SMALL", refinement.SMALL[0]),
        ("LARGE", refinement.SMALL[1]),
        ("NEAR", color_edge.NEAR),
        ("SURE", color_edge.SURE),
        ("COLORS", color_edge.COLORS),
        ("FLOOR", color_edge.FLOOR),
        ("ENOUGH", color_edge.ENOUGH),
    ),
)
