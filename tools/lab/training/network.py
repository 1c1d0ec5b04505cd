"""The networks that are trained: a teacher as an encoder that does not learn, and a decoder to half the input's size.

The teacher is DeepLabv3 (Chen et al., 2017, https://arxiv.org/abs/1706.05587) with MobileNetV2 (Sandler et al., 2018,
https://arxiv.org/abs/1801.04381), trained for Pascal VOC's 21 classes.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

MEAN, STD = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)  # of the encoder: RGB in -1..1
# Expansion, channels and stride of MobileNetV2's blocks; the output stays at 1/16 of the input's size.
BLOCKS = [(1, 16, 1), (6, 24, 2), (6, 24, 1), (6, 32, 2), *[(6, 32, 1)] * 2, (6, 64, 2), *[(6, 64, 1)] * 3]
BLOCKS += [*[(6, 96, 1)] * 3, *[(6, 160, 1)] * 3, (6, 320, 1)]
HALF, QUARTER, EIGHTH, MIDDLE = 0, 2, 5, 12  # the last blocks at 1/2, 1/4 and 1/8 of the size, one at 1/16
DILATED = 14  # blocks from here on look twice as far
STRIDE = 16  # of the encoder's last maps
CLASSES, BACKGROUND, PERSON = 21, 0, 15  # the teacher's, and two of them
# Taken from the logits where the teacher is sure of an animal or a thing, and where it is sure that nobody is within
# reach; less where it is less sure.
VETO = 4.0
REACH = 7  # places to a side, of 16 pixels
SEEN = 0.2  # says the teacher of a person, at least, where somebody may be

Skips = tuple[Tensor, Tensor, Tensor]  # the encoder's maps of 1/8, 1/4 and 1/2 of the size


@dataclass(frozen=True)
class Size:
    """What tells one network from another."""

    widths: tuple[int, int, int, int]  # the decoder's channels at 1/16, 1/8, 1/4 and 1/2
    deeper: int  # at how many of these sizes, from 1/16 on, it looks around once more
    shapes: tuple[tuple[int, int], ...]  # heights and widths that it is trained for; the first is the default
    early: float = 1.0  # of their sides, in the first part of the training: smaller pictures take less time


SIZES = {
    "person": Size((128, 64, 32, 16), 1, ((192, 336), (224, 288), (256, 256), (288, 224), (336, 192))),
    # For those who have a GPU or patience.
    "person-hq": Size((192, 64, 48, 16), 2, ((272, 480), (320, 416), (368, 368), (416, 320), (480, 272)), early=0.7),
}


def conv(inputs: int, outputs: int, kernel: int = 3, groups: int = 1, relu: bool = True) -> nn.Sequential:
    """Convolution, batch normalisation (folded into the convolution on export), and mostly a ReLU."""
    layers = [
        nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, momentum=0.02),
    ]
    return nn.Sequential(*layers, nn.ReLU(inplace=True)) if relu else nn.Sequential(*layers)


class Join(nn.Module):
    """A step of the decoder: the coarse map, doubled, plus the encoder's map of that size."""

    def __init__(self, coarse: int, fine: int, width: int) -> None:
        super().__init__()
        self.coarse, self.fine, self.merge = (
            conv(coarse, width, 1, relu=False),
            conv(fine, width, 1, relu=False),
            conv(width, width),
        )

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        return self.merge(F.relu(F.interpolate(self.coarse(x), scale_factor=2.0, mode="nearest") + self.fine(skip)))


class Residual(nn.Module):
    """A map, plus what a further convolution finds in it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = conv(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layer(x)


class Network(nn.Module):
    """RGB (N, 3, H, W), normalised by `MEAN` and `STD`, to logits (N, 1, H, W). H and W are multiples of 16."""

    def __init__(self, size: Size, encoder: "DeepLab") -> None:
        super().__init__()
        self.encoder = encoder
        width, *fine = encoder.channels
        deep, *rest = size.widths
        self.near, self.whole = conv(width, deep, 1, relu=False), nn.Conv2d(width, deep, 1)
        self.around = conv(deep, deep, 5, groups=deep)
        self.joins = nn.ModuleList(map(Join, (deep, *rest), fine, rest))
        self.deeper = nn.ModuleList(
            Residual(width) if i < size.deeper else nn.Identity() for i, width in enumerate(size.widths)
        )
        self.logits = nn.Conv2d(rest[-1], 1, 1)
        taken, person = torch.full((1, CLASSES + 1, 1, 1), -VETO), torch.zeros(1, CLASSES, 1, 1)
        taken[0, [BACKGROUND, PERSON]], person[0, PERSON] = 0, 1
        constants = {
            "taken": taken,
            "person": person,
            "unseen": torch.full((1, 1, 1, 1), -1 / SEEN),
            "one": torch.ones(1),
        }
        for name, value in constants.items():
            self.register_buffer(name, value, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x, skips, classes = self.encoder(x)
        return self.decoded(x, skips) + self.veto(classes)

    def decoded(self, x: Tensor, skips: Skips) -> Tensor:
        """Logits (N, 1, H, W) of what the encoder finds."""
        x = self.around(F.relu(self.near(x) + self.whole(F.adaptive_avg_pool2d(x, 1))))
        first, *rest = self.deeper
        x = first(x)
        for join, skip, deeper in zip(self.joins, skips, rest, strict=True):
            x = deeper(join(x, skip))
        return enlarged(self.logits(x), 2)

    def veto(self, classes: Tensor) -> Tensor:
        """What is added to the logits, (N, 1, H, W), at most 0, by the teacher's `classes` (N, 21, H / 16, W / 16)."""
        shares = classes.softmax(1)
        near = F.max_pool2d(F.conv2d(shares, self.person), REACH, 1, REACH // 2)
        nobody = F.relu(F.conv2d(near, self.unseen, self.one))  # 1 - near / SEEN, as a convolution
        return enlarged(F.conv2d(torch.cat([shares, nobody], 1), self.taken), STRIDE)


def enlarged(x: Tensor, scale: float) -> Tensor:
    """A map of one channel, bilinearly."""
    # ONNX Runtime computes a convolution, and what follows it, for 16 channels at a time. A mean over the only
    # channel leaves the 15 empty ones behind: on a CPU what follows then takes a fifth of the time.
    x = x.mean(1, keepdim=True)
    return F.interpolate(x, scale_factor=float(scale), mode="bilinear", align_corners=False)


class DeepLab(nn.Module):
    """The teacher as it was trained: of normalised RGB (N, 3, H, W), what it knows at 1/16 of the size, and finer maps.

    `weights` are those of its convolutions, see `teacher_weights`; normalisation is folded into them.
    """

    # Of the maps at 1/16, 1/8, 1/4 and 1/2. At 1/8 and 1/4 they are the ones that the next block widens.
    channels = 256 + BLOCKS[-1][1] + BLOCKS[MIDDLE][1], 6 * BLOCKS[EIGHTH][1], 6 * BLOCKS[QUARTER][1], BLOCKS[HALF][1]

    def __init__(self, weights: list[tuple[np.ndarray, np.ndarray]]) -> None:
        super().__init__()
        # In the file's order: the blocks, each place, the mean of all, both together, the classes.
        *blocks, near, whole, both, classes = weights
        self.layers = nn.ModuleList(as_layer(*pair) for pair in blocks)
        self.near, self.whole, self.classes = (as_layer(*pair) for pair in (near, whole, classes))
        # A layer that takes the mean's channels, and after them those of each place, is the sum of two.
        (weight, bias), means = both, len(whole[0])
        self.of_whole = as_layer(weight[:, :means], bias)
        self.of_near = as_layer(weight[:, means:], None)
        self.requires_grad_(False)

    def forward(self, x: Tensor) -> tuple[Tensor, Skips, Tensor]:
        """Also logits (N, 21, H / 16, W / 16) of Pascal VOC's classes."""
        maps, widened = self.maps(x)
        both = self.both(maps[-1])
        skips = widened[EIGHTH + 1], widened[QUARTER + 1], maps[HALF]
        return torch.cat([both, maps[-1], maps[MIDDLE]], 1), skips, self.classes(both)

    def named(self, x: Tensor) -> Tensor:
        """Logits (N, 21, H / 16, W / 16) of Pascal VOC's classes."""
        return self(x)[-1]

    def maps(self, x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Each block's result, and what it looks at: widen, look around in each channel, narrow."""
        found, widened = [], []
        layers = iter(self.layers)
        x = F.relu6(strided(next(layers), x, 2))
        for number, (expansion, channels, stride) in enumerate(BLOCKS):
            before = x
            if expansion > 1:
                x = F.relu6(next(layers)(x))
            widened.append(x)
            depthwise = next(layers)
            if number >= DILATED:
                depthwise.dilation = depthwise.padding = (2, 2)
            x = next(layers)(F.relu6(strided(depthwise, x, stride)))
            if stride == 1 and depthwise.in_channels == 6 * channels:
                x = x + before
            found.append(x)
        return found, widened

    def both(self, x: Tensor) -> Tensor:
        """Each place of the last block's map together with the mean of all."""
        whole = F.relu(self.whole(F.adaptive_avg_pool2d(x, 1)))
        return F.relu(self.of_near(F.relu(self.near(x))) + self.of_whole(whole))


def as_layer(weight: np.ndarray, bias: np.ndarray | None) -> nn.Conv2d:
    """A convolution with weights (out, in, h, w) and biases (out,), if any; of each channel by itself if `in` is 1."""
    outputs, inputs, height, _ = weight.shape
    groups = outputs if inputs == 1 else 1
    layer = nn.Conv2d(inputs * groups, outputs, height, padding=height // 2, groups=groups, bias=bias is not None)
    layer.weight.data = torch.from_numpy(np.ascontiguousarray(weight))
    if bias is not None:
        layer.bias.data = torch.from_numpy(bias)
    return layer


def strided(layer: nn.Conv2d, x: Tensor, stride: int) -> Tensor:
    layer.stride = (stride, stride)
    return layer(x)


def teacher_weights(path: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """Weights (out, in, h, w) and biases (out,) of the convolutions of DeepLab's `.tflite`, in order, as float32."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path))
    interpreter.allocate_tensors()
    details = {tensor["index"]: tensor for tensor in interpreter.get_tensor_details()}

    def value(index: int) -> np.ndarray:
        """A quantized constant as the number that it stands for."""
        scale, zero = details[index]["quantization"]
        return (interpreter.get_tensor(index).astype(np.float32) - zero) * np.float32(scale)

    found = []
    for operation in interpreter._get_ops_details():
        if operation["op_name"] in ("CONV_2D", "DEPTHWISE_CONV_2D"):
            weights, bias = (value(index) for index in operation["inputs"][1:3])
            order = (3, 0, 1, 2) if operation["op_name"].startswith("DEPTHWISE") else (0, 3, 1, 2)
            found.append((np.ascontiguousarray(weights.transpose(order)), bias))
    return found


class Exported(nn.Module):
    """What ends up in the file: probabilities instead of logits."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x).sigmoid()
