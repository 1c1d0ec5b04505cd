"""Networks that were found to be sound in FP16 in all their nodes and for batches of any size: the built-in ones.

Finding that out takes seconds of a first run. `tests/models/graph/test_proven_fp16.py` finds it out again.
"""

import hashlib

from segmentation.models.model import Model

# SHA-256 of the file, and the sizes (height, width) of its input.
PROVEN = {
    "7b093706751646f915ed2cdc1b076c39bde601d4412cc9da15d26cc493a266ac": (  # person
        *((192, 336), (224, 288), (256, 256), (288, 224), (336, 192)),
    ),
    "acf07a670dbd299fd7cadbeefd565380865cea45fabc173bd0994da95e65743c": (  # person-hq
        *((272, 480), (320, 416), (368, 368), (416, 320), (480, 272)),
    ),
}
_HALF = (0.5, 0.5, 0.5)


def is_proven(model: Model) -> bool:
    """Returns whether the network's FP16 graph was compared with FP32, and keeps no node in FP32."""
    if (model.mean, model.std, model.channel_order) != (_HALF, _HALF, "rgb"):
        return False  # its values may be larger
    sizes = PROVEN.get(hashlib.sha256(model.path.read_bytes()).hexdigest(), ())
    return (model.height, model.width) in sizes
