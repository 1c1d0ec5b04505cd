"""The meaning of the inputs and outputs of well-known networks, whose files do not state it.

The keys are those of a model's metadata, see `models/model.py`. An option, the file's metadata and the .json beside the
file take precedence. Types with a `task` find single things, see `models/detection.py`.
"""

from collections.abc import Sequence
from typing import Protocol

SEGMENTATION = "segmentation"  # the task of networks that give each pixel a score or a class
BACKGROUNDS = ("background", "__background__")  # labels that are no thing
Meaning = dict[str, object]  # by keys of a model's metadata; values as JSON has them
_RAW: Meaning = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0), "channel_order": "rgb"}
_CENTERED: Meaning = {**_RAW, "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
_IMAGENET: Meaning = {**_RAW, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
_YOLO: Meaning = {"fit": "letterbox", "boxes": "cxcywh-pixels", "score_threshold": 0.25}
_ULTRAFACE: Meaning = {
    "mean": (127 / 255, 127 / 255, 127 / 255),
    "std": (128 / 255, 128 / 255, 128 / 255),
    "channel_order": "rgb",
    "task": "ssd",
    "fit": "squash",
    "boxes": "xyxy",
    "score_threshold": 0.7,
    "nms": 0.3,
}
VOC = tuple(
    "background aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike person "
    "pottedplant sheep sofa train tvmonitor".split()
)

# Microsoft COCO's classes by their numbers from 1 on, of which some were never used.
COCO91 = tuple(
    "background,person,bicycle,car,motorcycle,airplane,bus,train,truck,boat,traffic light,fire hydrant,N/A,stop sign,"
    "parking meter,bench,bird,cat,dog,horse,sheep,cow,elephant,bear,zebra,giraffe,N/A,backpack,umbrella,N/A,N/A,"
    "handbag,tie,suitcase,frisbee,skis,snowboard,sports ball,kite,baseball bat,baseball glove,skateboard,surfboard,"
    "tennis racket,bottle,N/A,wine glass,cup,fork,knife,spoon,bowl,banana,apple,sandwich,orange,broccoli,carrot,"
    "hot dog,pizza,donut,cake,chair,couch,potted plant,bed,N/A,dining table,N/A,N/A,toilet,N/A,tv,laptop,mouse,remote,"
    "keyboard,cell phone,microwave,oven,toaster,sink,refrigerator,N/A,book,clock,vase,scissors,teddy bear,hair drier,"
    "toothbrush".split(",")
)
COCO80 = tuple(label for label in COCO91[1:] if label != "N/A")

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
    # roboflow/rf-detr, detr.py: ImageNet's mean and std, a square without regard to the shape, threshold 0.5.
    "rf-detr": {
        **_IMAGENET,
        "task": "rf-detr",
        "labels": COCO91,
        "fit": "squash",
        "boxes": "cxcywh",
        "score_threshold": 0.5,
    },
    # open-mmlab/mmdetection, configs/rtmdet/rtmdet-ins_l_8xb32-300e_coco.py: BGR, a gray border; drawn from 0.3 on.
    "rtmdet-ins": {
        **_IMAGENET,
        "task": "rtmdet-ins",
        "channel_order": "bgr",
        "labels": COCO80,
        "fit": "letterbox",
        "boxes": "xyxy-pixels",
        "score_threshold": 0.3,
    },
    # The documented defaults of the exports' own predictor: threshold 0.25, IoU 0.7, a gray border.
    "yolo-seg": {**_RAW, "task": "yolo-seg", "labels": COCO80, **_YOLO, "nms": 0.7},
    "yolo": {**_RAW, "task": "yolo", "labels": COCO80, **_YOLO, "nms": 0.7},
    "yolov5": {**_RAW, "task": "yolov5", "labels": COCO80, **_YOLO, "nms": 0.45},
    # pytorch/vision, models/detection/mask_rcnn.py: RGB in 0..1, which the network normalizes and resizes by itself.
    "mask-rcnn": {
        **_RAW,
        "task": "mask-rcnn",
        "labels": COCO91,
        "fit": "squash",
        "boxes": "xyxy-pixels",
        "score_threshold": 0.5,
        "input_size": [[450, 800], [600, 800], [800, 800], [800, 600], [800, 450]],
    },
    # ShiqiYu/libfacedetection.train: BGR in 0..255, sides in multiples of 32, NMS at 0.45.
    "yunet": {
        **_RAW,
        "task": "yunet",
        "std": (1 / 255, 1 / 255, 1 / 255),
        "channel_order": "bgr",
        "labels": ("face",),
        "fit": "letterbox",
        "boxes": "cxcywh-pixels",
        "score_threshold": 0.6,
        "nms": 0.45,
        "input_size": [[384, 640], [480, 640], [640, 640], [640, 480], [640, 384]],
    },
    # Linzaer/Ultra-Light-Fast-Generic-Face-Detector-1MB, vision/ssd/config/fd_config.py and its demos: threshold 0.7.
    "ultraface": {**_ULTRAFACE, "labels": ("background", "face")},
    "ultraface-masked": {**_ULTRAFACE, "labels": ("background", "bare", "masked")},
}

# What is assumed of a network that finds single things, by its task: a type's, or what several types have in common.
TASKS: dict[str, Meaning] = {
    **{name: meaning for name, meaning in TYPES.items() if meaning.get("task") == name},
    "ssd": {"task": "ssd", "fit": "squash", "boxes": "xyxy", "score_threshold": 0.5, "nms": 0.45},
    "classifier": {"task": "classifier", "fit": "squash"},
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
    if {node.name for node in outputs} == {"scores", "boxes"} and picture[1:] in ([3, 240, 320], [3, 480, 640]):
        classes = next(node.shape[-1] for node in outputs if node.name == "scores")
        return {2: "ultraface", 3: "ultraface-masked"}.get(classes) if isinstance(classes, int) else None
    if len(shapes) == 7 and all(len(shape) == 4 and shape[1] == 1 for shape in shapes) and picture[1:2] == [3]:
        return "u2net"
    small = picture[1:] in ([256, 256, 3], [144, 256, 3])
    if small and len(shapes) == 1 and shapes[0][1:] == [*picture[1:3], 1] and inputs[0].type == "tensor(float)":
        return "selfie"
    return None
