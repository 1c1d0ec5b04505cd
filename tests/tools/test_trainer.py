"""Training a network, and what its file does in the end. Skips where PyTorch is missing, as on CI."""

import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cv2
import numpy as np
import onnxruntime as ort
import pytest
from figures import drawn
from paths import ROOT

sys.path.insert(0, str(ROOT / "tools" / "lab" / "training"))  # the tools are programs, not a package

import data
import label

from segmentation.models.model import load_model
from segmentation.options.config import Config


@pytest.fixture(scope="module")
def train() -> Iterator[ModuleType]:
    """tools/lab/training/trainer.py, and what it imports of the others; pictures are kept at a quarter of the size."""
    pytest.importorskip("torch", reason="PyTorch, with which networks are trained, is not installed")
    import augment
    import trainer as train

    threads = train.torch.get_num_threads()
    train.torch.set_num_threads(1)  # for such small pictures more of them only wait for each other
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(augment, "SIDES", (128, 64, 32))
        yield train
    train.torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Five drawn pictures, as they are packed: three of people, two of nobody."""
    found = []
    names = ("portraits-gov/a", "scenes-gov/b", "photos-jetson/c", "photos-mdn/d", "nobody-gov/e")
    for number, name in enumerate(names):
        height, width = ((150, 200), (200, 140))[number % 2]
        rgb, person = drawn(height, width, person=number < 3, seed=number)
        target = np.where(person, data.CERTAIN, 0).astype(np.uint8)
        if number == 0:
            target[:, :20] = data.DOUBT
        heads = np.float32([[width / 2, height / 3, 20, 0, -1]] * (number < 3)).reshape(-1, 5)
        found.append(data.Sample(f"people/stills/{name}-0000.webp", 0, rgb, target, heads))
    path = tmp_path_factory.mktemp("pictures") / "pictures.npz"
    data.write(path, found)
    return data.read(path)


def pictures(train: ModuleType, rows: list[dict[str, Any]], seed: int) -> Any:
    def things(rgb: Any) -> Any:
        """Finds what is drawn before the background, as DeepLab does in photographs."""
        return (rgb[:, :1] > 0.6).float()

    return train.Pictures(rows, train.torch.device("cpu"), seed, things)


def drawn_weights() -> list[tuple[np.ndarray, np.ndarray]]:
    """Weights and biases as a teacher could have them."""
    from network import BLOCKS

    random = np.random.default_rng(5)
    shapes, width = [(32, 3, 3, 3)], 32
    for expansion, channels, _ in BLOCKS:
        wide = width * expansion
        shapes += [(wide, width, 1, 1)] if expansion > 1 else []
        shapes += [(wide, 1, 3, 3), (channels, wide, 1, 1)]
        width = channels
    # Of each place, of the mean, of both, of the classes.
    shapes += [(256, width, 1, 1), (256, width, 1, 1), (256, 512, 1, 1), (21, 256, 1, 1)]
    return [
        (random.normal(0, np.prod(shape[1:]) ** -0.5, shape).astype(np.float32),
         random.normal(0, 0.3, shape[0]).astype(np.float32))
        for shape in shapes
    ]  # fmt: skip


def new(train: ModuleType, name: str) -> Any:
    """A network that has learned nothing yet."""
    return train.Network(train.SIZES[name], train.DeepLab(drawn_weights()))


def test_shares_name_groups_that_there_are(train: ModuleType, shared: Path) -> None:
    import augment

    groups = {data.group(name) for name in label.sources(shared)}
    assert augment.SHARES.keys() | augment.NOBODY_SHARES.keys() <= groups


def test_people_in_pictures_are_found_for_pasting(train: ModuleType, rows: list[dict[str, Any]]) -> None:
    store = pictures(train, rows, 1)
    assert (list(store.with_people), list(store.without)) == ([0, 1, 2], [3, 4])
    assert list(store.people.pictures) == [0, 1, 2] and not store.people.cut.any()
    for number in range(3):
        person = drawn(*((150, 200), (200, 140))[number % 2], seed=number)[1]
        (top, left), (bottom, right) = (f(np.argwhere(person), axis=0) / person.shape for f in (np.min, np.max))
        assert store.people.boxes[number] == pytest.approx([left, top, right, bottom], abs=0.03)


def test_new_pictures_are_drawn_by_the_seed(train: ModuleType, rows: list[dict[str, Any]]) -> None:
    first, again, other = (pictures(train, rows, seed).batch(6, 64, 96) for seed in (1, 1, 2))
    rgb, person, known = first
    assert (rgb.shape, person.shape, known.shape) == ((6, 3, 64, 96), (6, 1, 64, 96), (6, 1, 64, 96))
    for values in first:
        assert values.dtype == train.torch.float32 and values.min() >= 0 and values.max() <= 1
    assert set(known.unique().tolist()) <= {0, 1} and person.max() > 0.9 and rgb.std() > 0.05
    assert all(a.equal(b) for a, b in zip(first, again, strict=True))
    assert not rgb.equal(other[0])


def test_who_is_pasted_is_marked_where_they_are_seen(train: ModuleType, rows: list[dict[str, Any]]) -> None:
    torch = train.torch
    store = pictures(train, rows, 3)
    below = torch.zeros(12, 5, 64, 96)
    below[:, 2], below[:, 4] = 0.5, 1  # blue, known to be nobody
    layers = below.clone()
    some = np.array([1, 2, 4, 5, 6, 7, 9, 11])
    store.put(layers, some, store.drawn(store.people, len(some), 64, 96), person=1)
    untouched = [number for number in range(12) if number not in some]
    assert layers[untouched].equal(below[untouched])
    changed, marked = (layers[:, :3] != below[:, :3]).any(1), layers[:, 3]
    assert (marked[some].amax((1, 2)) > 0.99).sum() >= 6  # some may be small, or outside
    assert not (changed & (marked == 0)).any() and changed[marked > 0.1].all()
    red, green = layers[:, 0], layers[:, 1]
    assert (green > red)[marked > 0.9].float().mean() > 0.98  # the figure, and not what was around it
    assert layers[:, 4][marked > 0.99].mean() > 0.98 and layers.min() >= 0 and layers.max() <= 1


def test_animals_and_things_are_pasted_as_nobody(train: ModuleType, rows: list[dict[str, Any]]) -> None:
    store = pictures(train, rows, 3)
    assert set(store.objects.pictures) == {3, 4}
    layers = train.torch.zeros(12, 5, 64, 96)
    layers[:, 3], layers[:, 4] = 1, 0.5  # people everywhere, and not for certain
    store.put(layers, np.arange(12), store.drawn(store.objects, 12, 64, 96), person=0)
    seen = layers[:, 0] > 0.5  # they are red
    assert seen.float().mean() > 0.02
    assert (layers[:, 3][seen] < 0.1).float().mean() > 0.9 and (layers[:, 4][seen] == 1).float().mean() > 0.9


def test_doubt_is_pasted_as_doubt(train: ModuleType, rows: list[dict[str, Any]]) -> None:
    torch = train.torch
    layers = torch.zeros(1, 5, 16, 16)
    layers[:, 4] = 1
    person = torch.ones(1, 5, 16, 16)
    person[..., :8], person[:, 3, :, :8], person[:, 4, :, :8] = 0.5, 0.5, 0
    pictures(train, rows, 1).put(layers, np.array([0]), person, person=1)
    assert not layers[0, 4, :, :8].any() and (layers[0, 4, :, 8:] == 1).all() and (layers[0, 3, :, 8:] == 1).all()


def test_networks_take_all_their_shapes(train: ModuleType) -> None:
    from train import NETWORKS

    assert tuple(train.SIZES) == NETWORKS
    for name, size in train.SIZES.items():
        network = new(train, name).eval()
        for height, width in ((16, 16), (48, 80), (112, 16)):  # it takes all multiples of 16
            with train.torch.no_grad():
                assert network(train.torch.zeros(1, 3, height, width)).shape == (1, 1, height, width)
        assert not np.any(np.array(size.shapes) % 16) and len(size.shapes) == len(train.SHAPE_SHARES)
    assert sum(train.SHAPE_SHARES) == pytest.approx(1)


def test_the_file_says_what_the_network_does(train: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    torch, size, target = train.torch, train.SIZES["person"], tmp_path / "person.onnx"
    torch.manual_seed(0)
    network = new(train, "person").train()
    for _ in range(3):
        network(torch.randn(2, 3, 64, 96))  # normalisation that is worth folding
    network.eval().logits.weight.data *= 60  # as sure as one that is trained
    network.encoder.classes.bias.data[0] += 4.5  # the teacher sees background mostly
    shown = torch.randn(2, 3, 96, 160)
    with torch.no_grad():
        logits = network(shown)
        assert train.folded(network)(shown).numpy() == pytest.approx(logits.numpy(), abs=1e-4)
        train.export(network, size, "person", target)
        assert network(shown).equal(logits)  # as it was
    session = ort.InferenceSession(str(target), providers=["CPUExecutionProvider"])
    expected = logits.sigmoid().numpy()
    assert expected.std() > 0.02
    assert session.run(["mask"], {"input": shown.numpy()})[0] == pytest.approx(expected, abs=1e-4)
    said = session.get_modelmeta().custom_metadata_map
    assert said.keys() == {
        "labels", "mean", "std", "channel_order", "activation", "input_size", "license", "author", "description",
    }  # fmt: skip
    assert json.loads(said["input_size"]) == [list(shape) for shape in size.shapes]
    model = load_model(Config(model=target))
    assert (model.height, model.width) == size.shapes[0] and model.labels == ("person",)
    rgb = torch.rand(1, 3, 4, 4)
    as_run = (rgb.numpy() - np.reshape(model.mean, (3, 1, 1))) / np.reshape(model.std, (3, 1, 1))
    assert train.normalised(rgb).numpy() == pytest.approx(as_run, abs=1e-6)


def test_the_teacher_is_the_network_in_its_file(train: ModuleType, shared: Path) -> None:
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    path = shared / "people" / "teachers" / "deeplab-mnv2-pascal-513-int8.tflite"
    weights = train.teacher_weights(path)
    rgb = cv2.imread(str(ROOT / "segmentation" / "models" / "astronaut.jpg"), cv2.IMREAD_COLOR_RGB)
    rgb = cv2.resize(rgb, (513, 513), interpolation=cv2.INTER_AREA)
    with warnings.catch_warnings(action="ignore"):  # that to keep all tensors is for debugging
        network = litert.Interpreter(str(path), experimental_preserve_all_tensors=True, num_threads=2)
    network.allocate_tensors()
    network.set_tensor(network.get_input_details()[0]["index"], rgb[None])
    network.invoke()
    (last,) = (t["index"] for t in network.get_tensor_details() if "conv_16/project/BatchNorm_Fold/bias1" in t["name"])
    expected = network.get_tensor(last)[0].astype(np.float32)  # quantized: a multiple of it, and a shift
    shown = train.normalised(train.torch.from_numpy(rgb).permute(2, 0, 1)[None] / 255)
    with train.torch.no_grad():
        found = train.DeepLab(weights).maps(shown)[0][-1][0].permute(1, 2, 0).numpy()
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.98


def test_doubt_is_left_out_of_the_loss(train: ModuleType) -> None:
    torch = train.torch
    torch.manual_seed(0)
    wanted = torch.zeros(2, 1, 32, 48)
    wanted[0, :, 8:24, 8:24] = 1
    right = 20 * wanted - 10
    known = torch.ones_like(wanted)
    assert train.loss(right, wanted, known) < 1e-3 < 1 < train.loss(-right, wanted, known)
    known[..., 24:] = 0
    wrong = right.clone()
    wrong[..., 24:] = 10
    assert train.loss(wrong, wanted, known) < 1e-3
    alarm, overlooked = right.clone(), right.clone()
    alarm[1, :, 8:24, 8:16], overlooked[0, :, 8:24, 8:16] = 10, -10
    assert all(train.loss(logits, wanted, known) > 0.5 for logits in (alarm, overlooked))


def test_what_the_teacher_names_is_taken_from_the_logits(train: ModuleType) -> None:
    torch, network = train.torch, new(train, "person").eval()
    network.encoder.classes.bias.data[0] += 4.5  # the teacher sees background mostly
    shown = torch.randn(2, 3, 96, 160)
    with torch.no_grad():
        x, skips, classes = network.encoder(shown)
        logits, alone = network(shown), network.decoded(x, skips)
        assert classes.equal(network.encoder.named(shown))
        classes = classes.softmax(1)
    others = 1 - classes[:, :1] - classes[:, 15:16]
    nobody = (1 - torch.nn.functional.max_pool2d(classes[:, 15:16], 7, 1, 3) / 0.2).clamp(min=0)
    assert 0.1 < others.mean() < 0.5 and 0.01 < nobody.mean() < 0.99
    taken = 4 * torch.nn.functional.interpolate(others + nobody, scale_factor=16, mode="bilinear")
    assert logits.numpy() == pytest.approx((alone - taken).numpy(), abs=1e-4)


def test_the_decoder_alone_learns(train: ModuleType) -> None:
    network = new(train, "person")
    assert not network.encoder(train.torch.zeros(1, 3, 32, 48))[0].requires_grad
    assert all(p.requires_grad != key.startswith("encoder.") for key, p in network.named_parameters())


def test_a_network_is_judged_by_group(train: ModuleType, rows: list[dict[str, Any]]) -> None:
    torch = train.torch

    class Green(torch.nn.Module):  # type: ignore[misc]
        """Finds the drawn figure: where green is above red."""

        def forward(self, x: Any) -> Any:
            return 9 * (x[:, 1:2] - x[:, :1])

    size = train.Size((1, 1, 1, 1), 0, ((96, 128), (128, 96)))
    scores = train.judged(Green(), size, rows, torch.device("cpu"))
    assert list(scores) == ["nobody nobody-gov", "nobody photos-mdn", "photos-jetson", "portraits-gov", "scenes-gov"]
    assert all(value == 0 if "nobody" in key else value > 0.9 for key, value in scores.items())


def small_steps(train: ModuleType, device: str) -> Any:
    """Steps of a network of two layers."""
    torch, nn = train.torch, train.nn
    torch.manual_seed(4)
    layers = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 1, 1))
    return train.Steps(layers.to(device), lambda network, rgb, *truth: train.loss(network(rgb), *truth))


def losses(train: ModuleType, device: str) -> list[float]:
    """Losses of successive steps on pictures of two shapes, which are the same on any device."""
    learn, random = small_steps(train, device), train.torch.Generator().manual_seed(4)
    found = []
    for number in range(24):
        rgb = train.torch.rand(4, 3, 32, 48 if number % 2 else 64, generator=random)
        wanted = (rgb[:, 1:2] > 0.5).float()
        batch = tuple(part.to(device) for part in (rgb, wanted, train.torch.ones_like(wanted)))
        found.append(learn(batch, 2e-2, 0.5).item())
    return found


def test_steps_teach_a_network_and_keep_the_mean_of_its_weights(train: ModuleType) -> None:
    found = losses(train, "cpu")
    assert found[-1] < 0.7 * found[0]
    learn = small_steps(train, "cpu")
    before = [p.clone() for p in learn.averaged.parameters()]
    shown = train.torch.rand(4, 3, 32, 48)
    learn((shown, shown[:, :1].round(), shown[:, :1] * 0 + 1), 2e-2, 0.25)
    for mean, start, now in zip(learn.averaged.parameters(), before, learn.network.parameters(), strict=True):
        assert mean.allclose(start + 0.25 * (now - start), atol=1e-6)
        assert not now.equal(start)


@pytest.mark.gpu
def test_recorded_steps_teach_as_those_of_a_cpu_do(train: ModuleType) -> None:
    found, expected = (losses(train, device) for device in ("cuda", "cpu"))
    assert found == pytest.approx(expected, rel=0.02)
