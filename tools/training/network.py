"""The networks that are trained: an encoder, and a decoder back to half the input's size.

The encoder of `person` is mostly MobileNetV2's (Sandler et al., 2018, https://arxiv.org/abs/1801.04381) from 1/4 of the
input's size on, with ReLU for ReLU6 (GPUs do a convolution and a ReLU in one kernel). It begins with the weights of a
teacher: DeepLabv3 with MobileNetV2. Two dense convolutions, which learn to put out the same, replace the first three
blocks. The encoder of `person-hq` is the teacher itself, which stays as it is.
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
FIRST = 3  # blocks that are replaced
EIGHTH = 5  # the last block at 1/8 of the size
STEM = 16, 24  # channels at 1/2 and 1/4 of the size


@dataclass(frozen=True)
class Size:
    """What tells one network from another."""

    blocks: int | None  # of MobileNetV2, which are trained; None: the encoder is the teacher
    widths: tuple[int, int, int, int]  # the decoder's channels at 1/16, 1/8, 1/4 and 1/2
    shapes: tuple[tuple[int, int], ...]  # heights and widths that it is trained for; the first is the default
    caution: float  # taken off the logits in the end, so that little is called person where nobody is
    early: float = 1.0  # of their sides, in the first part of the training: smaller pictures take less time


SIZES = {
    "person": Size(14, (96, 48, 32, 16), ((256, 448), (288, 384), (336, 336), (384, 288), (448, 256)), 0.4),
    # For those who have a GPU or patience.
    "person-hq": Size(
        None, (128, 64, 48, 16), ((272, 480), (320, 416), (368, 368), (416, 320), (480, 272)), 0.0, early=0.7
    ),
}


def conv(
    inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1, dilation: int = 1, relu: bool = True
) -> nn.Sequential:
    """Convolution, batch normalisation (folded into the convolution on export), and mostly a ReLU."""
    padding = dilation * (kernel // 2)
    layers = [
        nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, groups, bias=False),
        nn.BatchNorm2d(outputs, momentum=0.02),
    ]
    return nn.Sequential(*layers, nn.ReLU(inplace=True)) if relu else nn.Sequential(*layers)


class Block(nn.Module):
    """MobileNetV2's inverted residual: widen, look around in each channel, narrow."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int, dilation: int) -> None:
        super().__init__()
        wide = expansion * inputs
        layers = [conv(inputs, wide, 1)] if expansion > 1 else []
        layers += [conv(wide, wide, 3, stride, groups=wide, dilation=dilation), conv(wide, outputs, 1, relu=False)]
        self.layers = nn.Sequential(*layers)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.adds else self.layers(x)


class Stem(nn.Module):
    """What comes before the blocks: maps of 1/2 and of 1/4 of the size."""

    def __init__(self) -> None:
        super().__init__()
        self.first = conv(3, STEM[0], 3, 2)
        self.second = conv(STEM[0], 48, 3, 2)
        self.out = conv(48, STEM[1], 1, relu=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        half = self.first(x)
        return half, self.out(self.second(half))


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


Skips = tuple[Tensor, Tensor, Tensor]  # an encoder's maps of 1/8, 1/4 and 1/2 of the size


class Encoder(nn.Module):
    """Normalised RGB (N, 3, H, W) to a map of 1/16 of the size, and the finer ones on the way."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.stem = Stem()
        blocks, width = [], STEM[1]
        for number, (expansion, channels, stride) in enumerate(BLOCKS[FIRST:count], FIRST):
            blocks.append(Block(width, channels, expansion, stride, dilation=2 if number >= 14 else 1))
            width = channels
        self.blocks = nn.ModuleList(blocks)
        self.channels = width, BLOCKS[EIGHTH][1], STEM[1], STEM[0]  # at 1/16, 1/8, 1/4 and 1/2

    def forward(self, x: Tensor) -> tuple[Tensor, Skips]:
        half, quarter = self.stem(x)
        x = quarter
        for number, block in enumerate(self.blocks, FIRST):
            x = block(x)
            if number == EIGHTH:
                eighth = x
        return x, (eighth, quarter, half)


class Network(nn.Module):
    """RGB (N, 3, H, W), normalised by `MEAN` and `STD`, to logits (N, 1, H, W). H and W are multiples of 16."""

    def __init__(self, size: Size, encoder: "Encoder | DeepLab") -> None:
        super().__init__()
        self.encoder = encoder
        width, *fine = encoder.channels
        deep, *rest = size.widths
        self.near, self.whole = conv(width, deep, 1, relu=False), nn.Conv2d(width, deep, 1)
        self.around = conv(deep, deep, 5, groups=deep)
        self.joins = nn.ModuleList(map(Join, (deep, *rest), fine, rest))
        self.logits = nn.Conv2d(rest[-1], 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.decoded(*self.encoded(x))

    def encoded(self, x: Tensor) -> tuple[Tensor, Skips]:
        """The map of 1/16 of the size, (N, `widths[0]`, H / 16, W / 16), and the encoder's of 1/8, 1/4 and 1/2."""
        x, skips = self.encoder(x)
        x = F.relu(self.near(x) + self.whole(F.adaptive_avg_pool2d(x, 1)))
        return self.around(x), skips

    def decoded(self, x: Tensor, skips: Skips) -> Tensor:
        for join, skip in zip(self.joins, skips, strict=True):
            x = join(x, skip)
        # ONNX Runtime computes a convolution, and what follows it, for 16 channels at a time. A mean over the only
        # channel leaves the 15 empty ones behind: on a CPU what follows then takes a fifth of the time.
        x = self.logits(x).mean(1, keepdim=True)
        return F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)


class Teacher(nn.Module):
    """The teacher's encoder as it was trained, normalisation folded into convolutions: the stem learns from it."""

    def __init__(self, weights: list[tuple[np.ndarray, np.ndarray]], blocks: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for weight, bias in weights[: 1 + sum(2 + (e > 1) for e, _, _ in BLOCKS[:blocks])]:
            depthwise = weight.shape[1] == 1
            layer = nn.Conv2d(
                len(weight) if depthwise else weight.shape[1],
                len(weight),
                weight.shape[2],
                padding=weight.shape[2] // 2,
                groups=len(weight) if depthwise else 1,
            )
            layer.weight.data, layer.bias.data = torch.from_numpy(weight), torch.from_numpy(bias)
            self.layers.append(layer)
        self.blocks = blocks
        self.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """The last block's result for normalised RGB (N, 3, H, W)."""
        return self.maps(x)[-1]

    def maps(self, x: Tensor) -> list[Tensor]:
        """Each block's result for normalised RGB (N, 3, H, W)."""
        found = []
        layers = iter(self.layers)
        x = F.relu6(strided(next(layers), x, 2))
        for number, (expansion, _, stride) in enumerate(BLOCKS[: self.blocks]):
            before = x
            if expansion > 1:
                x = F.relu6(next(layers)(x))
            depthwise = next(layers)
            depthwise.dilation = depthwise.padding = (2, 2) if number >= 14 else (1, 1)
            x = F.relu6(strided(depthwise, x, stride))
            x = next(layers)(x)
            x = x + before if stride == 1 and x.shape[1] == before.shape[1] else x
            found.append(x)
        return found


class DeepLab(nn.Module):
    """The teacher whole, for normalised RGB (N, 3, H, W): what it knows at 1/16 of the size, and its finer maps."""

    channels = 256 + BLOCKS[-1][1], BLOCKS[EIGHTH][1], BLOCKS[2][1], BLOCKS[0][1]  # at 1/16, 1/8, 1/4 and 1/2

    def __init__(self, weights: list[tuple[np.ndarray, np.ndarray]]) -> None:
        super().__init__()
        self.encoder = Teacher(weights, len(BLOCKS))
        # In the file's order: each place, the mean of all, both together, the classes.
        near, whole, both, classes = weights[-4:]
        self.near, self.whole, self.classes = (as_layer(*pair) for pair in (near, whole, classes))
        # A layer that takes the mean's channels, and after them those of each place, is the sum of two.
        (weight, bias), means = both, len(whole[0])
        self.of_whole = as_layer(weight[:, :means], bias)
        self.of_near = as_layer(weight[:, means:], None)
        self.requires_grad_(False)

    def forward(self, x: Tensor) -> tuple[Tensor, Skips]:
        maps = self.encoder.maps(x)
        return torch.cat([self.both(maps[-1]), maps[-1]], 1), (maps[EIGHTH], maps[2], maps[0])

    def both(self, x: Tensor) -> Tensor:
        """Each place of the last block's map together with the mean of all."""
        whole = F.relu(self.whole(F.adaptive_avg_pool2d(x, 1)))
        return F.relu(self.of_near(F.relu(self.near(x))) + self.of_whole(whole))

    def named(self, x: Tensor) -> Tensor:
        """Logits (N, 21, H / 16, W / 16) of Pascal VOC's classes."""
        return self.classes(self.both(self.encoder(x)))


def as_layer(weight: np.ndarray, bias: np.ndarray | None) -> nn.Conv2d:
    """A convolution of 1x1 with these weights (out, in, 1, 1) and biases (out,), if any."""
    layer = nn.Conv2d(weight.shape[1], len(weight), 1, bias=bias is not None)
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


@torch.no_grad()
def begin_with(encoder: Encoder, weights: list[tuple[np.ndarray, np.ndarray]], pictures: Tensor) -> None:
    """Gives an encoder's blocks the weights of the teacher, whose normalisation is folded into them.

    Each normalisation is set to what leaves normalised `pictures` (N, 3, H, W) as the teacher makes them: its scale and
    shift undo the mean and deviation that it takes away.
    """
    x = Teacher(weights, FIRST).to(pictures.device)(pictures)
    skipped = 1 + sum(2 + (expansion > 1) for expansion, _, _ in BLOCKS[:FIRST])
    left = iter(weights[skipped:])
    for block in encoder.blocks:
        before = x
        for layers in block.layers:
            weight, bias = (torch.from_numpy(value).to(x.device) for value in next(left))
            convolution, norm = layers[0], layers[1]
            assert convolution.weight.shape == weight.shape, "the encoder is another network's"
            convolution.weight.copy_(weight)
            x = convolution(x)
            mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3)) + 1e-4
            norm.running_mean.copy_(mean)
            norm.running_var.copy_(variance)
            norm.weight.copy_((variance + norm.eps).sqrt())
            norm.bias.copy_(bias + mean)
            x = x + bias.view(1, -1, 1, 1)
            x = F.relu(x) if len(layers) > 2 else x
        x = x + before if block.adds else x


class Exported(nn.Module):
    """What ends up in the file: probabilities instead of logits."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x).sigmoid()
