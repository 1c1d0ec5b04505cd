"""The meaning of the inputs and outputs of well-known networks, whose files do not state it.

The keys are those of a model's metadata, see `models/model.py`. An option, the file's metadata and the .json beside the
file take precedence.
"""

from collections.abc import Sequence
from typing import Protocol

Meaning = dict[str, object]  # by keys of a model's metadata; values as JSON has them
_RAW: Meaning = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0), "channel_order": "rgb"}
_CENTERED: Meaning = {**_RAW, "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
_IMAGENET: Meaning = {**_RAW, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
VOC = tuple(
    "background aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike person "
    "pottedplant sheep sofa train tvmonitor".split()
)

TYPES: dict[str, Meaning] = {
    # PeterL1n/RobustVideoMatting, documentation/inference.md: RGB in 0..1, alpha in `pha`, states that begin as zeros
    # of (1, 1, 1, 1), and a ratio of 1 for pictures of up to 512 pixels a side, whence the sizes.
    "rvm": {
        **_RAW,
        "labels": ("person",),
        "activation": "none",
        "model_output": "pha",
        "model_inputs": {"downsample_ratio": 1.0},
        "input_size": [[288, 512], [384, 512], [512, 512], [512, 384], [512, 288]],
    },
    # ZHKKKe/MODNet, onnx/inference_onnx.py: (x - 127.5) / 127.5, the shorter side 512, sides in multiples of 32.
    "modnet": {
        **_CENTERED,
        "labels": ("person",),
        "activation": "none",
        "input_size": [[512, 896], [512, 672], [512, 512], [672, 512], [896, 512]],
    },
    # xuebinqin/U-2-Net, u2net_test.py and data_loader.py: 320x320, ImageNet's mean and std, the first of seven outputs,
    # brought to 0..1 by its least and largest value (`normPRED`).
    "u2net": {
        **_IMAGENET,
        "labels": ("object",),
        "activation": "minmax",
        "model_output": 0,
        "input_size": [320, 320],
    },
    # xuebinqin/DIS, IS-Net/Inference.py: x - 0.5, 1024x1024, the first output, brought to 0..1 likewise.
    "isnet": {
        **_CENTERED,
        "std": (1.0, 1.0, 1.0),
        "labels": ("object",),
        "activation": "minmax",
        "model_output": 0,
        "input_size": [1024, 1024],
    },
    # ZhengPeng7/BiRefNet, README and tutorials: ImageNet's mean and std, 1024x1024, the sigmoid of the last output.
    "birefnet": {
        **_IMAGENET,
        "labels": ("object",),
        "activation": "sigmoid",
        "model_output": -1,
        "input_size": [1024, 1024],
    },
    # google-ai-edge/mediapipe, selfie_segmentation.md and its model card: RGB in 0..1, channels last, 256x256 or, for
    # landscapes, 144x256; the person's probability.
    "selfie": {**_RAW, "labels": ("person",), "activation": "none"},
    # PaddlePaddle/PaddleSeg, contrib/PP-HumanSeg: (x - 0.5) / 0.5, background and person. Exports end in a softmax or
    # an argmax. The size is that of the portrait network of version 1; others want --input-size.
    "pphumanseg": {**_CENTERED, "labels": ("background", "person"), "input_size": [224, 398]},
    # pytorch/vision, models/segmentation/deeplabv3.py and fcn.py: ImageNet's mean and std, 520 pixels, logits of Pascal
    # VOC's classes in the first output (`out`, before `aux`).
    "deeplab": {**_IMAGENET, "labels": VOC, "model_output": 0, "input_size": [520, 520]},
    # tensorflow/models, research/deeplab: x / 127.5 - 1, 513 pixels; frozen graphs take bytes and put out
    # class numbers.
    "deeplab-tf": {**_CENTERED, "labels": VOC, "input_size": [513, 513]},
}


class Tensor(Protocol):
    """An input or output of a network, as ONNX Runtime's `NodeArg` describes it."""

    name: str
    shape: list[int | str | None]  # a name or `None` stands for a side that is dynamic
    type: str  # such as "tensor(float)"


def recognized(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> str | None:
    """Returns the key of `TYPES` of a network with these inputs and outputs; `None` where that is not certain."""
    names, results = {node.name for node in inputs}, {node.name for node in outputs}
    if names == {"src", "r1i", "r2i", "r3i", "r4i", "downsample_ratio"} and results >= {"pha", "r1o", "r2o", "r3o"}:
        return "rvm"
    if len(inputs) != 1:
        return None
    shapes = [list(node.shape) for node in outputs]
    picture = list(inputs[0].shape)
    if len(shapes) == 7 and all(len(shape) == 4 and shape[1] == 1 for shape in shapes) and picture[1:2] == [3]:
        return "u2net"
    small = picture[1:] in ([256, 256, 3], [144, 256, 3])
    if small and len(shapes) == 1 and shapes[0][1:] == [*picture[1:3], 1] and inputs[0].type == "tensor(float)":
        return "selfie"
    return None
