"""Train the built-in model `person`: distil a portrait model into a network a tenth of its cost.

    python tools/train.py --seed 1            # clips -> cache -> training -> segmentation/models/person.onnx

Three steps, read top to bottom: (1) sample frames of the clips and label them once with the teacher; (2) on the
GPU, make every training picture new: people cut out, recoloured, resized, pasted before other backgrounds, and
damaged as cameras and codecs damage; (3) fit the student to the pasted masks and to what the teacher says of the
same picture, and export the averaged weights. Needs PyTorch, OpenCV, ONNX and ONNX Runtime; PyAV and scikit-image
only while the cache is made.
"""

import argparse
import copy
import json
import math
import time
from pathlib import Path

import cv2
import numpy as np
import onnx
import onnxruntime
import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIZE = 256  # the network's input, pixels a side
STORED = 384  # cached pictures, pixels a side: larger than SIZE, so that zooming in has something to show
MEAN, STD = [0.5, 0.5, 0.5], [0.25, 0.25, 0.25]

# Everybody in these clips may be learned from. The man in signing-eat, -night and -sister is held out for evaluation.
PEOPLE = ["person-walking.mp4"] + [
    f"signing-{word}.mkv" for word in "again book brother help hungry learn no school student walk want yes".split()
]
# Nobody is in these: they are backgrounds, and pictures of nobody.
SCENES = """dog_eating_854132.mp4 bbb_1920x1080_60fps_vp8.webm bear-vp9-odd-dimensions.webm bt709_full_range.mp4
    h264_10bits.mp4 hdr10-av1.mp4 hlg10-color-test.mp4 portrait_4k60.mp4 fixture-raw.mts sample_h264.ts video_90.mov
    var_fps_video.mp4""".split()
PHOTOS = """brick.png chelsea.png coffee.png coins.png color.png grass.png gravel.png hubble_deep_field.jpg ihc.png
    moon.png motorcycle_left.png page.png retina.jpg rocket.jpg text.png""".split()


# ----------------------------------------------------------------------------------------------------- the student


def conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1, relu: bool = True) -> nn.Module:
    """Convolution, batch normalisation (folded into the convolution on export), and mostly a ReLU."""
    layers = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, nn.ReLU(inplace=True)) if relu else nn.Sequential(*layers)


class Residual(nn.Module):
    """Two dense 3x3 convolutions around a shortcut: per FLOP the fastest block on a CPU with wide vectors."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(width, width), conv(width, width, relu=False))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.body(x))


class Inverted(nn.Module):
    """Widen, look around with a depthwise 5x5, narrow: few weights and a large view, for the small maps."""

    def __init__(self, width: int) -> None:
        super().__init__()
        wide = 2 * width
        self.body = nn.Sequential(
            conv(width, wide, 1), conv(wide, wide, 5, groups=wide), conv(wide, width, 1, relu=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class Context(nn.Module):
    """Adds to each place what a 4x4 grid of averages over the whole picture says."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = conv(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.interpolate(self.mix(F.avg_pool2d(x, 4)), scale_factor=4, mode="nearest")


class Join(nn.Module):
    """One step of the decoder: the coarse map, doubled, plus the encoder's map of that size."""

    def __init__(self, coarse: int, fine: int, width: int) -> None:
        super().__init__()
        self.coarse, self.fine, self.merge = conv(coarse, width, 1), conv(fine, width, 1), conv(width, width)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        return self.merge(F.interpolate(self.coarse(x), scale_factor=2, mode="nearest") + self.fine(skip))


class Student(nn.Module):
    """(N, 3, 256, 256) normalised RGB -> (N, 1, 256, 256) logits. Maps of 1/2, 1/4, 1/8 and 1/16 the size, and back."""

    def __init__(self, widths: list[int], blocks: list[int], decoder: list[int]) -> None:
        super().__init__()
        a, b, c, d = widths
        e, f, g = decoder
        self.down2 = conv(3, a, stride=2)
        self.down4 = nn.Sequential(conv(a, b, stride=2), *[Residual(b) for _ in range(blocks[0])])
        self.down8 = nn.Sequential(conv(b, c, stride=2), *[Residual(c) for _ in range(blocks[1])])
        self.down16 = nn.Sequential(conv(c, d, stride=2), *[Inverted(d) for _ in range(blocks[2])], Context(d))
        self.to_eighth, self.to_quarter, self.to_half = Join(d, c, e), Join(e, b, f), Join(f, a, g)
        self.head = nn.ConvTranspose2d(g, 1, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        half = self.down2(x)
        quarter = self.down4(half)
        eighth = self.down8(quarter)
        x = self.to_eighth(self.down16(eighth), eighth)
        return self.head(self.to_half(self.to_quarter(x, quarter), half))


class Exported(nn.Module):
    """The student as it is shipped: probabilities instead of logits."""

    def __init__(self, student: Student) -> None:
        super().__init__()
        self.student = student

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.student(x))


# ----------------------------------------------------------------------------------------------------- the teacher


class Teacher(nn.Module):
    """Runs the teacher's ONNX graph in PyTorch, where the augmented pictures are. Knows the five operators it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        graph = onnx.load(path).graph
        self.names = {tensor.name: f"weight{i}" for i, tensor in enumerate(graph.initializer)}
        for tensor in graph.initializer:
            self.register_buffer(self.names[tensor.name], torch.tensor(onnx.numpy_helper.to_array(tensor)))
        self.nodes = [
            (n.op_type, list(n.input), n.output[0], {a.name: onnx.helper.get_attribute_value(a) for a in n.attribute})
            for n in graph.node
        ]
        self.input, self.output = graph.input[0].name, graph.output[0].name

    def once(self, rgb: Tensor) -> Tensor:
        values = {self.input: rgb}
        for kind, inputs, output, attributes in self.nodes:
            x, *rest = [values[name] if name in values else getattr(self, self.names[name]) for name in inputs]
            if kind == "Conv":
                top, left, bottom, right = attributes.get("pads", [0, 0, 0, 0])
                x = F.conv2d(
                    F.pad(x, (left, right, top, bottom)),
                    *rest,
                    stride=attributes["strides"],
                    groups=attributes["group"],
                )
            elif kind == "ConvTranspose":
                x = F.conv_transpose2d(x, *rest, stride=attributes["strides"])
                top, left, bottom, right = attributes["pads"]
                x = x[..., top : x.shape[-2] - bottom, left : x.shape[-1] - right]
            else:
                x = {"Relu": torch.relu, "Sigmoid": torch.sigmoid, "Add": torch.add}[kind](x, *rest)
            values[output] = x
        return values[self.output]

    @torch.no_grad()
    def forward(self, rgb: Tensor) -> Tensor:
        """(N, 3, 256, 256) RGB in 0..1 -> (N, 1, 256, 256) probability, its and its mirror image's mean."""
        return (self.once(rgb) + self.once(rgb.flip(-1)).flip(-1)) / 2


# -------------------------------------------------------------------------------------------------------- the data


def label(session: onnxruntime.InferenceSession, rgb: np.ndarray) -> np.ndarray:
    """The teacher's mask of a picture (H, W, 3) uint8 -> (256, 256) probability, averaged over mirror images."""
    small = cv2.resize(rgb, (SIZE, SIZE), interpolation=cv2.INTER_AREA).astype(np.float32) / 255
    batch = np.stack([small, small[:, ::-1]]).transpose(0, 3, 1, 2)
    mask = session.run(None, {session.get_inputs()[0].name: batch})[0][:, 0]
    return (mask[0] + mask[1][:, ::-1]) / 2


def store(path: Path, rgb: np.ndarray, mask: np.ndarray | None = None) -> None:
    """Write a picture, squashed to a square, as WebP: three channels, or four with the person's mask as alpha."""
    picture = cv2.cvtColor(cv2.resize(rgb, (STORED, STORED), interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2BGR)
    if mask is not None:
        picture = np.dstack([picture, np.rint(cv2.resize(mask, (STORED, STORED)) * 255).astype(np.uint8)])
    cv2.imwrite(str(path), picture, [cv2.IMWRITE_WEBP_QUALITY, 92])


def extract(clips: Path, corpus: Path, teacher: Path, cache: Path) -> None:
    """Fill `cache` with person-<aspect>-*.webp (labelled frames) and scene-*.webp (pictures of nobody)."""
    import av  # not needed where the cache is already made
    import skimage

    cache.mkdir(parents=True)
    session = onnxruntime.InferenceSession(teacher, providers=["CPUExecutionProvider"])
    for name in PEOPLE:
        step = 3 if name == "person-walking.mp4" else 2
        with av.open(clips / name) as container:
            for index, frame in enumerate(container.decode(video=0)):
                if index % step:
                    continue
                rgb = frame.to_ndarray(format="rgb24")
                mask = label(session, rgb)
                if (mask > 0.5).mean() > 0.03:  # so the empty room between two walkers is never trained on
                    aspect = round(1000 * frame.width / frame.height)
                    store(cache / f"person-{aspect}-{Path(name).stem}-{index:05}.webp", rgb, mask)
    for name in SCENES:
        with av.open(corpus / name) as container:
            frames = [f for _, f in zip(range(150), container.decode(video=0), strict=False)]
        for index in np.unique(np.linspace(0, len(frames) - 1, 6).astype(int)):
            store(cache / f"scene-{Path(name).stem}-{index:05}.webp", frames[index].to_ndarray(format="rgb24"))
    for name in PHOTOS:
        photo = cv2.imread(str(Path(skimage.__file__).parent / "data" / name))
        store(cache / f"scene-{Path(name).stem}.webp", cv2.cvtColor(photo, cv2.COLOR_BGR2RGB))


class Pictures:
    """The cache on the GPU, and endless new training pictures made from it."""

    def __init__(self, cache: Path, device: torch.device) -> None:
        def load(paths: list[Path]) -> Tensor:  # -> (N, 4, STORED, STORED) uint8 RGBA
            pictures = [cv2.imread(str(path), cv2.IMREAD_UNCHANGED) for path in paths]
            pictures = [p if p.shape[2] == 4 else np.dstack([p, np.zeros_like(p[..., 0])]) for p in pictures]
            rgba = np.stack([cv2.cvtColor(p, cv2.COLOR_BGRA2RGBA) for p in pictures])
            return torch.from_numpy(rgba.transpose(0, 3, 1, 2).copy()).to(device)

        paths = sorted(cache.glob("person-*.webp"))
        self.people, self.scenes = load(paths), load(sorted(cache.glob("scene-*.webp")))
        self.aspect = torch.tensor([int(path.name.split("-")[1]) / 1000 for path in paths], device=device)
        self.walkers = torch.tensor(["walking" in path.name for path in paths], device=device)
        boxes = []
        for alpha in self.people[:, 3]:
            ys, xs = torch.nonzero(alpha > 127, as_tuple=True)
            boxes.append(torch.stack([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]))
        boxes = torch.stack(boxes).float() / STORED * 2 - 1  # in grid_sample's coordinates, -1..1
        self.center, self.half = (boxes[:, :2] + boxes[:, 2:]) / 2, (boxes[:, 2:] - boxes[:, :2]) / 2
        self.device = device

    # Random numbers, one a picture, shaped (N, 1, 1, 1) so that they broadcast over pictures.
    def uniform(self, n: int, low: float, high: float) -> Tensor:
        return torch.rand(n, 1, 1, 1, device=self.device) * (high - low) + low

    def chance(self, n: int, probability: float) -> Tensor:
        return (torch.rand(n, 1, 1, 1, device=self.device) < probability).float()

    def pick(self, n: int) -> Tensor:
        """Indices of n frames with people: a third walkers, seen from behind, the others facing the camera."""
        weight = self.walkers / self.walkers.sum() + 2 * ~self.walkers / (~self.walkers).sum()
        return torch.multinomial(weight, n, replacement=True)

    def noise(self, n: int, channels: int, size: int = SIZE) -> Tensor:
        """Clouds of every fineness, from smooth gradients to grain: (n, channels, size, size), unit variance or so."""
        fade, amount = self.uniform(n, 0.4, 1.0), 1.0
        out = torch.randn(n, channels, 2, 2, device=self.device)
        while out.shape[-1] < size:
            out, amount = F.interpolate(out, scale_factor=2, mode="bilinear"), amount * fade
            out = out + amount * torch.randn_like(out)
        return out / out.std((1, 2, 3), keepdim=True)

    def pattern(self, n: int) -> Tensor:
        """Pictures of nothing: clouds before flat colours, stripes, checks and panels; (n, 3, 256, 256) in 0..1."""
        clouds = self.noise(n, 3)
        clouds = torch.lerp(clouds, clouds.mean(1, keepdim=True), self.uniform(n, 0, 1)) * self.uniform(n, 0, 0.4)
        ramp = torch.linspace(0, 2 * math.pi, SIZE, device=self.device)
        wave_x = torch.sin(
            ramp.view(1, 1, 1, -1) * self.uniform(n, 0, 20) + ramp.view(1, 1, -1, 1) * self.uniform(n, -9, 9)
        )
        wave_y = torch.sin(ramp.view(1, 1, -1, 1) * self.uniform(n, 0, 20) + self.uniform(n, 0, 6))
        waves = torch.lerp(wave_x, wave_x * wave_y, self.chance(n, 0.5)).mul(self.uniform(n, 1, 9)).clamp(-1, 1)
        tint = torch.randn(n, 3, 1, 1, device=self.device) * 0.2
        base = torch.rand(n, 3, 1, 1, device=self.device)
        out = base + waves * tint * self.chance(n, 0.3)
        axis = torch.linspace(-1, 1, SIZE, device=self.device)
        for _ in range(6):
            x, y = axis.view(1, 1, 1, -1) - self.uniform(n, -1, 1), axis.view(1, 1, -1, 1) - self.uniform(n, -1, 1)
            panel = (
                (x.abs() < self.uniform(n, 0, 0.7)) & (y.abs() < self.uniform(n, 0, 0.9)) & (self.chance(n, 0.4) > 0)
            )
            out = torch.where(panel, torch.rand(n, 3, 1, 1, device=self.device), out)
        return (out + clouds).clamp(0, 1)

    def recolour(self, rgb: Tensor, strength: float) -> Tensor:
        """Change hue, saturation, contrast, brightness and gamma of each picture by its own amounts."""
        n = len(rgb)
        grey = torch.tensor([0.299, 0.587, 0.114], device=self.device).view(1, 3, 1, 1)
        wild = self.chance(n, 0.25 * strength)  # now and then any hue at all
        angle = torch.lerp(0.25 * strength * torch.randn_like(wild), self.uniform(n, -math.pi, math.pi), wild)
        # Turn around the grey axis (Rodrigues' formula).
        axis = torch.full((1, 3, 1, 1), 1 / math.sqrt(3), device=self.device).expand_as(rgb)
        turned = (
            rgb * angle.cos()
            + torch.linalg.cross(axis, rgb, dim=1) * angle.sin()
            + axis * (axis * rgb).sum(1, keepdim=True) * (1 - angle.cos())
        )
        luma = (turned * grey).sum(1, keepdim=True)
        rgb = luma + (turned - luma) * self.uniform(n, 1 - 0.9 * strength, 1 + 0.7 * strength)
        middle = rgb.mean((1, 2, 3), keepdim=True)
        rgb = middle + (rgb - middle) * self.uniform(n, 1 - 0.5 * strength, 1 + 0.5 * strength)
        gain = 1 + 0.15 * strength * torch.randn(n, 3, 1, 1, device=self.device)
        rgb = rgb * gain + 0.15 * strength * torch.randn(n, 1, 1, 1, device=self.device)
        return rgb.clamp(1e-4, 1) ** torch.exp(0.4 * strength * torch.randn(n, 1, 1, 1, device=self.device))

    def warp(self, rgba: Tensor, scale: Tensor, center: Tensor, shift: Tensor, turn: float, padding: str) -> Tensor:
        """Sample pictures through `source = center + scale * R (target - shift)`, (n, 2) in -1..1; bend a little."""
        n = len(rgba)
        angle = torch.randn(n, device=self.device) * turn
        rotate = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], -1).view(n, 2, 2)
        matrix = scale[:, :, None] * rotate
        offset = center - (matrix @ shift[:, :, None])[..., 0]
        # Sampled at twice the size and averaged, so that people pasted small do not alias.
        grid = F.affine_grid(
            torch.cat([matrix, offset[:, :, None]], 2), [n, 4, 2 * SIZE, 2 * SIZE], align_corners=False
        )
        bend = torch.randn(n, 2, 5, 5, device=self.device) * 0.04 * scale.abs()[:, :, None, None] * self.chance(n, 0.5)
        grid = grid + F.interpolate(bend, grid.shape[1:3], mode="bicubic").permute(0, 2, 3, 1)
        return F.avg_pool2d(F.grid_sample(rgba.float() / 255, grid, padding_mode=padding, align_corners=False), 2)

    def ground(self, n: int, frames: float) -> tuple[Tensor, Tensor]:
        """What others are pasted on, zoomed: labelled frames in this share, else a scene or a pattern: RGB and mask."""
        kind = torch.rand(n, device=self.device)
        index = self.pick(n)
        scenes = self.scenes[torch.randint(len(self.scenes), (n,), device=self.device)]
        rgba = torch.where((kind < frames).view(n, 1, 1, 1), self.people[index], scenes)
        zoom = torch.rand(n, 1, device=self.device) ** 0.7 * 0.65 + 0.35
        stretch = torch.exp(0.2 * torch.randn(n, 2, device=self.device))
        scale = (zoom * stretch).clamp(max=1)
        center = (torch.rand(n, 2, device=self.device) * 2 - 1) * (1 - scale)
        # A third of the time look where a person's head and shoulders would be, or are.
        bust = self.center[index] - self.half[index] * torch.tensor([0.0, 0.5], device=self.device)
        bust = torch.minimum(torch.maximum(bust, scale - 1), 1 - scale)
        center = torch.where(torch.rand(n, 1, device=self.device) < 0.35, bust, center)
        scale[:, 0] *= torch.randn(n, device=self.device).sign()
        rgba = self.warp(rgba, scale, center, torch.zeros_like(scale), 0.08, "reflection")
        plain = (kind > 1 - (1 - frames) * 0.4).float().view(n, 1, 1, 1)
        return torch.lerp(rgba[:, :3], self.pattern(n), plain), rgba[:, 3:] * (1 - plain)

    def cutouts(self, n: int) -> tuple[Tensor, Tensor]:
        """People somewhere in an empty picture, in clothes of new colours: RGB (n, 3, ...), mask (n, 1, ...)."""
        index = self.pick(n)
        center, half = self.center[index], self.half[index]
        high = torch.exp(torch.empty(n, device=self.device).uniform_(math.log(0.25), math.log(2.4)))
        # Every picture is squashed to a square, so a person's proportions depend on the picture's.
        picture = torch.exp(torch.empty(n, device=self.device).uniform_(math.log(0.56), math.log(1.9)))
        wide = high * half[:, 0] / half[:, 1] * self.aspect[index] / picture
        top = torch.rand(n, device=self.device) * 1.15 - 0.95
        middle = (torch.rand(n, device=self.device) * 2 - 1) * (1 - high).clamp(min=0.2)
        shift = torch.stack(
            [
                torch.rand(n, device=self.device) * 1.7 - 0.85,
                torch.where(torch.rand(n, device=self.device) < 0.6, top + high, middle),
            ],
            1,
        )
        scale = half / torch.stack([wide * torch.randn(n, device=self.device).sign(), high], 1)
        rgba = self.warp(self.people[index], scale, center, shift, 0.1, "zeros")
        # Few people wear few clothes, so what is below the head gets new colours and textures.
        neck = (shift[:, 1] - high + 2 * high * torch.empty_like(high).uniform_(0.15, 0.35)).view(n, 1, 1, 1)
        row = torch.linspace(-1, 1, SIZE, device=self.device).view(1, 1, SIZE, 1)
        below = torch.sigmoid((row - neck) * 30) * self.chance(n, 0.6)
        cloth = self.recolour(rgba[:, :3], 1.0)
        folds = cloth.mean(1, keepdim=True) + 0.1
        folds = folds / (
            (folds * rgba[:, 3:]).sum((2, 3), keepdim=True) / (rgba[:, 3:].sum((2, 3), keepdim=True) + 1) + 0.05
        )
        woven = (self.pattern(n) * folds.clamp(max=2)).clamp(0, 1)
        cloth = torch.lerp(cloth, woven, self.uniform(n, -0.8, 1).clamp(min=0))
        return torch.lerp(self.recolour(rgba[:, :3], 0.6), cloth, below), rgba[:, 3:]

    def things(self, n: int) -> tuple[Tensor, Tensor]:
        """Pieces of other pictures, shapeless or turned like bottles and vases: an outline alone is no person."""
        blob = F.interpolate(self.noise(n, 1, 64), (SIZE, SIZE), mode="bilinear") - self.uniform(n, 0.8, 2.0)
        axis = torch.linspace(-1, 1, SIZE, device=self.device)
        x = (axis.view(1, 1, 1, SIZE) - self.uniform(n, -0.9, 0.9)).abs()
        y = (axis.view(1, 1, SIZE, 1) - self.uniform(n, -0.6, 0.6)).abs()
        girth = F.interpolate(torch.rand(n, 1, 7, 1, device=self.device), (SIZE, 1), mode="bicubic")
        turned = torch.minimum(girth * self.uniform(n, 0.1, 0.5) - x, self.uniform(n, 0.2, 0.9) - y) * 8
        lathe = self.chance(n, 0.6)
        alpha = torch.sigmoid(torch.lerp(blob, turned, lathe) * self.uniform(n, 5, 40)) * self.uniform(
            n, 0.4, 1.6
        ).clamp(max=1)
        piece, _ = self.ground(n, frames=0)
        shade = 1 - (x / girth.clamp(min=0.1)).clamp(max=2) * lathe * self.uniform(n, -0.3, 0.5)
        return (self.recolour(piece, 1.0) * shade).clamp(0, 1), alpha

    def damage(self, rgb: Tensor) -> Tensor:
        """Light, lens, sensor and codec: uneven light, blur, lost resolution, noise, and quantised 8x8 blocks."""
        n = len(rgb)
        light = F.interpolate(torch.randn(n, 1, 3, 3, device=self.device), (SIZE, SIZE), mode="bicubic")
        rgb = rgb * torch.exp(light * self.uniform(n, 0, 0.4) * self.chance(n, 0.4))
        rgb = self.recolour(rgb, 0.6)
        kernel = torch.tensor([1.0, 4, 6, 4, 1], device=self.device)
        kernel = (kernel[:, None] * kernel / 256).expand(3, 1, 5, 5)
        soft = F.conv2d(rgb, kernel, padding=2, groups=3)
        softer = F.conv2d(soft, kernel, padding=4, dilation=2, groups=3)
        rgb = torch.lerp(rgb, torch.lerp(soft, softer, self.uniform(n, 0, 1)), self.uniform(n, -1, 1).clamp(min=0))
        low = F.interpolate(
            F.interpolate(rgb, scale_factor=float(torch.empty(1).uniform_(0.3, 0.8)), mode="bilinear"),
            (SIZE, SIZE),
            mode="bilinear",
        )
        rgb = torch.lerp(rgb, low, self.chance(n, 0.15))
        grain = torch.randn_like(rgb)
        rgb = rgb + torch.lerp(grain, grain.mean(1, keepdim=True), self.chance(n, 0.5)) * self.uniform(
            n, -0.06, 0.08
        ).clamp(min=0)
        some = torch.randperm(n, device=self.device)[: n // 3]
        k = torch.arange(8, device=self.device)
        dct = torch.cos(math.pi / 8 * (k[None] + 0.5) * k[:, None]) * 0.5
        dct[0] /= math.sqrt(2)
        blocks = rgb[some].view(-1, 3, SIZE // 8, 8, SIZE // 8, 8).transpose(3, 4)
        step = (0.01 + 0.02 * (k[:, None] + k)) * self.uniform(len(some), 0.2, 2).view(-1, 1, 1, 1, 1, 1)
        blocks = dct.T @ (torch.round(dct @ blocks @ dct.T / step) * step) @ dct
        rgb[some] = blocks.transpose(3, 4).reshape(-1, 3, SIZE, SIZE)
        return rgb.clamp(0, 1)

    @torch.no_grad()
    def batch(self, n: int) -> tuple[Tensor, Tensor]:
        """New pictures (n, 3, 256, 256) RGB in 0..1, and where the people in them are (n, 1, 256, 256) in 0..1."""
        rgb, mask = self.ground(n, frames=0.4)
        rgb = self.recolour(rgb, 0.6)
        for layer, value, probability in [
            (self.things, 0, 0.15),
            (self.things, 0, 0.15),
            (self.cutouts, 1, 0.55),
            (self.cutouts, 1, 0.3),
            (self.cutouts, 1, 0.15),
        ]:
            some = torch.randperm(n, device=self.device)[: math.ceil(n * probability)]
            colour, alpha = layer(len(some))
            rgb[some] = torch.lerp(rgb[some], colour, alpha)
            mask[some] = torch.lerp(mask[some], torch.full_like(alpha, value), alpha)
        return self.damage(rgb), mask


# ---------------------------------------------------------------------------------------------------- the training


def target(mask: Tensor, teacher: Tensor, doubt: float) -> Tensor:
    """What the student shall say: mostly the pasted mask, in part the teacher's opinion of the same picture.

    Away from people the teacher's opinion weighs `doubt`, under one half: it takes bottles and dogs for persons.
    """
    near = F.max_pool2d((mask > 0.1).float(), 9, stride=1, padding=4)
    return torch.lerp(mask, teacher, doubt + (0.4 - doubt) * near)


def loss_of(logits: Tensor, wanted: Tensor) -> Tensor:
    """Cross-entropy, five times as heavy along outlines, plus one minus the soft IoU of each picture."""
    edge = F.max_pool2d(wanted, 5, stride=1, padding=2) + F.max_pool2d(-wanted, 5, stride=1, padding=2)
    entropy = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
    found = torch.sigmoid(logits)
    both, either = (found * wanted).sum((1, 2, 3)), (found + wanted - found * wanted).sum((1, 2, 3))
    return (entropy * (1 + 4 * edge)).mean() + (1 - (both + 50) / (either + 50)).mean() * 0.5


def export(student: Student, path: Path) -> None:
    """Write the student as ONNX, batch of any size, with the metadata from which a program knows how to use it."""
    model = Exported(student).cpu().float().eval()
    torch.onnx.export(
        model,
        (torch.zeros(1, 3, SIZE, SIZE),),
        str(path),
        input_names=["input"],
        output_names=["mask"],
        dynamic_axes={"input": {0: "N"}, "mask": {0: "N"}},
        opset_version=17,
        dynamo=False,
    )
    graph = onnx.load(path)
    onnx.helper.set_model_props(
        graph,
        {
            "labels": json.dumps(["person"]),
            "mean": json.dumps(MEAN),
            "std": json.dumps(STD),
            "channel_order": "RGB",
            "activation": "none",
            "description": "Person segmentation: probability that a pixel shows a person",
            "license": "Apache-2.0",
            "author": "segmentation contributors",
        },
    )
    onnx.checker.check_model(graph, full_check=True)
    onnx.save(graph, path)


def train(options: argparse.Namespace) -> None:
    torch.manual_seed(options.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    half = torch.autocast(device.type, torch.bfloat16)

    pictures = Pictures(options.cache, device)
    teacher = Teacher(options.teacher).to(device).eval()
    ask = torch.compile(teacher) if device.type == "cuda" else teacher
    student = Student(options.widths, options.blocks, options.decoder).to(device, memory_format=torch.channels_last)
    average = copy.deepcopy(student)
    optimizer = torch.optim.AdamW(student.parameters(), lr=options.rate, weight_decay=0.03, fused=device.type == "cuda")
    warm = 200
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, 0.5 + 0.5 * math.cos(math.pi * min(step / options.steps, 1)))
    )
    mean, std = (torch.tensor(v, device=device).view(1, 3, 1, 1) for v in (MEAN, STD))
    weights = sum(p.numel() for p in student.parameters())
    print(
        f"{len(pictures.people)} frames of people, {len(pictures.scenes)} scenes; {weights} weights; {device}",
        flush=True,
    )

    # A new picture costs more than a step, so each is used about `reuse` times, at random, while it stays in the pool.
    pool = torch.empty(options.pool, 4, SIZE, SIZE, dtype=torch.uint8, device=device)
    made = 0

    def make() -> None:
        nonlocal made
        rgb, mask = pictures.batch(options.batch)
        with half:
            opinion = ask(rgb).float()
        place = torch.arange(made, made + options.batch, device=device) % options.pool
        pool[place] = torch.cat([rgb, target(mask, opinion, options.doubt)], 1).mul(255).round().byte()
        made += options.batch

    begin, total = time.time(), torch.zeros((), device=device)
    while made < min(options.pool, 32 * options.batch):
        make()
    for step in range(1, options.steps + 1):
        if step % options.reuse == 0:
            make()
        chosen = pool[torch.randint(min(made, options.pool), (options.batch,), device=device)].float() / 255
        rgb, wanted = chosen[:, :3], chosen[:, 3:]
        with half:
            logits = student(((rgb - mean) / std).contiguous(memory_format=torch.channels_last)).float()
        loss = loss_of(logits, wanted)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 5 == 0:
            fresh = 1 - min(0.995, step / (step + 50))  # a young average forgets its random start quickly
            for kept, new in zip(average.state_dict().values(), student.state_dict().values(), strict=True):
                kept.copy_(torch.lerp(kept, new, fresh) if kept.is_floating_point() else new)
        total += loss.detach()
        if step % options.report == 0 or step == options.steps:
            loss_mean = total.item() / ((step - 1) % options.report + 1)
            print(f"step {step}  loss {loss_mean:.4f}  {time.time() - begin:.0f} s", flush=True)
            total.zero_()
            export(copy.deepcopy(average), options.out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clips", type=Path, default=Path("../shared/clips"), help="folder with the clips of people")
    parser.add_argument("--corpus", type=Path, default=Path("../shared/corpus"), help="folder with clips of nobody")
    parser.add_argument("--teacher", type=Path, default=Path("../shared/models/prisma-portrait.onnx"))
    parser.add_argument("--cache", type=Path, default=Path("build/train-cache"), help="made if it does not exist")
    parser.add_argument("--out", type=Path, default=Path("segmentation/models/person.onnx"))
    parser.add_argument("--widths", type=int, nargs=4, default=[16, 32, 64, 96], help="channels at 1/2, 1/4, 1/8, 1/16")
    parser.add_argument("--blocks", type=int, nargs=3, default=[2, 1, 3], help="blocks at 1/4, 1/8, 1/16")
    parser.add_argument("--decoder", type=int, nargs=3, default=[48, 32, 16], help="channels at 1/8, 1/4, 1/2")
    parser.add_argument("--steps", type=int, default=5700, help="0: make the cache and stop")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--pool", type=int, default=65536, help="augmented pictures held on the GPU")
    parser.add_argument("--reuse", type=int, default=4, help="steps to every new batch of pictures")
    parser.add_argument("--doubt", type=float, default=0.25, help="weight of the teacher's opinion away from people")
    parser.add_argument("--rate", type=float, default=3e-3, help="highest learning rate")
    parser.add_argument("--report", type=int, default=500, help="steps between reports and exports")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if not options.cache.exists():
        extract(options.clips, options.corpus, options.teacher, options.cache)
    if options.steps:
        train(options)


if __name__ == "__main__":
    main()
