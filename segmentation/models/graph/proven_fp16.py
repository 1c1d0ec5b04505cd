"""Networks that were found to be sound in FP16 in all their nodes and for batches of any size: the built-in ones.

Finding that out takes seconds of a first run. `tests/models/graph/test_proven_fp16.py` finds it out again.
"""

import hashlib

from segmentation.models.model import Model

# SHA-256 of the file, and the sizes (height, width) of its input.
PROVEN = {
    "e4171f6791b1118823620dcc1728010fb70e2c77457b70e59eea06c896781d58": (  # person
        *((192, 336), (224, 288), (256, 256), (288, 224), (336, 192)),
    ),
    "ec8e068b6f05f6bcdc7fdb01d13c75478ece4b38b6121e5ba0b84b4b531f8fcc": (  # person-hq
        *((272, 480), (320, 416), (368, 368), (416, 320), (480, 272)),
    ),
    "e6e30e1ede7bb962dd607b69c286810e0637f604e86854c5a5f2861fd75e3e14": (  # person-best
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
