"""Train the built-in model `person`: distil a portrait model into a network a tenth of its cost.

    python tools/train.py --seed 1            # clips -> cache -> training -> segmentation/models/person.onnx

Three steps: (1) sample frames of the clips and label them once with the teacher; (2) on the GPU, make every training
picture new (augment.py); (3) fit the student to the pasted masks, to what the teacher says of the same picture and to
maps inside the teacher, and export the averaged weights. Several students may learn from the same pictures, one for
each value of --doubt. Needs PyTorch, OpenCV, ONNX and ONNX Runtime; PyAV, scikit-image and Matplotlib (for a
photograph that it carries) only while the cache is made.
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
from augment import SIZE, STORED, Pictures
from torch import Tensor, nn

MEAN, STD = [0.5, 0.5, 0.5], [0.25, 0.25, 0.25]

# Everybody in these clips may be learned from. The man in signing-eat, -night and -sister is held out for evaluation.
PEOPLE = ["person-walking.mp4"] + [
    f"signing-{word}.mkv" for word in "again book brother help hungry learn no school student walk want yes".split()
]
# Nobody is in these: they are backgrounds, and pictures of nobody.
SCENES = """dog_eating_854132.mp4 bbb_1920x1080_60fps_vp8.webm bear-vp9-odd-dimensions.webm bt709_full_range.mp4
    h264_10bits.mp4 hdr10-av1.mp4 hlg10-color-test.mp4 portrait_4k60.mp4 fixture-raw.mts sample_h264.ts video_90.mov
    var_fps_video.mp4""".split()
PHOTOS = """brick.png chelsea.png coffee.png coins.png grass.png gravel.png hubble_deep_field.jpg ihc.png retina.jpg
    rocket.jpg text.png""".split()
# Photographs of people, and which rows of them, as shares of the height: whole, and what a wide frame would show.
PORTRAITS = [
    ("astronaut.png", 0, 1),
    ("astronaut.png", 0, 0.5625),
    ("grace_hopper.jpg", 0, 1),
    ("grace_hopper.jpg", 0, 0.7),
    ("camera.png", 0.08, 0.64),
]
# Maps inside the teacher that the student's maps shall resemble: the end of its 1/16 stage, its decoder's 1/8 stage.
INSIDE = {"add_65/add:0": 128, "add_69/add:0": 128}


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
        self.head = nn.Conv2d(g, 1, 3, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Logits, and the two maps that are trained to resemble the teacher's."""
        half = self.down2(x)
        quarter = self.down4(half)
        eighth = self.down8(quarter)
        sixteenth = self.down16(eighth)
        coarse = self.to_eighth(sixteenth, eighth)
        logits = self.head(self.to_half(self.to_quarter(coarse, quarter), half))
        # Smooth doubling: a transposed convolution would print a comb of two pixels along outlines.
        logits = F.interpolate(logits, scale_factor=2, mode="bilinear", align_corners=False)
        return logits, [sixteenth, coarse]


class Exported(nn.Module):
    """The student as it is shipped: probabilities instead of logits."""

    def __init__(self, student: Student) -> None:
        super().__init__()
        self.student = student

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.student(x)[0])


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

    def once(self, rgb: Tensor) -> tuple[Tensor, list[Tensor]]:
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
        return values[self.output], [values[name] for name in INSIDE]

    @torch.no_grad()
    def forward(self, rgb: Tensor) -> tuple[Tensor, list[Tensor]]:
        """(N, 3, 256, 256) RGB in 0..1 -> (N, 1, 256, 256) probability, the mirror images' mean; maps inside."""
        mask, inside = self.once(rgb)
        return (mask + self.once(rgb.flip(-1))[0].flip(-1)) / 2, inside


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
    """Fill `cache` with person-<aspect>-*.webp (labelled), scene-*.webp (no people) and nobody-*.webp (surely none)."""
    import av  # not needed where the cache is already made
    import matplotlib
    import skimage
    from evaluate import BOTTLES, BOTTLES_HALF, EMPTY_WALKING, HANDS_IN_BOTTLES, WALKING, WALKING_HALF, outside

    def photograph(name: str) -> np.ndarray:
        folders = [Path(skimage.__file__).parent / "data", Path(matplotlib.get_data_path()) / "sample_data"]
        path = next(folder / name for folder in folders if (folder / name).exists())
        return cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)

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
                if (mask > 0.5).mean() > 0.03:  # the empty room between two walkers shows no person
                    aspect = round(1000 * frame.width / frame.height)
                    store(cache / f"person-{aspect}-{Path(name).stem}-{index:05}.webp", rgb, mask)
    for name in SCENES:
        with av.open(corpus / name) as container:
            frames = [f for _, f in zip(range(150), container.decode(video=0), strict=False)]
        for index in np.unique(np.linspace(0, len(frames) - 1, 6).astype(int)):
            store(cache / f"scene-{Path(name).stem}-{index:05}.webp", frames[index].to_ndarray(format="rgb24"))
    for name in PHOTOS:
        store(cache / f"scene-{Path(name).stem}.webp", photograph(name))
    for index, (name, top, bottom) in enumerate(PORTRAITS):
        rgb = photograph(name)
        rgb = rgb[round(top * len(rgb)) : round(bottom * len(rgb))]
        aspect = round(1000 * rgb.shape[1] / rgb.shape[0])
        store(cache / f"person-{aspect}-portrait-{index}.webp", rgb, label(session, rgb))
    # Frames of nobody, from the first halves only: the second halves are for evaluation.
    bottles, walking = corpus / Path(BOTTLES).name, clips / Path(WALKING).name
    for path, ranges, end in [
        (bottles, outside(HANDS_IN_BOTTLES), BOTTLES_HALF),
        (walking, EMPTY_WALKING, WALKING_HALF),
    ]:
        with av.open(path) as container:
            for index, frame in enumerate(container.decode(video=0)):
                if index < end and index % 4 == 0 and any(first <= index <= last for first, last in ranges):
                    store(cache / f"nobody-{path.stem}-{index:05}.webp", frame.to_ndarray(format="rgb24"))


# ---------------------------------------------------------------------------------------------------- the training


def weights(mask: Tensor, empty: Tensor, pasted: Tensor) -> tuple[Tensor, Tensor]:
    """Where the teacher's opinion of a picture counts near people (its weight), and where away from them (0 or 1).

    Near people it weighs more in frames as they were, where the pasted mask is its own. Away from people `doubt`
    times as much as this says, since it takes bottles and dogs for persons; in empty rooms not at all.
    """
    near = F.max_pool2d((mask > 0.1).float(), 9, stride=1, padding=4)
    return near * torch.lerp(torch.full_like(mask, 0.85), torch.full_like(mask, 0.65), pasted), (1 - near) * (1 - empty)


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


class Pupil:
    """One student with what it needs to learn, and the running average of its weights, which is what is exported."""

    def __init__(self, options: argparse.Namespace, doubt: float, imitate: float, device: torch.device) -> None:
        self.doubt, self.imitate = doubt, imitate
        self.student = Student(options.widths, options.blocks, options.decoder)
        self.student = self.student.to(device, memory_format=torch.channels_last)
        self.average = copy.deepcopy(self.student)
        maps = [options.widths[3], options.decoder[0]]
        pairs = zip(maps, INSIDE.values(), strict=True)
        self.adapters = nn.ModuleList([nn.Conv2d(own, its, 1) for own, its in pairs]).to(device)
        self.parameters = [*self.student.parameters(), *self.adapters.parameters()]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=options.rate, weight_decay=0.03, fused=True)
        self.total = torch.zeros(2, device=device)

    def step(self, picture: Tensor, pooled: Tensor, inside: list[Tensor], rate: float, fade: float) -> None:
        """Learn from one batch: normalised pictures, the pool's other channels, and the teacher's normalised maps."""
        mask, opinion, near, away = pooled.split(1, 1)
        with torch.autocast(picture.device.type, torch.bfloat16):
            logits, maps = self.student(picture)
            distance = torch.zeros((), device=picture.device)
            if self.imitate:
                for adapter, own, its in zip(self.adapters, maps, inside, strict=True):
                    distance = distance + F.mse_loss(adapter(own).float(), its)
        loss = loss_of(logits.float(), torch.lerp(mask, opinion, near + self.doubt * away))
        self.optimizer.zero_grad(set_to_none=True)
        (loss + self.imitate * fade * distance).backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.total += torch.stack([loss.detach(), distance.detach()])

    @torch.no_grad()
    def remember(self, fresh: float) -> None:
        """Move the average towards the present weights by this share."""
        for kept, new in zip(self.average.state_dict().values(), self.student.state_dict().values(), strict=True):
            kept.copy_(torch.lerp(kept, new, fresh) if kept.is_floating_point() else new)


def train(options: argparse.Namespace) -> None:
    torch.manual_seed(options.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True

    begin = time.time()
    pictures = Pictures(options.cache, device)
    teacher = Teacher(options.teacher).to(device).eval()
    ask = torch.compile(teacher) if device.type == "cuda" else teacher
    imitate = options.imitate * len(options.doubt) if len(options.imitate) == 1 else options.imitate
    pupils = [Pupil(options, *pair, device) for pair in zip(options.doubt, imitate, strict=True)]
    mean, std = (torch.tensor(v, device=device).view(1, 3, 1, 1) for v in (MEAN, STD))
    count = sum(p.numel() for p in pupils[0].student.parameters())
    print(f"{len(pictures.people)} frames of people, {len(pictures.scenes)} scenes, {len(pictures.nobody)} empty rooms")
    print(f"{len(pupils)} students of {count} weights; {device}", flush=True)

    # A new picture costs more than a step, so each is used about `reuse` times, at random, while it stays in the pool:
    # RGB, mask, the teacher's opinion and its two weights as bytes; the teacher's maps in half precision.
    pool = torch.empty(options.pool, 7, SIZE, SIZE, dtype=torch.uint8, device=device)
    inside: list[Tensor] = []
    made = 0

    def make() -> None:
        nonlocal made
        rgb, mask, empty, pasted = pictures.batch(options.batch)
        with torch.autocast(device.type, torch.bfloat16):
            opinion, maps = ask(rgb)
        place = torch.arange(made, made + options.batch, device=device) % options.pool
        pool[place] = torch.cat([rgb, mask, opinion.float(), *weights(mask, empty, pasted)], 1).mul(255).round().byte()
        for i, new in enumerate(maps):
            # Each channel by its mean and deviation over the batch, as in batch normalisation.
            new = F.batch_norm(new.float(), None, None, training=True).clamp(-8, 8)
            if len(inside) == i:
                inside.append(torch.empty(options.pool, *new.shape[1:], dtype=torch.bfloat16, device=device))
            inside[i][place] = new.bfloat16()
        made += options.batch

    def save() -> None:
        for i, pupil in enumerate(pupils):
            out = options.out if len(pupils) == 1 else options.out.with_stem(f"{options.out.stem}-{i}")
            export(copy.deepcopy(pupil.average), out)

    while made < min(options.pool, 32 * options.batch):
        make()
    print(f"first pictures after {time.time() - begin:.0f} s", flush=True)
    step, done, reported = 0, 0.0, 0
    while done < 1:
        step += 1
        if device.type == "cuda" and step % 10 == 0:
            torch.cuda.synchronize()  # so that the clock tells the truth
        done = step / options.steps
        if options.seconds:
            done = max(done, (time.time() - begin) / options.seconds)
        if step % options.reuse == 0:
            make()
        chosen = torch.randint(min(made, options.pool), (options.batch,), device=device)
        pooled = pool[chosen].float() / 255
        picture = ((pooled[:, :3] - mean) / std).contiguous(memory_format=torch.channels_last)
        maps = [values[chosen].float() for values in inside]
        fade = 0.5 + 0.5 * math.cos(math.pi * min(done, 1))
        for pupil in pupils:
            pupil.step(picture, pooled[:, 3:], maps, options.rate * min(step / 200, fade), fade)
            if step % 5 == 0:
                pupil.remember(1 - min(0.995, step / (step + 50)))  # a young average forgets its random start quickly
        if step % options.report == 0 or done >= 1:
            losses = [f"{a:.4f} + {b:.3f}" for a, b in (p.total.div(step - reported).tolist() for p in pupils)]
            print(f"step {step}  {done:.1%}  {time.time() - begin:.0f} s  loss {', '.join(losses)}", flush=True)
            for pupil in pupils:
                pupil.total.zero_()
            reported = step
            if step % (4 * options.report) == 0 or done >= 1:
                save()


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
    parser.add_argument("--steps", type=int, default=6500, help="0: make the cache and stop")
    parser.add_argument("--seconds", type=float, default=0, help="finish, schedule included, after this time at most")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--pool", type=int, default=49152, help="augmented pictures held on the GPU")
    parser.add_argument("--reuse", type=int, default=4, help="steps to every new batch of pictures")
    parser.add_argument(
        "--doubt", type=float, nargs="+", default=[0.6], help="weight of the teacher's opinion away from people"
    )
    parser.add_argument(
        "--imitate",
        type=float,
        nargs="+",
        default=[0.3],
        help="weight of resembling the teacher's maps",
    )
    parser.add_argument("--rate", type=float, default=3e-3, help="highest learning rate")
    parser.add_argument("--report", type=int, default=250, help="steps between reports; exports are four times as rare")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if not options.cache.exists():
        extract(options.clips, options.corpus, options.teacher, options.cache)
    if options.steps:
        train(options)


if __name__ == "__main__":
    main()
