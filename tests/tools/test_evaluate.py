"""The measures of tools/lab/training/evaluate.py, on drawn masks whose answers are known."""

import json
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from paths import ROOT
from unet import SIZES, make_unet

sys.path.insert(0, str(ROOT / "tools" / "lab" / "training"))  # the tools are programs, not a package

import evaluate
import evaluation_sheet
import evaluation_tables
import held_out
import limbs

from segmentation.models.model import BUILT_IN, load_model
from segmentation.options.config import Config
from segmentation.stages.preprocess.opencv import OpenCVPreprocessor

SHAPE = (300, 400)  # 0.8 % of the diagonal of 500: 4 pixels


def square(left: int = 100) -> held_out.Truth:
    """A truth of 100 x 100 pixels of person from column `left` on."""
    truth = np.zeros(SHAPE, np.uint8)
    truth[100:200, left : left + 100] = held_out.PERSON
    return truth


def item(name: str, truth: held_out.Truth, *kinds: str) -> held_out.Item:
    return held_out.Item(name, "", 0, kinds, truth)


def test_iou_leaves_out_doubtful_pixels() -> None:
    truth = square()
    found = square(150) > 0
    assert held_out.iou(found, truth) == pytest.approx(50 / 150)
    truth[:, 200:] = held_out.UNSURE  # the half of `found` that is wrong
    assert held_out.iou(found, truth) == pytest.approx(50 / 100)
    truth[:, 100:150] = held_out.UNSURE  # the half of the person that is not found
    assert held_out.iou(found, truth) == 1


def test_iou_of_empty_masks() -> None:
    nothing = np.zeros(SHAPE, np.uint8)
    assert held_out.iou(nothing > 0, nothing) == 1
    assert held_out.iou(nothing > 0, square()) == held_out.iou(square() > 0, nothing) == 0


def test_boundary_f_of_a_shifted_square() -> None:
    assert held_out.boundary_f(square(104) > 0, square()) == 1
    # The upright sides, half of either outline, are too far off but for the 5 pixels next to a corner.
    assert held_out.boundary_f(square(110) > 0, square()) == pytest.approx(0.5, abs=0.05)
    assert held_out.boundary_f(square(250) > 0, square()) == 0


def test_boundary_f_does_not_see_what_is_found_in_doubt() -> None:
    truth = square()
    truth[:, 180:250] = held_out.UNSURE
    for width in (80, 90, 140):
        found = np.zeros(SHAPE, bool)
        found[100:200, 100 : 100 + width] = True
        assert held_out.boundary_f(found, truth) == 1


def test_rim_of_a_shifted_square() -> None:
    """Of its four sides, one keeps what the opposite one loses; doubt counts for nothing."""
    truth, pixels = square(), 1080 / min(SHAPE)
    kept, lost = held_out.rim(square(102) > 0, truth)
    assert kept == pytest.approx(lost) == pytest.approx(2 / 4 * pixels, rel=0.05)
    truth[:, 195:210] = held_out.UNSURE
    assert held_out.rim(square(102) > 0, truth)[0] == 0
    assert held_out.rim(truth > 0, np.zeros(SHAPE, np.uint8)) == (0, 0)


def test_a_picture_of_nobody_counts_by_what_is_called_person() -> None:
    nobody = np.zeros(SHAPE, np.uint8)
    nobody[:150] = held_out.UNSURE
    found = np.zeros(SHAPE, bool)
    found[140:180, :100] = True  # of the 150 x 400 pixels that are known: 30 x 100
    assert held_out.score(found, item("a", nobody, "nobody")) == {"called_person": pytest.approx(0.05)}
    assert held_out.score(found, item("a", square(), "portrait")).keys() == {"iou", "boundary_f", "rim", "lost"}


def test_a_picture_counts_in_each_of_its_kinds() -> None:
    nobody = np.zeros(SHAPE, np.uint8)
    items = [
        item("a", square(), "portrait", "dark"),
        item("b", square(), "dark"),
        item("c", nobody, "nobody", "dark"),
        item("d", nobody, "animal"),
        item("e", nobody, "nobody"),
    ]
    people = [{"iou": value, "boundary_f": value, "rim": 2 * value, "lost": 3 * value} for value in (1, 0.5)]
    nobodies = (0.3, 0.2, 0.1)
    scores = [*people, *({"called_person": value} for value in nobodies)]
    figures = held_out.summary(items, scores)
    both = {"iou": 0.75, "boundary_f": 0.75, "rim": 1.5, "lost": 2.25}
    assert figures == {
        "all": {"pictures": 2, **both, "worst": {"picture": "b", "iou": 0.5}},
        "portrait": {"pictures": 1, **people[0], "worst": {"picture": "a", "iou": 1}},
        "dark": {"pictures": 2, **both, "worst": {"picture": "b", "iou": 0.5}},
        "nobody": {"pictures": 2, "called_person": 0.2, "worst": {"picture": "c", "called_person": 0.3}},
        "animal": {"pictures": 1, "called_person": 0.2, "worst": {"picture": "d", "called_person": 0.2}},
    }
    flicker = {"clip": {"single": 0.5, "default": 0.25}}
    text = evaluation_tables.tables({"figures": {"net": figures | {"flicker": flicker}}, "networks": {"net": {}}})
    assert "0.50 / 0.25" in text and "| net | 1.50    | 2.00" in text
    assert "| all (2) | portrait (1) | dark (2) |" in text and "20.00% (worst 30.0%: c)" in text


def test_kinds_that_do_not_fit_the_masks_are_told() -> None:
    nobody = np.zeros(SHAPE, np.uint8)
    found = list(evaluate.inconsistent([item("a", square(), "nobody"), item("b", nobody, "hands"), item("c", nobody)]))
    assert [line.partition(":")[2].strip() for line in found] == ["c", "a", "b"]


@pytest.mark.parametrize("size", [(512, 341), (150, 200)])
def test_pictures_reach_the_network_in_their_own_colors(size: tuple[int, int]) -> None:
    rgb = cv2.resize(cv2.imread(str(ROOT / "segmentation" / "models" / "astronaut.jpg"), cv2.IMREAD_COLOR_RGB), size)
    model = load_model(Config())
    info, batch = held_out.as_video(rgb)
    tensor = OpenCVPreprocessor(info, held_out.PIX_FMT, model, Config())(batch)[0]
    found = tensor.transpose(1, 2, 0) * model.std + model.mean
    expected = cv2.resize(rgb, (model.width, model.height), interpolation=cv2.INTER_LINEAR) / 255
    assert np.abs(found - expected).mean() * 255 < 2  # levels: YUV is rounded to 8 bits


def test_masks_have_the_size_of_the_truth() -> None:
    network = held_out.Network(BUILT_IN["person"])
    candidates = held_out.Candidates({"person": network}, Path(), refine=True)
    masks = candidates.masks(item("a", square()), np.zeros((90, 160, 3), np.uint8))
    assert list(masks) == ["person", "person, refined"]
    assert all(mask.shape == SHAPE and mask.dtype == bool for mask in masks.values())


def test_a_network_of_several_sizes_runs_at_the_one_nearest_to_the_picture(tmp_path: Path) -> None:
    network = held_out.Network(make_unet(tmp_path / "unet.onnx"))
    assert list(network.models) == [tuple(size) for size in SIZES]
    for shape, size in (((90, 160), (48, 80)), ((100, 110), (64, 64)), ((160, 90), (80, 48))):
        assert network(np.zeros((*shape, 3), np.uint8)).shape == size


def test_the_photograph_of_the_sample_is_segmented() -> None:
    rgb = cv2.imread(str(ROOT / "segmentation" / "models" / "astronaut.jpg"), cv2.IMREAD_COLOR_RGB)
    probability = held_out.Network(BUILT_IN["person"])(rgb)
    mask = held_out.above(probability, (180, 320))
    assert mask[90, 160] and not mask[:40, 280:].any()  # her face, the corner
    refined = held_out.above(held_out.refine(probability, rgb), (180, 320))
    assert 0 < np.count_nonzero(refined != mask) < 0.05 * mask.size


def test_the_card_gets_the_figures_between_its_markers(tmp_path: Path) -> None:
    card = tmp_path / "card.md"
    card.write_text("a\n<!-- figures -->\nold\n<!-- /figures -->\nb\n", encoding="utf-8")
    evaluation_tables.write_card(card, "new")
    evaluation_tables.write_card(card, "newer")
    assert card.read_text(encoding="utf-8") == "a\n<!-- figures -->\nnewer\n<!-- /figures -->\nb\n"
    card.write_text("nothing", encoding="utf-8")
    with pytest.raises(SystemExit, match="are needed"):
        evaluation_tables.write_card(card, "new")


def test_pictures_of_the_sheet_are_spread_over_the_kinds() -> None:
    items = [item(f"{kind}{i}", square(), kind) for kind in ("portrait", "hands", "animal") for i in range(9)]
    names = [chosen.name for chosen in evaluation_sheet.evenly(items, 7)]
    assert [sum(name.startswith(kind) for name in names) for kind in ("portrait", "hands", "animal")] == [3, 2, 2]
    assert len(evaluation_sheet.evenly(items, 99)) == len(items)


def test_every_row_of_the_truth_has_a_mask_and_known_kinds() -> None:
    items = held_out.read_items()
    assert len({found.name for found in items}) == len(items) > 0
    for found in items:
        assert found.truth is not None, found.name
        assert set(np.unique(found.truth)) <= {0, held_out.UNSURE, held_out.PERSON}, found.name
        assert set(found.kinds) <= set(held_out.KINDS), found.name


@pytest.mark.slow
def test_times_are_measured_for_each_size_and_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "RUNS", 2)
    monkeypatch.setattr(evaluate, "WARM_UP", 1)
    network = held_out.Network(BUILT_IN["person"])
    runs = evaluate.timed(network)
    assert [(tuple(run["input"]), run["threads"]) for run in runs] == [
        (size, threads) for size in network.models for threads in (1, 2)
    ]
    assert all(0 < run["least"] <= run["median"] for run in json.loads(json.dumps(runs)))


def test_ends_of_limbs_count_where_they_are_seen_on_the_person() -> None:
    joints = np.zeros((2, 33, 3), np.float32)
    joints[0, 15] = 0.3, 0.5, 0.9  # a wrist on the person, in the mask
    joints[0, 16] = 0.48, 0.5, 0.9  # another on the person, which the mask lacks
    joints[1, 15] = 0.3, 0.5, 0.1  # hidden
    joints[1, 16] = 0.9, 0.5, 0.9  # beside the person
    joints[1, 31] = 1.2, 0.5, 0.9  # outside of the picture
    found = np.zeros(SHAPE, bool)
    found[100:200, 100:180] = True
    ends = limbs.ends_found(found, square() == held_out.PERSON, joints)
    assert ends["wrist"] == (1, 2) and ends["toes"] == (0, 0)
    nobody = limbs.ends_found(found, square() == held_out.PERSON, joints[:0])
    assert limbs.shares([ends, nobody, ends]) == {"wrist": {"joints": 4, "in_mask": 0.5}}
