"""Networks that were found to be sound in FP16 in all their nodes and for batches of any size: the built-in ones.

Finding that out takes seconds of a first run. `tests/models/graph/test_proven_fp16.py` finds it out again.
"""

import hashlib

from segmentation.models.model import Model

# SHA-256 of the file, and the sizes (height, width) of its input.
PROVEN = {
    "9673c12d6a6d42e963ba7733710cb101c09982cf77589a89f92fe4c39a928d99": (  # person
        *((192, 336), (224, 288), (256, 256), (288, 224), (336, 192)),
    ),
    "39e02c5c14782757eee1efc5c98572e0c91a3bda4e625354ea98d8c6b808201e": (  # person-hq
        *((272, 480), (320, 416), (368, 368), (416, 320), (480, 272)),
    ),
    "a3ab755e3a0224c0f1acb4fae95173fa5aaff30f8ef8d6b3f90ce0f14531c13b": (  # person-best
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
