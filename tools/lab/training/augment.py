"""Makes training pictures new on the GPU: crops, people pasted at all sizes, some lying, hats and helmets on heads,
animals and things beside and before people, dark before dark, light, lens, codec.

All pictures lie in GPU memory as squares of 512, 256 and 128 pixels, each in the upper left corner with its longer side
filled. A layer has five channels: RGB, how much a place is a person, and whether that is known (0: doubt). In pictures
of nobody the fourth channel is how much a place is an animal or a thing, to be pasted: whatever is pasted would else
be a person.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from data import CERTAIN, DOUBT, group
from torch import Tensor

SIDES = (512, 256, 128)  # of the squares
# How often a group of pictures is drawn, as they come and as people to be pasted; 1 if not named. Bodies are what there
# is least of, portraits what there is most of.
SHARES = {
    "portraits-house": 3.0, "portraits-gov": 2.2, "portraits-senate": 1.0, "hands-mediapipe": 2.0, "scenes-gov": 4.0,
    "scenes-detectron": 1.0, "photos-jetson": 1.5, "photos-azure": 0.8, "photos-dali": 0.5, "photos-coral": 0.4,
    "photos-tfjs": 0.6,
    "photos-imageio": 0.3, "photos-skimage": 0.15, "photos-mdn": 0.3, "things-dali": 0.3, "person-walking.mp4": 2.6,
    "tears-of-steel.mp4": 2.4, "google-paris.mp4": 2.2, "his-girl-friday.mp4": 1.6, "squats.mp4": 0.8,
    "squat-dance.mp4": 0.6,
    "pose.mp4": 0.8, "walking-group.mp4": 1.0, "retail-from-above.mp4": 0.8, "people-passing.mp4": 0.4,
    "person-bicycle-car.mp4": 1.0,
    "webcam-man.mp4": 0.3, "webcam-woman.mp4": 0.4, "asl-hand.mp4": 0.5, "04_coffee.mp4": 0.5,
    "bottle-detection.mp4": 0.5,
    "nasa_13013.mp4": 0.3, "rooms-backscrub": 0.1,
    "more-seated": 3.0, "more-hair": 1.8, "more-groups": 2.2, "more-arms": 1.0, "more-helmets": 1.8, "more-small": 0.8,
    "more-dark": 1.2, "more-hidden": 1.0, "more-carrying": 1.0, "more-wheelchair": 0.6,
}  # fmt: skip
# The same for pictures of nobody: those with animals most, 0.4 if not named.
NOBODY_SHARES = {
    "photos-dali": 3.0, "things-dali": 4.0, "photos-mdn": 2.2, "photos-coral": 1.6, "photos-jetson": 3.5,
    "nobody-gov": 1.5,
    "photos-imageio": 0.8, "photos-azure": 0.8, "scenes-gov": 0.5, "dog_eating_854132.mp4": 0.8,
    "bottle-detection.mp4": 0.8,
    "person-walking.mp4": 1.0, "street-nobody.mp4": 0.8,
    "more-nobody-animals": 2.5, "more-nobody-things": 1.8, "more-nobody-rooms": 0.8, "more-nobody-figures": 0.6,
}  # fmt: skip
SIGNING = 0.16  # of each clip of one who signs
OBJECTS = 0.2, 0.06  # of the pictures onto which an animal or a thing is pasted: behind people, before them
HATS = 0.06  # of the pictures and people that have a head: a hat or helmet is put onto one
LYING = 0.03, 0.06  # of pictures, and of pasted people: turned by a right angle
DUSK = 0.05  # of the pictures: people and what is behind them nearly as dark as each other
PIECES = 0.14  # of the pictures onto which a piece of another picture is pasted
# Bodies from head to foot: drawn more often for pasting.
BODIES = re.compile(
    r"person-walking|squat|pose\.|walking-group|photos-jetson|detectron|tears|paris|bicycle|scenes-gov|tfjs"
    r"|more-arms|more-groups|more-carrying"
)


def share(name: str) -> float:
    key = group(name)
    return SIGNING if key.startswith("signing") else SHARES.get(key, 1.0)


@dataclass
class Cutout:
    """People, or a thing, connected in a picture: where, in parts of its size, and whether its edges cut them."""

    picture: int
    box: tuple[float, float, float, float]  # left, top, right, bottom
    cut: tuple[bool, bool, bool, bool]  # at the same edges


def cutouts(index: int, target: np.ndarray) -> list[Cutout]:
    """What is shown in a picture and certain enough to be pasted."""
    sure, doubt = (target > 0.6 * CERTAIN) & (target != DOUBT), target == DOUBT
    count, labels, stats, _ = cv2.connectedComponentsWithStats((sure | doubt).astype(np.uint8))
    height, width = target.shape
    found = []
    for label in range(1, count):
        x, y, w, h, _ = stats[label]
        inside = labels == label
        area = int((inside & sure).sum())
        if area < 0.006 * sure.size or h < 0.12 * height or h < 30 or (inside & doubt).sum() > 0.3 * area or w > 4 * h:
            continue
        cut = (x <= 1, y <= 1, x + w >= width - 1, y + h >= height - 1)
        found.append(Cutout(index, (x / width, y / height, (x + w) / width, (y + h) / height), cut))
    return found


class Cutouts:
    """Cut-outs to draw from, each as often as its weight says."""

    def __init__(self, found: Sequence[Cutout], weights: np.ndarray) -> None:
        self.weights = _normal(weights)
        self.boxes = np.array([c.box for c in found], np.float32)
        self.cut = np.array([c.cut for c in found])
        self.pictures = np.array([c.picture for c in found])


class Pictures:
    """The pictures of `rows`, see `data.read`, on a GPU, and new ones made of them. Draws by `seed`.

    `things` finds how much each place of pictures (N, 3, 512, 512) in 0..1 is an animal or a thing: (N, 1, 512, 512).
    """

    def __init__(
        self,
        rows: list[dict[str, Any]],
        device: torch.device,
        seed: int,
        things: Callable[[Tensor], Tensor],
    ) -> None:
        self.device = device
        self.dtype = torch.half if device.type == "cuda" else torch.float
        self.reseed(seed)
        self.luma = torch.tensor([0.299, 0.587, 0.114], device=device).view(1, 3, 1, 1)
        weights = torch.tensor([1.0, 4, 6, 4, 1], device=device)
        self.soft = (weights[:, None] * weights / 256).expand(3, 1, 5, 5)
        squares = [np.empty((len(rows), 5, side, side), np.uint8) for side in SIDES]
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(lambda i: _kept(rows[i], [store[i] for store in squares]), range(len(rows))))
        self.sizes = np.array([target.shape for target in found], np.float32)  # height, width at 512
        self.store = [torch.from_numpy(square).to(device) for square in squares]
        self.heads = [row["heads"] for row in rows]
        targets = found
        people = np.array([((t > 125) & (t != DOUBT)).mean() for t in targets])
        shares = np.array([share(row["name"]) for row in rows])
        names = [group(row["name"]) for row in rows]
        counts = {key: names.count(key) for key in set(names)}
        weights = shares / np.array([counts[key] for key in names])
        self.with_people = np.flatnonzero(people > 0.002)
        self.without = np.flatnonzero([not t.any() for t in targets])
        self.people_weights = _normal(weights[self.with_people])
        empty = [names[i] for i in self.without]
        nobody = np.array([NOBODY_SHARES.get(key, 0.4) / empty.count(key) for key in empty])
        self.without_weights = _normal(nobody)
        found = [c for i in self.with_people for c in cutouts(i, targets[i])]
        whole = np.array([1.0 + 2.0 * (not c.cut[3]) for c in found])
        bodies = np.array([2.0 if BODIES.search(rows[c.picture]["name"]) else 1.0 for c in found])
        self.people = Cutouts(found, weights[[c.picture for c in found]] * whole * bodies)
        centers = {}
        for cutout in found:
            centers.setdefault(cutout.picture, cutout.box)
        self.interest = np.array([centers.get(i, (0.0, 0.0, 1.0, 1.0)) for i in range(len(rows))], np.float32)
        found = list(self._things(things))
        weight = dict(zip(self.without, self.without_weights, strict=True))
        self.objects = Cutouts(found, np.array([weight[c.picture] for c in found]))

    def reseed(self, seed: int) -> None:
        """Begins drawing anew."""
        self.random = np.random.default_rng(seed)
        torch.manual_seed(seed)

    def _things(self, find: Callable[[Tensor], Tensor]) -> Iterator[Cutout]:
        """Puts what `find` finds in pictures of nobody into their fourth channel; yields what can be pasted."""
        for index in torch.from_numpy(self.without).to(self.device).split(32):
            cover = (find(self.store[0][index, :3].float() / 255) * 255).round().byte()
            for store, side in zip(self.store, SIDES, strict=True):
                smaller = F.interpolate(cover.float(), (side, side), mode="area").byte()
                store[index, 3] = smaller[:, 0]
            for i, square in zip(index.tolist(), cover[:, 0].cpu().numpy(), strict=True):
                height, width = self.sizes[i].astype(int)
                yield from cutouts(i, (square[:height, :width] * (CERTAIN / 255)).astype(np.uint8))

    # ------------------------------------------------------------------------------------------------- geometry

    def there(self, array: np.ndarray) -> Tensor:
        """A copy on the GPU, which is not waited for."""
        return torch.from_numpy(array).to(self.device, non_blocking=True)

    def warp(
        self, level: int, index: np.ndarray, matrix: np.ndarray, height: int, width: int, *, mirror: bool, fine: bool
    ) -> Tensor:
        """Layers (n, 5, height, width) in 0..1 of pictures `index`: `matrix` (n, 2, 3) takes (x, y, 1), in -1..1 of the
        target, to parts of the picture's width and height. Outside, pictures are mirrored, or nothing."""
        many = 2 if fine else 1
        theta = self.there(matrix.astype(np.float32))
        place = F.affine_grid(theta, [len(index), 1, many * height, many * width], align_corners=False)
        outside = None
        if mirror:
            place = 1 - (place % 2 - 1).abs()
        else:
            outside = ((place < 0) | (place > 1)).any(-1)[:, None]
        part = self.there((self.sizes[index][:, ::-1] / SIDES[0]).copy())
        grid = place * part[:, None, None] * 2 - 1
        source = self.store[level][self.there(index)].to(self.dtype).div_(255)
        layers = F.grid_sample(source, grid.to(self.dtype), mode="bilinear", padding_mode="border", align_corners=False)
        if outside is not None:
            layers[:, 3:4].masked_fill_(outside, 0)
            layers[:, 4:].masked_fill_(outside, 1)
        return F.avg_pool2d(layers, 2) if fine else layers

    def ground(self, n: int, height: int, width: int, nobody: float) -> Tensor:
        """Pictures to begin with, of nobody in that share: whole and stretched, or a part of them, or more than all."""
        random = self.random
        empty = random.random(n) < nobody
        index = np.where(
            empty,
            random.choice(self.without, n, p=self.without_weights),
            random.choice(self.with_people, n, p=self.people_weights),
        )
        size = self.sizes[index]
        ratio = size[:, 1] / size[:, 0] / (width / height)  # of the picture's shape to the target's
        stretch = np.exp(random.normal(0, 0.14, n))
        # A part of the picture, as parts of its width and height, of the target's shape times `stretch`.
        zoom = np.where(random.random(n) < 0.4, 1, random.uniform(0.4, 1, n) ** 0.7)
        zoom = np.where(random.random(n) < 0.15, random.uniform(1, 1.7, n), zoom)
        shape = stretch / ratio  # wide / high
        wide, high = np.minimum(1, shape) * zoom, np.minimum(1, 1 / shape) * zoom
        whole = (random.random(n) < 0.3) & (np.abs(np.log(ratio)) < 0.75)
        wide, high = np.where(whole, 1, wide), np.where(whole, 1, high)
        box = self.interest[index]
        at_person = random.random(n) < 0.5
        center = []
        for axis, span in ((0, wide), (1, high)):
            lower = np.minimum(span / 2, 1 - span / 2)
            free = random.uniform(lower, np.maximum(1 - lower, lower))
            aim = random.uniform(box[:, axis], box[:, axis + 2])
            center.append(np.clip(np.where(at_person, aim, free), lower, np.maximum(1 - lower, lower)))
        matrix = self._matrix(np.stack(center, 1), wide, high, size, 0.07, LYING[0])
        layers = self.warp(0, index, matrix, height, width, mirror=True, fine=True)
        self.hats(layers, index, matrix)
        layers[:, 3:4].masked_fill_(self.there(empty).view(-1, 1, 1, 1), 0)
        return layers

    def _matrix(
        self, center: np.ndarray, wide: np.ndarray, high: np.ndarray, size: np.ndarray, turn: float, lying: float
    ) -> np.ndarray:
        """(n, 2, 3): from -1..1 to a part of the pictures, flipped and turned a little, or by a right angle."""
        n = len(wide)
        angle = self.random.normal(0, turn, n) * (self.random.random(n) < 0.5)
        angle += self.random.choice([-math.pi / 2, math.pi / 2], n) * (self.random.random(n) < lying)
        flip = np.where(self.random.random(n) < 0.5, -1, 1)
        # In pixels, so that turning does not skew.
        across, down = wide * size[:, 1] / 2, high * size[:, 0] / 2
        matrix = np.empty((n, 2, 3), np.float32)
        matrix[:, 0, 0], matrix[:, 0, 1] = (
            flip * np.cos(angle) * across / size[:, 1],
            -np.sin(angle) * down / size[:, 1],
        )
        matrix[:, 1, 0], matrix[:, 1, 1] = flip * np.sin(angle) * across / size[:, 0], np.cos(angle) * down / size[:, 0]
        matrix[:, :, 2] = center
        return matrix

    def drawn(self, cutouts: Cutouts, n: int, height: int, width: int) -> Tensor:
        """Some of the cut-outs at new places: layers (n, 5, ...), of which the fourth is their opacity."""
        random = self.random
        which = random.choice(len(cutouts.weights), n, p=cutouts.weights)
        index, box, cut = cutouts.pictures[which], cutouts.boxes[which], cutouts.cut[which]
        size = self.sizes[index]
        box_height, box_width = (box[:, 3] - box[:, 1]) * size[:, 0], (box[:, 2] - box[:, 0]) * size[:, 1]
        # As a part of the frame's height; the half of the draws for those who stand, larger for those who are cut off.
        high = np.exp(random.uniform(math.log(0.1), math.log(1.15), n))
        high = np.where(cut[:, 3], np.exp(random.uniform(math.log(0.28), math.log(1.4), n)), high)
        scale = high * height / box_height  # pixels of the frame for one of the picture
        stretch = np.exp(random.normal(0, 0.13, n))
        wide = box_width * scale * stretch / width
        wide_most = np.maximum(1, 1.6 / np.maximum(wide, 1e-6))
        scale, high, wide = (np.minimum(v, v * wide_most) for v in (scale, high, wide))
        # Where the box's middle comes to lie, as a part of the frame. Who is cut off below stands at the lower edge.
        x = random.uniform(-0.1, 1.1, n)
        x = np.where(cut[:, 0] & (random.random(n) < 0.7), np.minimum(x, wide / 2 - 0.01), x)
        x = np.where(cut[:, 2] & ~cut[:, 0] & (random.random(n) < 0.7), np.maximum(x, 1 - wide / 2 + 0.01), x)
        standing = random.uniform(0.45, 1.1, n) - high / 2
        anywhere = random.uniform(0, 1, n)
        y = np.where(random.random(n) < 0.75, standing, anywhere)
        y = np.where(cut[:, 3] & (random.random(n) < 0.8), 1 - high / 2 + random.uniform(0, 0.45, n) * high, y)
        # The frame's size in parts of the picture.
        across, down = width / (scale * stretch * size[:, 1]), height / (scale * size[:, 0])
        middle = np.stack([(box[:, 0] + box[:, 2]) / 2, (box[:, 1] + box[:, 3]) / 2], 1)
        matrix = self._matrix(middle, across, down, size, 0.06, LYING[1])
        # Flipped and turned about the box's middle, which comes to lie at (x, y).
        away = np.stack([1 - 2 * x, 1 - 2 * y], 1).astype(np.float32)
        matrix[:, :, 2] += np.einsum("nij,nj->ni", matrix[:, :, :2], away)
        level = np.select([scale > 0.75, scale > 0.38], [0, 1], 2)
        result = torch.empty((n, 5, height, width), dtype=self.dtype, device=self.device)
        for number in range(len(SIDES)):
            some = np.flatnonzero(level == number)
            if len(some):
                part = self.warp(number, index[some], matrix[some], height, width, mirror=False, fine=False)
                self.hats(part, index[some], matrix[some])
                result[self.there(some)] = part
        return result

    def hats(self, layers: Tensor, index: np.ndarray, matrix: np.ndarray) -> None:
        """Draws a hat or helmet onto a head of some of the layers, which show pictures `index`, see `warp`."""
        some = [i for i, picture in enumerate(index) if len(self.heads[picture]) and self.random.random() < HATS]
        if not some:
            return
        head = np.stack([self.random.choice(self.heads[index[i]]) for i in some])
        x, y, half, up_x, up_y = self.there(head).view(-1, 5, 1, 1).unbind(1)
        n, (height, width) = len(some), layers.shape[2:]
        place = F.affine_grid(self.there(matrix[some].astype(np.float32)), [n, 1, height, width], align_corners=False)
        size = self.there(self.sizes[index[some]][:, ::-1].copy())
        right, down = (place * size[:, None, None]).unbind(-1)  # in pixels of the picture
        u, v = ((down - y) * up_x - (right - x) * up_y) / half, ((right - x) * up_x + (down - y) * up_y) / half

        def of(low: float, high: float) -> Tensor:
            return self.uniform(n, low, high)[:, 0]

        lower = of(0.2, 0.55)
        dome = ((u / of(1.0, 1.35)) ** 2 + ((v - 0.2) / of(1.2, 1.7)) ** 2 < 1) & (v > lower)
        brim = ((u / of(0.9, 2.3)) ** 2 + ((v - lower) / of(0.08, 0.35)) ** 2 < 1) & (of(0, 1) < 0.7)
        alpha = F.avg_pool2d((dome | brim).float()[:, None], 3, 1, 1)
        color = torch.rand(n, 3, 1, 1, device=self.device) ** of(0.5, 2)[:, None]
        light = 1 + of(-0.4, 0.4) * u + of(-0.3, 0.5) * (v - 0.8) - 0.3 * (brim & ~dome).float()
        rough = F.interpolate(torch.randn(n, 1, 24, 24, device=self.device), (height, width), mode="bilinear")
        color = (color * light[:, None] * (1 + self.uniform(n, 0, 0.25) * rough)).clamp(0, 1)
        at = self.there(np.array(some))
        below = layers[at].float()
        drawn = torch.cat(
            [torch.lerp(below[:, :3], color, alpha), torch.maximum(below[:, 3:4], alpha), below[:, 4:]], 1
        )
        layers[at] = torch.where(alpha > 0.5, torch.cat([drawn[:, :4], torch.ones_like(alpha)], 1), drawn).to(
            layers.dtype
        )

    # ------------------------------------------------------------------------------------------------- colors

    def dusk(self, layers: Tensor) -> None:
        """Makes people and what is behind them dark in some of the layers, each by a factor of its own."""
        some = self.there(self.some(len(layers), DUSK))
        n = len(some)
        gain = torch.lerp(self.uniform(n, 0.06, 0.5), self.uniform(n, 0.06, 0.5), layers[some, 3:4])
        layers[some, :3] = layers[some, :3] ** self.uniform(n, 0.9, 1.5) * gain

    def uniform(self, n: int, low: float, high: float) -> Tensor:
        return torch.empty((n, 1, 1, 1), device=self.device).uniform_(low, high)

    def chance(self, n: int, probability: float) -> Tensor:
        return (torch.rand((n, 1, 1, 1), device=self.device) < probability).float()

    def recolor(self, rgb: Tensor, strength: float) -> Tensor:
        """Other exposure, contrast, saturation, white balance and gamma: (n, 3, ...) in 0..1."""
        n = len(rgb)
        luma = (rgb * self.luma).sum(1, keepdim=True)
        rgb = luma + (rgb - luma) * self.uniform(n, 1 - 0.8 * strength, 1 + 0.6 * strength)
        middle = rgb.mean((1, 2, 3), keepdim=True)
        gain = torch.exp(
            0.12 * strength * torch.randn(n, 3, 1, 1, device=self.device)
            + 0.3 * strength * torch.randn(n, 1, 1, 1, device=self.device)
        )
        rgb = (middle + (rgb - middle) * self.uniform(n, 1 - 0.45 * strength, 1 + 0.45 * strength)) * gain
        return rgb.clamp(1e-3, 1) ** torch.exp(0.3 * strength * torch.randn(n, 1, 1, 1, device=self.device))

    def put(self, layers: Tensor, some: np.ndarray, drawn: Tensor, person: int) -> None:
        """Puts `drawn` (m, 5, ...) onto the layers numbered `some`, in their light by a part, as a `person` or not."""
        n = len(some)
        at = self.there(some)
        below = layers[at]
        rgb, cover, known = drawn[:, :3].float(), drawn[:, 3:4].float(), drawn[:, 4:].float()
        low = self.uniform(n, 0.1, 0.45)
        alpha = ((cover - low) / (0.9 - low)).clamp(0, 1)
        rgb = self.recolor(rgb, 0.5)
        total = alpha.sum((1, 2, 3), keepdim=True) + 1
        own = (rgb * alpha).sum((1, 2, 3), keepdim=True) / total
        there = (below[:, :3] * alpha).sum((1, 2, 3), keepdim=True) / total
        rgb = rgb * (1 + self.uniform(n, -0.2, 0.7).clamp(min=0) * ((there + 0.05) / (own + 0.05) - 1)).clamp(0.3, 2.2)
        layers[at, :3] = torch.lerp(below[:, :3], rgb.clamp(0, 1), alpha)
        layers[at, 3:4] = torch.lerp(below[:, 3:4], torch.full_like(alpha, float(person)), alpha)
        layers[at, 4:] = torch.where(
            known < 0.9,
            torch.zeros_like(known),
            torch.lerp(below[:, 4:], torch.ones_like(alpha), (alpha > 0.5).float()),
        )

    def some(self, n: int, share: float) -> np.ndarray:
        """Numbers of that share of `n` layers."""
        return self.random.permutation(n)[: max(1, round(n * share))]

    def pieces(self, layers: Tensor, some: np.ndarray, height: int, width: int) -> None:
        """Pieces of pictures of nobody before what is there: round, angular or shapeless."""
        n = len(some)
        at = self.there(some)
        piece = self.ground(n, height, width, 1.0).float()
        x = torch.linspace(-1, 1, width, device=self.device).view(1, 1, 1, -1) - self.uniform(n, -1, 1)
        y = torch.linspace(-1, 1, height, device=self.device).view(1, 1, -1, 1) - self.uniform(n, -1, 1)
        angle = self.uniform(n, 0, math.pi)
        u, v = (
            (x * angle.cos() + y * angle.sin()) / self.uniform(n, 0.05, 0.5),
            (y * angle.cos() - x * angle.sin()) / self.uniform(n, 0.05, 0.5),
        )
        power = torch.exp(self.uniform(n, 0.5, 2.2))
        round_one = 1 - (u.abs() ** power + v.abs() ** power)
        noise = F.interpolate(torch.randn(n, 1, 6, 6, device=self.device), (height, width), mode="bicubic")
        alpha = torch.sigmoid((round_one + noise * self.uniform(n, 0, 0.5)) * self.uniform(n, 8, 40))
        below = layers[at]
        layers[at, :3] = torch.lerp(below[:, :3], self.recolor(piece[:, :3], 0.8), alpha)
        layers[at, 3:4] = below[:, 3:4] * (1 - alpha)
        layers[at, 4:] = torch.maximum(below[:, 4:], (alpha > 0.9).float())

    def damage(self, rgb: Tensor) -> Tensor:
        """Light, lens, sensor and codec."""
        n, _, height, width = rgb.shape

        def of(probability: float) -> tuple[Tensor, int]:
            some = torch.randperm(n, device=self.device)[: max(1, round(n * probability))]
            return some, len(some)

        some, m = of(0.35)
        light = F.interpolate(torch.randn(m, 1, 3, 3, device=self.device), (height, width), mode="bicubic")
        rgb[some] = rgb[some] * torch.exp(light * self.uniform(m, 0, 0.5))
        rgb = self.recolor(rgb.clamp(0, 1), 0.55)
        some, m = of(0.1)
        rgb[some] = rgb[some].mean(1, keepdim=True).expand(-1, 3, -1, -1)  # black and white
        some, m = of(0.12)
        dark = rgb[some] ** self.uniform(m, 1.1, 2.2) * self.uniform(m, 0.15, 0.7)
        rgb[some] = dark + torch.randn_like(dark) * self.uniform(m, 0, 0.04)
        some, m = of(0.3)
        soft = F.conv2d(rgb[some], self.soft, padding=2, groups=3)
        softer = F.conv2d(soft, self.soft, padding=4, dilation=2, groups=3)
        rgb[some] = torch.lerp(soft, softer, self.uniform(m, 0, 1))
        for shape in ((1, 9), (9, 1)):
            some, m = of(0.04)
            rgb[some] = F.conv2d(
                rgb[some],
                torch.full((3, 1, *shape), 1 / 9, device=self.device),
                padding=(shape[0] // 2, shape[1] // 2),
                groups=3,
            )
        some, m = of(0.15)
        scale = float(self.random.uniform(0.25, 0.75))
        low = F.interpolate(rgb[some], scale_factor=scale, mode="area" if scale < 0.5 else "bilinear")
        rgb[some] = F.interpolate(low, (height, width), mode="bilinear")
        some, m = of(0.4)
        grain = torch.randn_like(rgb[some])
        grain = torch.lerp(grain, grain.mean(1, keepdim=True) * 1.5, self.chance(m, 0.5))
        rgb[some] = rgb[some] + grain * self.uniform(m, 0, 0.06)
        some, m = of(0.3)
        k = torch.arange(8, device=self.device)
        dct = torch.cos(math.pi / 8 * (k[None] + 0.5) * k[:, None]) * 0.5
        dct[0] /= math.sqrt(2)
        waves = (dct[:, None, :, None] * dct[None, :, None, :]).reshape(64, 1, 8, 8)
        step = (0.01 + 0.02 * (k[:, None] + k)).reshape(1, 64, 1, 1) * self.uniform(m, 0.2, 2).repeat_interleave(3, 0)
        blocks = F.conv2d(rgb[some].reshape(-1, 1, height, width), waves, stride=8)
        blocks = F.conv_transpose2d(torch.round(blocks / step) * step, waves, stride=8)
        rgb[some] = blocks.view(-1, 3, height, width)
        return rgb.clamp(0, 1)

    @torch.no_grad()
    def batch(self, n: int, height: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
        """New pictures (n, 3, H, W) RGB in 0..1; where people are, (n, 1, H, W) in 0..1; where that is known."""
        half = n // 2
        layers = torch.cat([self.ground(half, height, width, 0.32), self.ground(n - half, height, width, 0.75)]).float()
        layers[:, :3] = self.recolor(layers[:, :3], 0.4)
        # The first half stays as it is, for most; onto the second up to six people are pasted, and nobody onto a part.
        counts = np.concatenate(
            [
                self.random.choice(3, half, p=[0.84, 0.12, 0.04]),
                self.random.choice(7, n - half, p=[0.2, 0.3, 0.22, 0.12, 0.08, 0.05, 0.03]),
            ]
        )
        behind, before = (self.some(n, share) for share in OBJECTS)
        objects = self.drawn(self.objects, len(behind) + len(before), height, width)
        people = self.drawn(self.people, counts.sum(), height, width)
        self.put(layers, behind, objects[: len(behind)], person=0)
        for number in range(counts.max()):
            some = np.flatnonzero(counts > number)
            self.put(layers, some, people[: len(some)], person=1)
            people = people[len(some) :]
            if number == 0:
                self.pieces(layers, self.some(n, PIECES), height, width)
        self.put(layers, before, objects[len(behind) :], person=0)
        self.dusk(layers)
        return self.damage(layers[:, :3]), layers[:, 3:4], (layers[:, 4:] > 0.97).float()


def _normal(weights: np.ndarray) -> np.ndarray:
    return weights / weights.sum()


def _kept(row: dict[str, Any], squares: list[np.ndarray]) -> np.ndarray:
    """Puts a picture and its target into `squares` (5, side, side); returns the target (H, W), its longer side 512."""
    picture, target = _decoded(row)
    height, width = target.shape
    doubt = target == DOUBT
    person = np.where(doubt, 125, target.astype(np.float32) * (255 / CERTAIN)).round().astype(np.uint8)
    layers = [picture, np.dstack([person, np.where(doubt, 0, 255).astype(np.uint8)])]
    for square, side in zip(squares, SIDES, strict=True):
        size = (max(1, round(width * side / SIDES[0])), max(1, round(height * side / SIDES[0])))
        small = np.dstack([cv2.resize(layer, size, interpolation=cv2.INTER_AREA) for layer in layers])
        # What is outside the picture repeats its edge, so that nothing dark bleeds in.
        square[:] = np.pad(small, ((0, side - size[1]), (0, side - size[0]), (0, 0)), mode="edge").transpose(2, 0, 1)
    return target


def _decoded(row: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """A picture (H, W, 3) RGB and its target (H, W), with 512 pixels on the longer side."""
    picture = cv2.imdecode(row["picture"], cv2.IMREAD_COLOR_RGB)
    target = cv2.imdecode(row["target"], cv2.IMREAD_GRAYSCALE)
    scale = SIDES[0] / max(picture.shape[:2])
    size = (
        max(8, min(SIDES[0], round(picture.shape[1] * scale))),
        max(8, min(SIDES[0], round(picture.shape[0] * scale))),
    )
    doubt = (target == DOUBT).astype(np.float32)
    sure = np.where(target == DOUBT, 125, target)
    large = np.clip(cv2.resize(sure, size, interpolation=cv2.INTER_LINEAR), 0, CERTAIN)
    large[cv2.resize(doubt, size, interpolation=cv2.INTER_LINEAR) > 0.5] = DOUBT
    return cv2.resize(picture, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC), large
