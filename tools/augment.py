"""Endless new training pictures, made on the GPU from a cache of labelled frames; tools/train.py learns from them.

People are cut out, recoloured, reclothed, bent, resized and pasted onto frames, scenes and patterns, among pieces of
other things; then the whole is damaged as lights, lenses, sensors and codecs damage.
"""

import math
from pathlib import Path

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

SIZE = 256  # the network's input, pixels a side
STORED = 384  # cached pictures, pixels a side: larger than SIZE, so that zooming in has something to show
# How often a person is taken from each group of cached pictures, by what their names contain.
GROUPS = {"signing": 0.45, "walking": 0.3, "portrait": 0.25}


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
        self.nobody = load(sorted(cache.glob("nobody-*.webp")))
        self.aspect = torch.tensor([int(path.name.split("-")[1]) / 1000 for path in paths], device=device)
        groups = [next(group for group in GROUPS if group in path.name) for path in paths]
        self.weight = torch.tensor([GROUPS[group] / groups.count(group) for group in groups], device=device)
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
        """Indices of n frames with people, from each group as often as GROUPS says."""
        return torch.multinomial(self.weight, n, replacement=True)

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

    def ground(self, n: int, frames: float, nobody: float) -> tuple[Tensor, Tensor, Tensor]:
        """What others are pasted on, zoomed: labelled frames and empty rooms in these shares, else scenes or patterns.

        Returns RGB, the mask of people, and which pictures are of empty rooms, (n, 1, 1, 1) 0 or 1.
        """
        kind = torch.rand(n, device=self.device)
        empty = (1 - kind < nobody).view(n, 1, 1, 1)
        index = self.pick(n)
        scenes = self.scenes[torch.randint(len(self.scenes), (n,), device=self.device)]
        rooms = self.nobody[torch.randint(len(self.nobody), (n,), device=self.device)]
        rgba = torch.where((kind < frames).view(n, 1, 1, 1), self.people[index], torch.where(empty, rooms, scenes))
        zoom = torch.rand(n, 1, device=self.device) ** 0.7 * 0.65 + 0.35
        stretch = torch.exp(0.2 * torch.randn(n, 2, device=self.device))
        scale = (zoom * stretch).clamp(max=1)
        scale[: n // 4] = 1  # a quarter of the pictures whole
        empty = empty.float()
        center = (torch.rand(n, 2, device=self.device) * 2 - 1) * (1 - scale)
        # A third of the time look where a person's head and shoulders would be, or are.
        bust = self.center[index] - self.half[index] * torch.tensor([0.0, 0.5], device=self.device)
        bust = torch.minimum(torch.maximum(bust, scale - 1), 1 - scale)
        center = torch.where(torch.rand(n, 1, device=self.device) < 0.35, bust, center)
        scale[:, 0] *= torch.randn(n, device=self.device).sign()
        rgba = self.warp(rgba, scale, center, torch.zeros_like(scale), 0.08, "reflection")
        plain = (kind >= frames) & (kind < frames + (1 - frames - nobody) * 0.4)
        plain = plain.float().view(n, 1, 1, 1)
        return torch.lerp(rgba[:, :3], self.pattern(n), plain), rgba[:, 3:] * (1 - plain), empty

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
        piece, _, _ = self.ground(n, frames=0, nobody=0.1)
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
    def batch(self, n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """New pictures (n, 3, 256, 256) RGB in 0..1, and where the people in them are (n, 1, 256, 256) in 0..1.

        Then, (n, 1, 1, 1) 0 or 1: which show an empty room behind whoever was pasted, into which people were pasted.
        """
        rgb, mask, empty = self.ground(n, frames=0.45, nobody=0.14)
        rgb, pasted = self.recolour(rgb, 0.6), torch.zeros_like(empty)
        for layer, value, probability in [
            (self.things, 0, 0.15),
            (self.things, 0, 0.15),
            (self.cutouts, 1, 0.45),
            (self.cutouts, 1, 0.25),
            (self.cutouts, 1, 0.12),
        ]:
            some = torch.randperm(n, device=self.device)[: math.ceil(n * probability)]
            colour, alpha = layer(len(some))
            rgb[some] = torch.lerp(rgb[some], colour, alpha)
            mask[some] = torch.lerp(mask[some], torch.full_like(alpha, value), alpha)
            if value:
                pasted[some] = 1
        return self.damage(rgb), mask, empty, pasted
