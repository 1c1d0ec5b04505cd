"""What is kept apart for measuring, and what the networks are taught. What reads pictures skips without ../shared."""

import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from figures import drawn
from paths import ROOT

sys.path.insert(0, str(ROOT / "tools" / "lab" / "training"))  # the tools are programs, not a package

import data
import label
import split
import truth

HELD = "people/stills/portraits-house/alex-mooney-c384.webp"  # has a checked mask


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


@pytest.mark.slow
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


NONE = np.zeros((0, 33, 3), np.float32)  # joints of nobody
NO_HEADS = np.zeros((0, 5), np.float32)


def masks(human: float, deeplab: float, heavy: float, former: float) -> np.ndarray:
    """Masks (4, 90, 120): what each teacher says of a square in the middle; elsewhere that nobody is there."""
    found = np.zeros((4, 90, 120), np.uint8)
    found[:, 30:60, 40:80] = np.reshape([round(255 * value) for value in (human, deeplab, heavy, former)], (4, 1, 1))
    return found


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ((1, 1, 1, 1), data.CERTAIN),
        ((0, 0, 0, 0), 0),
        ((0, 1, 1, 0), data.DOUBT),  # two against the network of before, which counts twice
        ((0, 0, 0, 1), data.DOUBT),
        ((0, 0, 0.9, 1), data.DOUBT),
        ((1, 0, 0, 0), round((0.2 - 0.1) / 0.65 * data.CERTAIN)),  # one alone is not believed
        ((1, 0, 1, 1), data.CERTAIN),
        ((0.2, 0.2, 0.2, 0.2), round((0.2 - 0.1) / 0.65 * data.CERTAIN)),
    ],
)
def test_what_the_teachers_say_becomes_a_target(said: tuple[float, float, float, float], value: int) -> None:
    found = data.target("people/stills/scenes-gov/a.webp", masks(*said), NONE)
    assert found.shape == (90, 120) and found.dtype == np.uint8
    assert abs(int(found[45, 60]) - value) <= 1 and (found == data.DOUBT).any() == (value == data.DOUBT)
    assert not found[:20].any() and not found[:, :30].any()


def test_nobody_for_certain() -> None:
    everywhere = np.full((4, 90, 120), 255, np.uint8)
    assert not data.target("people/clips/street-nobody.mp4", everywhere, NONE).any()
    assert not data.target("people/stills/more-nobody-rooms/a.webp", everywhere, NONE).any()
    assert not data.target("people/stills/photos-dali/pug-690566-1280-ddec.webp", everywhere, NONE).any()
    assert data.target("people/clips/street.mp4", everywhere, NONE).all()
    # Where people need not be: nobody, if DeepLab sees none and the two that know bodies do not agree.
    for said in ((1, 0, 0, 1), (0, 0, 1, 1)):
        assert not data.target("people/stills/photos-mdn/a.webp", masks(*said), NONE).any()
        assert data.target("people/stills/more-seated/a.webp", masks(*said), NONE).any()
    assert data.target("people/stills/photos-mdn/a.webp", masks(1, 0, 1, 1), NONE).any()


def test_doubt_ends_where_a_look_ended_it() -> None:
    found = np.zeros((90, 120), np.uint8)
    found[30:60, 40:80] = data.CERTAIN
    found[30:60, 80:90], found[5:10, 5:10] = data.DOUBT, data.DOUBT  # beside the person; by itself
    for name, beside in (("astronaut-9db8b5c6", data.CERTAIN), ("deborah-ross-5dc5", 0), ("a", data.DOUBT)):
        apart = data.DOUBT if name == "a" else 0
        decided = data.decided(f"people/stills/more-helmets/{name}.webp", found)
        assert decided.dtype == np.uint8
        assert list(decided[45, [85, 60]]) == [beside, data.CERTAIN] and decided[7, 7] == apart


def test_people_who_are_small_are_left_to_the_network_of_before() -> None:
    said = masks(1, 1, 1, 1)
    said[3, 5:15, 5:15] = 255
    found = data.target("people/stills/scenes-gov/a.webp", said, NONE)
    assert (found[5:15, 5:15] == data.CERTAIN).all() and (found == data.DOUBT).sum() == 0


def with_wrist(x: int, y: int, seen: float = 0.95) -> np.ndarray:
    """The joints of one person, of whom only a wrist at (x, y) in pixels can be seen."""
    joints = np.zeros((1, 33, 3), np.float32)
    joints[0, 15] = x / 120, y / 90, seen
    return joints


def test_a_limb_whose_end_is_seen_belongs_to_the_person() -> None:
    said = masks(1, 1, 1, 1)
    said[2, 40:46, 80:100] = 255  # BlazePose heavy alone sees a forearm beside the square
    name = "people/stills/scenes-gov/a.webp"
    assert data.target(name, said, NONE)[43, 95] < 50
    assert data.target(name, said, with_wrist(97, 43))[43, 95] == data.CERTAIN
    assert data.target(name, said, with_wrist(97, 43, seen=0.5))[43, 95] < 50
    # Of a hand that no teacher finds only the place is known.
    lost = data.target(name, masks(1, 1, 1, 1), with_wrist(97, 43))
    assert lost[43, 97] == data.DOUBT and lost[45, 60] == data.CERTAIN and lost[10, 10] == 0


def test_heads_are_where_nose_ears_and_shoulders_are_seen() -> None:
    joints = np.zeros((1, 33, 3), np.float32)
    for number, (x, y) in {0: (60, 40), 7: (66, 38), 8: (54, 38), 11: (75, 58), 12: (45, 58)}.items():
        joints[0, number] = x / 120, y / 90, 0.9
    target = data.target("people/stills/scenes-gov/a.webp", masks(1, 1, 1, 1), NONE)
    ((x, y, half, up_x, up_y),) = data.heads(joints, target)
    assert (x, up_x) == pytest.approx((60, 0), abs=1e-3) and 38 < y < 40 and 6 < half < 10 and up_y == pytest.approx(-1)
    joints[0, 7, 2] = 0.2
    assert not len(data.heads(joints, target))
    assert not len(data.heads(joints, np.zeros_like(target)))


def put(cache: Path, name: str, frame: int, rgb: np.ndarray, said: np.ndarray) -> None:
    np.savez(label.cached(cache, (name, frame)), rgb=rgb, masks=said, joints=NONE)


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
        data.Sample(HELD, 0, drawn(120, 160, seed=1)[0], levels, np.float32([[80, 40, 9, 0, -1]])),
        data.Sample("people/clips/pose.mp4", 123, drawn(90, 51, seed=2)[0], np.zeros((90, 51), np.uint8), NO_HEADS),
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
        assert mask.ndim == 2 and max(mask.shape) <= 384, row
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
