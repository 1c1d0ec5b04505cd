"""Makes a built-in network of labelled pictures: `train.py` is the program."""

import argparse
import copy
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from augment import Pictures
from compact import compact
from data import CERTAIN, DOUBT, group, read
from network import MEAN, PERSON, SIZES, STD, DeepLab, Exported, Network, Size, teacher_weights
from split import split
from steps import Steps
from torch import Tensor, nn

HERE = Path(__file__).parent
SHAPE_SHARES = (0.46, 0.16, 0.16, 0.1, 0.12)  # how often a batch has each of the network's shapes
WARM_UP = 0.03  # part of the training in which the learning rate rises
EARLY = 0.65  # part of it in which pictures may be smaller, see `network.Size`
AVERAGED = 0.999  # of the weights at each step


def normalised(rgb: Tensor) -> Tensor:
    """RGB in 0..1 as the network takes it."""
    return (rgb - MEAN[0]) / STD[0]


def loss(logits: Tensor, wanted: Tensor, known: Tensor) -> Tensor:
    """Cross-entropy, heavier along outlines, and one minus the soft IoU of each picture that shows somebody."""
    edge = F.max_pool2d(wanted, 7, 1, 3) + F.max_pool2d(-wanted, 7, 1, 3)  # 1 near outlines
    weight = known * (1 + 1.5 * edge)
    entropy = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
    total = (entropy * weight).sum() / weight.sum()
    found, wanted = logits.sigmoid() * known, wanted * known
    both, either = (found * wanted).sum((1, 2, 3)), (found + wanted - found * wanted).sum((1, 2, 3))
    somebody = (wanted.sum((1, 2, 3)) > 40).float()
    return total + 0.4 * ((1 - (both + 1) / (either + 1)) * somebody).sum() / len(logits)


def taught(network: nn.Module, rgb: Tensor, wanted: Tensor, known: Tensor) -> Tensor:
    """The loss of a network on a batch, see `augment.Pictures.batch`."""
    x = normalised(rgb).contiguous(memory_format=torch.channels_last)
    with torch.autocast(rgb.device.type, torch.bfloat16):
        logits = network(x).float()
    return loss(logits, wanted, known)


@torch.no_grad()
def judged(network: nn.Module, size: Size, rows: list[dict[str, Any]], device: torch.device) -> dict[str, float]:
    """Mean IoU of pictures with people and false alarms on others, by group: to watch training, not to publish."""
    network.eval()
    scores: dict[str, list[float]] = {}
    for row in rows:
        picture = cv2.imdecode(row["picture"], cv2.IMREAD_COLOR_RGB)
        target = cv2.imdecode(row["target"], cv2.IMREAD_GRAYSCALE)
        ratio = math.log(picture.shape[1] / picture.shape[0])
        height, width = min(size.shapes, key=lambda shape: abs(math.log(shape[1] / shape[0]) - ratio))
        small = cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA)
        x = torch.from_numpy(small).to(device).permute(2, 0, 1)[None].float() / 255
        with torch.autocast(device.type, torch.bfloat16):
            logits = network(normalised(x)).float()
        found = F.interpolate(logits.sigmoid(), target.shape, mode="bilinear")[0, 0].cpu().numpy() > 0.5
        known, wanted = target != DOUBT, (target > CERTAIN / 2) & (target != DOUBT)
        if wanted.any():
            scores.setdefault(group(row["name"]), []).append((found & wanted).sum() / ((found | wanted) & known).sum())
        elif known.all():
            scores.setdefault("nobody " + group(row["name"]), []).append(found.mean())
    return {key: round(float(np.mean(values)), 3) for key, values in sorted(scores.items())}


def trained(
    size: Size, rows: list[dict[str, Any]], weights: list[tuple[np.ndarray, np.ndarray]], options: argparse.Namespace
) -> tuple[Network, dict[str, Any]]:
    """A network, its averaged weights, and what can be said of its training. `weights` are the teacher's."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    deeplab = DeepLab(weights).to(device).to(memory_format=torch.channels_last)

    @torch.no_grad()
    def things(rgb: Tensor) -> Tensor:
        """How certain DeepLab is of something that is neither background nor a person."""
        named = F.interpolate(deeplab.named(normalised(rgb)), rgb.shape[2:], mode="bilinear").softmax(1)
        return 1 - named[:, :1] - named[:, PERSON : PERSON + 1]

    pictures = Pictures([row for row in rows if row["train"]], device, options.seed, things)
    watched = [row for row in rows if not row["train"] and row["checked"]][:: options.watch]
    network = Network(size, deeplab).to(device).to(memory_format=torch.channels_last)
    learn = Steps(network, taught)
    random = np.random.default_rng(options.seed)
    spent, steps, done = 0.0, 0, 0.0
    state = learn.parts()
    if options.resume and options.resume.exists():
        kept = torch.load(options.resume, map_location=device)
        for key, part in state.items():
            part.load_state_dict(kept[key])
        spent, steps, done = kept["spent"], kept["steps"], kept["done"]
        random = np.random.default_rng((options.seed, steps))
        pictures.reseed(options.seed + steps)

    def keep_state() -> None:
        if options.resume:
            facts = {"spent": spent, "steps": steps, "done": done}
            torch.save({key: part.state_dict() for key, part in state.items()} | facts, options.resume)

    begin, before = time.monotonic(), spent
    while done < 1:
        rate = options.rate * min(1, done / WARM_UP + 0.01) * (0.5 + 0.5 * math.cos(math.pi * done) + 0.002)
        height, width = size.shapes[random.choice(len(size.shapes), p=SHAPE_SHARES)]
        if done < EARLY:
            height, width = (round(side * size.early / 16) * 16 for side in (height, width))
        keep = min(AVERAGED, (1 + steps) / (10 + steps))
        error = learn(pictures.batch(options.batch, height, width), rate, 1 - keep)
        steps += 1
        spent = before + time.monotonic() - begin
        done = spent / options.seconds if options.seconds else steps / options.steps
        if steps % 100 == 0:
            print(f"{options.network} {steps} steps, {spent:.0f} s, loss {error.item():.3f}", flush=True)
        if options.piece and spent - before > options.piece:
            break
        if options.report and steps % options.report == 0:
            keep_state()
            print(json.dumps(judged(learn.averaged, size, watched, device)), flush=True)
    keep_state()
    print(f"{options.network} {steps} steps in {spent:.0f} s, {done:.0%} of the training")
    print(json.dumps(judged(learn.averaged, size, watched, device)))
    about = {"steps": steps, "seconds": round(spent), "pictures": sum(row["train"] for row in rows)}
    return learn.averaged.cpu().float().eval(), about


def folded(network: Network) -> Network:
    """The same network without normalisation: folded into the convolutions."""
    network = copy.deepcopy(network)
    for layers in network.modules():
        if isinstance(layers, nn.Sequential) and len(layers) > 1 and isinstance(layers[1], nn.BatchNorm2d):
            layers[0] = nn.utils.fuse_conv_bn_eval(layers[0], layers[1])
            layers[1] = nn.Identity()
    return network


def export(network: Network, size: Size, name: str, target: Path) -> None:
    """Writes the ONNX file: dynamic batch, height and width; what its numbers mean is in its metadata."""
    import onnx

    network = folded(network)
    height, width = size.shapes[0]
    dynamic = {name: {0: "batch", 2: "height", 3: "width"} for name in ("input", "mask")}
    torch.onnx.export(
        Exported(network).eval(), (torch.zeros(1, 3, height, width),), str(target), input_names=["input"],
        output_names=["mask"], dynamic_axes=dynamic, opset_version=17, dynamo=False,
    )  # fmt: skip
    graph = onnx.load(target)
    meaning = {
        "labels": json.dumps(["person"]), "mean": json.dumps(MEAN), "std": json.dumps(STD), "channel_order": "rgb",
        "activation": "none", "input_size": json.dumps(size.shapes), "license": "Apache-2.0",
        "author": "segmentation contributors", "description": f"{name}: probability that a pixel shows a person",
    }  # fmt: skip
    onnx.helper.set_model_props(graph, meaning)
    compact(graph)
    onnx.checker.check_model(graph, full_check=True)
    onnx.save(graph, target)


def prepare(options: argparse.Namespace) -> None:
    """Makes what is not there yet: labels, packed pictures, the teacher's weights."""
    if not options.pictures.exists():
        for script, more in (("label.py", ["--cache"]), ("data.py", ["-o", str(options.pictures), "--labels"])):
            folder = [*more, str(options.pictures.parent / "labels")]
            subprocess.run([sys.executable, HERE / script, "--shared", options.shared, *folder], check=True)
    if not options.teacher.exists():
        found = teacher_weights(options.shared / "people" / "teachers" / "deeplab-mnv2-pascal-513-int8.tflite")
        np.savez(
            options.teacher,
            **{f"{k}{i:02d}": v for i, pair in enumerate(found) for k, v in zip("wb", pair, strict=True)},
        )


def train(options: argparse.Namespace) -> None:
    """Makes all that is missing, trains a network by the arguments of `train.py`, and writes its file."""
    prepare(options)
    rows = [row | {"train": split(row["name"]) == "train"} for row in read(options.pictures)]
    with np.load(options.teacher) as content:
        count = len(content.files) // 2
        weights = [(content[f"w{i:02d}"], content[f"b{i:02d}"]) for i in range(count)]
    size = SIZES[options.network]
    network, about = trained(size, rows, weights, options)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    print(json.dumps(about | {"torch": torch.__version__, "device": device}))
    target = options.output or HERE.parents[2] / "segmentation" / "models" / f"{options.network}.onnx"
    if options.output:
        torch.save(network.state_dict(), target.with_suffix(".pt"))
    export(network, size, options.network, target)
