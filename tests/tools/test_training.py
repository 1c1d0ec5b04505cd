"""The tools that train the built-in networks: what is kept apart, what is taught, and what the file does in the end.

Those that need PyTorch skip where it is missing, as on CI; those that read pictures, where ../shared is.
"""

import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import av
import cv2
import numpy as np
import onnxruntime as ort
import pytest
from paths import ROOT, SHARED

sys.path.insert(0, str(ROOT / "tools" / "training"))  # the tools are programs, not a package

import data
import label
import split
import truth

from segmentation.config import Config
from segmentation.models.model import load_model

HELD = "people/stills/portraits-house/alex-mooney-c384.webp"  # has a checked mask
GREEN, RED = (40, 200, 60), (200, 60, 40)  # a drawn person's color, and what is around


@pytest.fixture(scope="module")
def shared() -> Path:
    """The folder of pictures that networks are trained on, which lies beside the repository."""
    if not (SHARED / "people" / "INDEX.tsv").is_file():
        pytest.skip(f"the pictures are not here: {SHARED / 'people'} is missing")
    return SHARED


@pytest.fixture(scope="module")
def stills(shared: Path) -> dict[str, np.ndarray]:
    """All pictures in grey but for portraits that are trained on, of which the names say who they show."""
    found = [name for name in label.sources(shared) if "/stills/" in name]
    found = [name for name in found if split.split(name) != "train" or not re.search("/portraits-(house|senate)", name)]
    with ThreadPoolExecutor() as pool:
        grey = pool.map(lambda name: cv2.imread(str(shared / name), cv2.IMREAD_GRAYSCALE), found)
        return dict(zip(found, grey, strict=True))


# What is kept out of training.


def test_every_file_is_on_one_side(shared: Path) -> None:
    names = label.sources(shared)
    assert len(set(names)) == len(names)
    assert {split.split(name) for name in names} == {"train", "held", "reserve"}
    assert [name for name in names if not (shared / name).is_file()] == []
    there = {path.relative_to(shared).as_posix() for path in (shared / "people").glob("stills/*/*")}
    assert there <= set(names)


def test_what_is_kept_out_is_there(shared: Path) -> None:
    """A name with a typing error keeps nothing out."""
    clips = split.RESERVE_CLIPS | split.HELD_CLIPS
    assert clips == truth.FRAMES.keys() and clips <= set(label.sources(shared))
    stills = shared / "people" / "stills"
    for side, groups in (("reserve", split.RESERVE_STILLS), ("held", split.HELD_STILLS)):
        for group, names in groups.items():
            for name in names:
                found = [*stills.glob(f"{group}/{name}.*"), *stills.glob(f"{group}/{name}-*.*")]
                assert len(found) == 1, name
                assert split.split(found[0].relative_to(shared).as_posix()) == side
    assert all((stills / group).is_dir() for group in split.HELD_GROUPS | split.HELD_SHARES.keys())


def test_pictures_of_one_person_or_thing_are_on_the_same_side(shared: Path) -> None:
    who = {
        r"portraits-(?:house|senate)": r"[a-z-]+(?=-[0-9a-f]{4})",
        r"things-azure": r"[a-z-]+",
        r"(?:things|photos)-dali": r"[a-z-]+[0-9]+",
    }
    sides: dict[str, set[str]] = {}
    for name in label.sources(shared):
        for group, rule in who.items():
            if found := re.fullmatch(rf"people/stills/{group}/({rule}).*", name):
                sides.setdefault(found[1], set()).add(split.split(name))
    assert {"cat-1046544", "hemlock-", "tom-reed"} <= sides.keys()
    assert [one for one, found in sides.items() if len(found) > 1] == []
    assert set.union(*sides.values()) == {"train", "held"}


def test_no_picture_is_on_two_sides_under_two_names(stills: dict[str, np.ndarray]) -> None:
    stills = {name: grey for name, grey in stills.items() if not data.LEFT_OUT.search(name)}
    small = [cv2.resize(grey, (24, 24), interpolation=cv2.INTER_AREA) for grey in stills.values()]
    brightness = np.reshape(small, (len(small), -1)).astype(np.float32)
    brightness -= brightness.mean(1, keepdims=True)
    brightness /= np.linalg.norm(brightness, axis=1, keepdims=True) + 1e-6
    names, sides = list(stills), np.array([split.split(name) for name in stills])
    alike = brightness @ brightness.T > 0.95  # correlation; unlike pictures of one kind reach 0.9
    pairs = np.argwhere(np.triu(alike) & (sides[:, None] != sides))
    assert [(names[i], names[j]) for i, j in pairs] == []


def test_sides_are_chosen_by_name() -> None:
    sides = []
    for number in range(200):
        name = f"people/stills/things-dali/cat-{number:06d}"
        found = {split.split(f"{name}-{size}-{code}.webp") for size in (640, 1280) for code in ("00ff", "1234")}
        assert len(found) == 1
        sides += found
    assert 70 < sides.count("held") < 130 and set(sides) == {"held", "train"}  # one in two
    assert split.split("people/stills/photos-jetson/humans-1-db0d.webp") == "reserve"
    assert split.split("people/stills/photos-jetson/humans-10-db0d.webp") == "held"
    assert split.split("people/stills/scenes-gov/humans-1-db0d.webp") == "train"


# What the teachers' masks become.


def masks(human: float, selfie: float, deeplab: float, pose: float) -> np.ndarray:
    """Masks (4, 90, 120): what each teacher says of a square in the middle; elsewhere that nobody is there."""
    found = np.zeros((4, 90, 120), np.uint8)
    found[:, 30:60, 40:80] = np.reshape([round(255 * value) for value in (human, selfie, deeplab, pose)], (4, 1, 1))
    return found


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ((1, 1, 1, 1), data.CERTAIN),
        ((0, 0, 0, 0), 0),
        ((0, 1, 1, 0), data.DOUBT),  # two against two
        ((0, 0.9, 0, 0.9), data.DOUBT),
        ((1, 0, 1, 0), data.CERTAIN),  # DeepLab and HumanSeg are believed,
        ((0, 0, 1, 1), data.CERTAIN),  # as DeepLab and BlazePose are
        ((0.9, 0, 0, 0), data.DOUBT),  # only one, where DeepLab sees nobody near
        ((1, 1, 0, 1), data.CERTAIN),  # HumanSeg and BlazePose are both sure
        ((0.2, 0.2, 0.2, 0.2), round((0.2 - 0.1) / 0.65 * data.CERTAIN)),
    ],
)
def test_what_the_teachers_say_becomes_a_target(said: tuple[float, float, float, float], value: int) -> None:
    found = data.target("people/stills/scenes-gov/a.webp", masks(*said))
    assert found.shape == (90, 120) and found.dtype == np.uint8
    assert abs(int(found[45, 60]) - value) <= 1 and (found == data.DOUBT).any() == (value == data.DOUBT)
    assert not found[:20].any() and not found[:, :30].any()


def test_nobody_for_certain() -> None:
    everywhere = np.full((4, 90, 120), 255, np.uint8)
    assert not data.target("people/clips/street-nobody.mp4", everywhere).any()
    assert data.target("people/clips/street.mp4", everywhere).all()
    # Where people need not be: nobody, if DeepLab sees none and the other two that know bodies do not agree.
    for said in ((1, 1, 0, 0), (0, 1, 0, 1)):
        assert not data.target("people/stills/photos-mdn/a.webp", masks(*said)).any()
        assert (data.target("people/stills/portraits-gov/a.webp", masks(*said)) == data.DOUBT).any()
    assert data.target("people/stills/photos-mdn/a.webp", masks(1, 0, 0, 1)).any()


def test_only_deeplab_sees_people_behind_who_is_alone() -> None:
    said = masks(1, 1, 1, 1)
    said[1, 5:25, 5:25] = 255  # the selfie network sees somebody else
    for name, elsewhere in (("portraits-gov", 0), ("scenes-gov", data.DOUBT)):
        found = data.target(f"people/stills/{name}/a.webp", said)
        assert (found[5:25, 5:25] == elsewhere).all() and found[45, 60] == data.CERTAIN


def drawn(height: int, width: int, *, person: bool = True, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A picture (H, W, 3) of a green figure before red, and where that is, (h, w) bool."""
    random = np.random.default_rng(seed)
    rgb = np.empty((height, width, 3), np.uint8)
    rgb[:] = RED
    mask = np.zeros((height, width), np.uint8)
    if person:
        x = int(width * random.uniform(0.4, 0.6))
        cv2.ellipse(mask, (x, height // 2), (width // 7, height // 3), 0, 0, 360, 1, -1)
        rgb[mask > 0] = GREEN
    noise = cv2.GaussianBlur(random.normal(0, 30, rgb.shape), (5, 5), 0)
    return np.clip(rgb + noise, 0, 255).astype(np.uint8), mask > 0


def put(cache: Path, name: str, frame: int, rgb: np.ndarray, said: np.ndarray) -> None:
    np.savez(label.cached(cache, (name, frame)), rgb=rgb, masks=said)


def test_samples_are_what_is_labelled_but_for_what_is_left_out(tmp_path: Path) -> None:
    shared, cache = tmp_path / "shared", tmp_path / "labels"
    for folder in (shared / "people", cache):
        folder.mkdir(parents=True)
    good, bad, dark = (f"people/stills/photos-mdn/{name}.webp" for name in ("street-0000", "hand-617f", "black-0000"))
    clip, other = "people/clips/pose.mp4", "people/stills/photos-mdn/street-0000.webp2"
    files = [name.removeprefix("people/") for name in (HELD, good, bad, dark, clip)]
    (shared / "people" / "INDEX.tsv").write_text("file\tkind\n" + "".join(f"{name}\tx\n" for name in files))
    rgb, _ = drawn(90, 120)
    for name, frame in ((HELD, 0), (good, 0), (bad, 0), (clip, 0), (clip, 12), (other, 0)):
        put(cache, name, frame, rgb, masks(1, 1, 1, 1))
    put(cache, dark, 0, np.zeros_like(rgb), masks(1, 1, 1, 1))
    (cache / f"{good.replace('/', '__')}__00001.part.npz").write_bytes(b"half")  # of a run that was ended

    found = data.samples(shared, cache)
    assert [(sample.name, sample.frame) for sample in found] == [(HELD, 0), (good, 0), (clip, 0), (clip, 12)]
    corrected = cv2.imread(str(truth.path_of((HELD, 0))), cv2.IMREAD_GRAYSCALE)
    assert np.array_equal(found[0].target == data.CERTAIN, corrected == 255)
    assert np.array_equal(found[0].target == data.DOUBT, corrected == 128)
    assert found[1].target[45, 60] == data.CERTAIN


def test_samples_are_read_as_they_were_written(tmp_path: Path) -> None:
    levels = np.resize(np.arange(256), (60, 80)).astype(np.uint8)
    levels[(levels > data.CERTAIN) & (levels < data.DOUBT)] = 0
    written = [
        data.Sample(HELD, 0, drawn(120, 160, seed=1)[0], levels),
        data.Sample("people/clips/pose.mp4", 123, drawn(90, 51, seed=2)[0], np.zeros((90, 51), np.uint8)),
    ]
    data.write(tmp_path / "pictures.npz", written)
    rows = data.read(tmp_path / "pictures.npz")
    assert [(row["name"], row["frame"], row["checked"]) for row in rows] == [
        (HELD, 0, True), ("people/clips/pose.mp4", 123, False),
    ]  # fmt: skip
    for row, sample in zip(rows, written, strict=True):
        rgb = cv2.imdecode(row["picture"], cv2.IMREAD_COLOR_RGB)
        assert cv2.PSNR(rgb, sample.rgb) > 25  # dB: what WebP leaves of noise
        target = cv2.imdecode(row["target"], cv2.IMREAD_GRAYSCALE)
        assert np.array_equal(target == data.DOUBT, sample.target == data.DOUBT)
        known = target != data.DOUBT
        assert np.abs(target[known].astype(int) - sample.target[known]).max() <= 5
    assert set(np.unique(cv2.imdecode(rows[0]["target"], cv2.IMREAD_GRAYSCALE))) == {*range(0, 251, 10), data.DOUBT}


# The masks that were checked.


def test_every_row_of_the_truth_is_of_a_held_picture_and_has_a_mask_and_kinds() -> None:
    rows = truth.read_table()
    assert {f"{row['item']}.png" for row in rows} == {path.name for path in truth.HERE.glob("*.png")}
    assert len({row["item"] for row in rows}) == len(rows) > 300
    for row in rows:
        item = row["file"], int(row["frame"])
        assert truth.path_of(item) == truth.HERE / f"{row['item']}.png"
        assert split.split(row["file"]) in ("held", "reserve"), row
        assert set(row["kinds"].split(",")) <= set(truth.KINDS), row  # "" is none of them
        mask = cv2.imread(str(truth.path_of(item)), cv2.IMREAD_UNCHANGED)
        assert mask.ndim == 2 and max(mask.shape) <= label.MASK_SIDE, row
        assert set(np.unique(mask)) <= {0, 128, 255}, row


def test_masks_have_the_shapes_of_their_pictures(shared: Path, stills: dict[str, np.ndarray]) -> None:
    rows = truth.read_table()
    assert {(row["file"], int(row["frame"])) for row in rows} == set(truth.items(shared))
    for row in rows:
        if row["file"] in stills:
            height, width = stills[row["file"]].shape
        else:
            with av.open(str(shared / row["file"])) as container:
                video = container.streams.video[0]
                height, width = video.height, video.width
        mask = cv2.imread(str(truth.HERE / f"{row['item']}.png"), cv2.IMREAD_GRAYSCALE)
        expected = np.array([height, width]) * mask.shape[1] / width
        assert np.abs(expected - mask.shape).max() <= 1, row


def test_a_mask_is_drawn_anew_by_color_inside_a_polygon_alone() -> None:
    rgb, person = drawn(192, 256, seed=3)
    guess = cv2.dilate(person.astype(np.uint8), np.ones((9, 9), np.uint8))[::2, ::2] * 255  # too large, all around
    guess[5:9, 5:9] = 128
    inside = np.zeros(guess.shape, bool)
    inside[:48] = True  # the upper half
    inside[:20, :20] = False
    found = truth.fit(np.ascontiguousarray(rgb[..., ::-1]), guess, inside)
    assert np.array_equal(found[~inside], guess[~inside])
    expected, upper = person[::2, ::2], found[:48] == 255
    assert np.count_nonzero(upper & expected[:48]) > 0.95 * np.count_nonzero(upper | expected[:48])
    assert np.count_nonzero(guess[:48] == 255) > 1.15 * np.count_nonzero(upper)


@pytest.fixture
def edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., np.ndarray]:
    """Runs truth.py on a drawn picture in a folder of its own; returns the mask after that."""
    rgb, person = drawn(192, 256, seed=4)
    monkeypatch.setattr(truth, "HERE", tmp_path)
    put(tmp_path, HELD, 0, rgb, masks(1, 1, 1, 1))
    target = truth.path_of((HELD, 0))
    truth.write_table([{"item": target.stem, "file": HELD, "frame": "0", "kinds": "portrait"}])
    cv2.imwrite(str(target), person[::2, ::2].astype(np.uint8) * 255)

    def run(action: str, *values: str) -> np.ndarray:
        monkeypatch.setattr(sys, "argv", ["truth.py", action, target.stem, *values, "--cache", str(tmp_path)])
        truth.main()
        return cv2.imread(str(target), cv2.IMREAD_GRAYSCALE)

    return run


def test_polygons_are_added_cut_and_left_in_doubt(edit: Callable[..., np.ndarray], tmp_path: Path) -> None:
    square = ("2,3", "12,3", "12,13", "2,13")  # its edges too
    before = edit("show", "--region", "0,0,100,50", "-o", str(tmp_path / "view.png"))
    assert cv2.imread(str(tmp_path / "view.png")).shape == (2 * 500, 1000, 3)
    for action, value in (("add", 255), ("doubt", 128), ("cut", 0)):
        mask = edit(action, *square)
        assert (mask[3:14, 2:13] == value).all()
        mask[3:14, 2:13] = before[3:14, 2:13]
        assert np.array_equal(mask, before)
    ragged = edit("cut", "40,0", "60,0", "60,95", "40,95")
    found = edit("fit", "0,0", "127,0", "127,95", "0,95") > 0
    assert np.count_nonzero(found != (before > 0)) < 0.5 * np.count_nonzero(ragged != before)
    assert not edit("blank").any()


def test_kinds_are_written_to_the_table(edit: Callable[..., np.ndarray]) -> None:
    before = truth.read_table()
    edit("kind", "hands", "dark")
    assert truth.read_table() == [before[0] | {"kinds": "hands,dark"}]
    with pytest.raises(SystemExit, match="cats: no such kind"):
        edit("kind", "cats")
    assert truth.read_table() == [before[0] | {"kinds": "hands,dark"}]


# With PyTorch.


@pytest.fixture(scope="module")
def train() -> Iterator[ModuleType]:
    """tools/training/trainer.py, and what it imports of the others; pictures are kept at a quarter of the size."""
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
        found.append(data.Sample(f"people/stills/{name}-0000.webp", 0, rgb, target))
    path = tmp_path_factory.mktemp("pictures") / "pictures.npz"
    data.write(path, found)
    return data.read(path)


def pictures(train: ModuleType, rows: list[dict[str, Any]], seed: int) -> Any:
    def things(rgb: Any) -> Any:
        """Finds what is drawn before the background, as DeepLab does in photographs."""
        return (rgb[:, :1] > 0.6).float()

    return train.Pictures(rows, train.torch.device("cpu"), seed, things)


def drawn_weights(train: ModuleType, blocks: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Weights and biases as a teacher of so many blocks could have them."""
    from network import BLOCKS

    random = np.random.default_rng(5)
    shapes, width = [(32, 3, 3, 3)], 32
    for expansion, channels, _ in BLOCKS[:blocks]:
        wide = width * expansion
        shapes += [(wide, width, 1, 1)] if expansion > 1 else []
        shapes += [(wide, 1, 3, 3), (channels, wide, 1, 1)]
        width = channels
    return [
        (random.normal(0, np.prod(shape[1:]) ** -0.5, shape).astype(np.float32),
         random.normal(0, 0.3, shape[0]).astype(np.float32))
        for shape in shapes
    ]  # fmt: skip


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
    for size in train.SIZES.values():
        network = train.Network(size).eval()
        for height, width in ((16, 16), (48, 80), (112, 16)):  # it takes all multiples of 16
            with train.torch.no_grad():
                assert network(train.torch.zeros(1, 3, height, width)).shape == (1, 1, height, width)
        assert not np.any(np.array(size.shapes) % 16) and len(size.shapes) == len(train.SHAPE_SHARES)
    assert sum(train.SHAPE_SHARES) == pytest.approx(1)


def test_the_file_says_what_the_network_does(train: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    torch, size, target = train.torch, train.SIZES["person"], tmp_path / "person.onnx"
    torch.manual_seed(0)
    network = train.Network(size).train()
    for _ in range(3):
        network(torch.randn(2, 3, 64, 96))  # normalisation that is worth folding
    network.eval().logits.weight.data *= 30  # as sure as one that is trained
    shown = torch.randn(2, 3, 96, 160)
    with torch.no_grad():
        logits = network(shown)
        assert train.folded(network)(shown).numpy() == pytest.approx(logits.numpy(), abs=1e-4)
        train.export(network, size, "person", target)
        assert network(shown).equal(logits)  # as it was
    assert target.stat().st_size < 4e6
    session = ort.InferenceSession(str(target), providers=["CPUExecutionProvider"])
    expected = (logits - train.CAUTION).sigmoid().numpy()
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


@pytest.mark.parametrize("name", ["person", "person-hq"])
def test_blocks_begin_with_what_the_teacher_does(train: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    shown = train.normalised(train.torch.from_numpy(drawn(96, 160)[0]).permute(2, 0, 1)[None] / 255)
    size = train.SIZES[name]
    same_as_teacher(train, size, drawn_weights(train, size.blocks), shown, monkeypatch)


def same_as_teacher(
    train: ModuleType, size: Any, weights: list[tuple[np.ndarray, np.ndarray]], shown: Any, patch: pytest.MonkeyPatch
) -> None:
    """The blocks that begin with the teacher's weights put out what it does, had it no ReLU6 either."""
    patch.setattr(train.F, "relu6", train.F.relu)
    network = train.Network(size).eval()
    train.begin_with(network, weights, shown)
    other = 0.7 * shown.flip(2)  # not the picture that normalisation was set by
    with train.torch.no_grad():
        found = train.Teacher(weights, train.FIRST)(other)
        for block in network.blocks:
            found = block(found)
        expected = train.Teacher(weights, size.blocks)(other)
    assert (found - expected).abs().max() < 1e-3 * expected.abs().max()


def test_the_teacher_is_the_network_in_its_file(
    train: ModuleType, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        found = train.Teacher(weights, 17)(shown)[0].permute(1, 2, 0).numpy()
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.98
    same_as_teacher(train, train.SIZES["person"], weights, shown[..., 100:196, 200:360], monkeypatch)


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


def test_all_weights_learn_and_those_of_the_blocks_slower(train: ModuleType) -> None:
    network = train.Network(train.SIZES["person"])
    classes = train.nn.Conv2d(4, 21, 1)
    blocks, others = train.groups(network, classes, 1.0)
    learned = [id(p) for part in (blocks, others) for p in part["params"]]
    wanted = {id(p) for module in (network, classes) for p in module.parameters()}
    assert len(set(learned)) == len(learned) and set(learned) == wanted
    assert blocks["peak"] < others["peak"] == 1


def test_a_network_is_judged_by_group(train: ModuleType, rows: list[dict[str, Any]]) -> None:
    torch = train.torch

    class Green(torch.nn.Module):  # type: ignore[misc]
        """Finds the drawn figure: where green is above red."""

        def forward(self, x: Any) -> Any:
            return 9 * (x[:, 1:2] - x[:, :1])

    size = train.Size(14, (1, 1, 1, 1), ((96, 128), (128, 96)))
    scores = train.judged(Green(), size, rows, torch.device("cpu"))
    assert list(scores) == ["nobody nobody-gov", "nobody photos-mdn", "photos-jetson", "portraits-gov", "scenes-gov"]
    assert all(value == 0 if "nobody" in key else value > 0.9 for key, value in scores.items())
