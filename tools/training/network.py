"""The network that is trained: an encoder that is mostly MobileNetV2's, and a decoder back to half the input's size.

From 1/4 of the input's size on, the encoder is that of Sandler et al., 2018, https://arxiv.org/abs/1801.04381, with
ReLU for ReLU6 (GPUs do a convolution and a ReLU in one kernel). It begins with the weights of a teacher: DeepLabv3 with
MobileNetV2. Two dense convolutions, which learn to put out the same, replace the first three blocks.
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

    blocks: int  # of MobileNetV2
    widths: tuple[int, int, int, int]  # the decoder's channels at 1/16, 1/8, 1/4 and 1/2
    shapes: tuple[tuple[int, int], ...]  # heights and widths that it is trained for; the first is the default
    early: float = 1.0  # of their sides, in the first part of the training: smaller pictures take less time


SIZES = {
    "person": Size(14, (96, 48, 32, 16), ((256, 448), (288, 384), (336, 336), (384, 288), (448, 256))),
    # For those who have a GPU or patience.
    "person-hq": Size(17, (192, 96, 48, 16), ((352, 640), (416, 544), (480, 480), (544, 416), (640, 352)), early=0.7),
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


class Network(nn.Module):
    """RGB (N, 3, H, W), normalised by `MEAN` and `STD`, to logits (N, 1, H, W). H and W are multiples of 16."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.stem = Stem()
        blocks, width = [], STEM[1]
        for number, (expansion, channels, stride) in enumerate(BLOCKS[FIRST : size.blocks], FIRST):
            blocks.append(Block(width, channels, expansion, stride, dilation=2 if number >= 14 else 1))
            width = channels
        self.blocks = nn.ModuleList(blocks)
        deep, *rest = size.widths
        self.near, self.whole = conv(width, deep, 1, relu=False), nn.Conv2d(width, deep, 1)
        self.around = conv(deep, deep, 5, groups=deep)
        fine = BLOCKS[EIGHTH][1], STEM[1], STEM[0]
        self.joins = nn.ModuleList(map(Join, (deep, *rest), fine, rest))
        self.logits = nn.Conv2d(rest[-1], 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.decoded(*self.encoded(x))

    def encoded(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """The map of 1/16 of the size, (N, `widths[0]`, H / 16, W / 16), and the encoder's of 1/8, 1/4 and 1/2."""
        half, quarter = self.stem(x)
        x = quarter
        for number, block in enumerate(self.blocks, FIRST):
            x = block(x)
            if number == EIGHTH:
                eighth = x
        x = F.relu(self.near(x) + self.whole(F.adaptive_avg_pool2d(x, 1)))
        return self.around(x), (eighth, quarter, half)

    def decoded(self, x: Tensor, skips: tuple[Tensor, Tensor, Tensor]) -> Tensor:
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
            x = x + before if stride == 1 and x.shape == before.shape else x
        return x


class DeepLab(nn.Module):
    """The teacher whole: logits (N, 21, H / 16, W / 16) of Pascal VOC's classes, for normalised RGB (N, 3, H, W)."""

    def __init__(self, weights: list[tuple[np.ndarray, np.ndarray]]) -> None:
        super().__init__()
        self.encoder = Teacher(weights, len(BLOCKS))
        # In the file's order: each place, the mean of all, both together, the classes.
        self.near, self.whole, self.both, self.classes = (
            nn.Conv2d(weight.shape[1], len(weight), 1) for weight, _ in weights[-4:]
        )
        for layer, (weight, bias) in zip((self.near, self.whole, self.both, self.classes), weights[-4:], strict=True):
            layer.weight.data, layer.bias.data = torch.from_numpy(weight), torch.from_numpy(bias)
        self.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.encoder(x)
        whole = F.relu(self.whole(F.adaptive_avg_pool2d(x, 1))).expand(-1, -1, *x.shape[2:])
        x = torch.cat([whole, F.relu(self.near(x))], 1)
        return self.classes(F.relu(self.both(x)))


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
def begin_with(network: Network, weights: list[tuple[np.ndarray, np.ndarray]], pictures: Tensor) -> None:
    """Gives the encoder's blocks the weights of the teacher, whose normalisation is folded into them.

    Each normalisation is set to what leaves normalised `pictures` (N, 3, H, W) as the teacher makes them: its scale and
    shift undo the mean and deviation that it takes away.
    """
    x = Teacher(weights, FIRST).to(pictures.device)(pictures)
    skipped = 1 + sum(2 + (expansion > 1) for expansion, _, _ in BLOCKS[:FIRST])
    left = iter(weights[skipped:])
    for block in network.blocks:
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
