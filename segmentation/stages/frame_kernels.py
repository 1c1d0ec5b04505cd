"""Names the kernels that stages run on frames. They are one program, because a run then waits for one compilation."""

from segmentation.gpu.kernels import KernelSource
from segmentation.stages.preprocess import GRAY

COMPOSITE_ROWS = 4  # chroma samples below each other that a thread of `composite` makes, with one set of columns
FRAMES = KernelSource(
    files=(
        "stages/decode/unpack.cu",
        "stages/preprocess/preprocess.cu",
        "stages/preprocess/crops.cu",
        "stages/postprocess/background.cu",
        "stages/postprocess/composite.cu",
        "stages/preprocess/colors.cu",
        "stages/encode/to_rgb.cu",
        "stages/encode/surfaces.cu",
    ),
    constants=(("ROWS", COMPOSITE_ROWS), ("GRAY", GRAY)),
)
