"""Results as other tools read them, by the rules of each format."""

import io
import json
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from videos import video_info

from segmentation import ConfigError, OutputError
from segmentation.frames.instances import FrameInstances, Instance
from segmentation.options.config import Config
from segmentation.pipeline.result_files.annotation_tools import Cvat, LabelStudio
from segmentation.pipeline.result_files.instance_results import Coco
from segmentation.pipeline.result_files.numbered_results import NumberedResults, yolo_labels
from segmentation.pipeline.result_files.shapes import Size, masks_of

SIZE = (320, 180)


def drawn() -> FrameInstances:
    """Returns a figure of two parts, one of which has a hole, and a single pixel."""
    label_map = np.zeros((90, 160), np.uint8)
    label_map[10:40, 20:50] = 1
    label_map[20:30, 30:40] = 0
    label_map[50:80, 60:75] = 1
    label_map[85, 150] = 2
    figure = Instance(label="person", score=0.9, box=(20 / 160, 10 / 90, 75 / 160, 80 / 90), id=7)
    pixel = Instance(label="cat & dog", score=0.5, box=(150 / 160, 85 / 90, 151 / 160, 86 / 90))
    return FrameInstances(instances=(figure, pixel), first_map=label_map)


def filled(shares: NDArray[np.float64], size: Size) -> NDArray[np.bool_]:
    """Draws a polygon of shares (n, 2) as tools do."""
    picture = np.zeros(size[::-1], np.uint8)
    cv2.fillPoly(picture, [np.floor(shares * size).astype(np.int32)], 1)
    return picture > 0


def overlap(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    return float((one & other).sum() / (one | other).sum())


def text_of(form: Any) -> str:
    """Returns the file of two frames, the second of which shows nothing."""
    nothing = FrameInstances(instances=(), first_map=np.zeros((90, 160), np.uint8))
    frames = [*form.frame(0, 0.0, drawn()), *form.frame(1, 0.04, nothing)]
    return "".join([*frames, *form.end()])


def test_cvat_has_the_masks_of_coco() -> None:
    root = ElementTree.fromstring(text_of(Cvat(SIZE, ("person", "cat & dog"))))
    assert root.findtext("version") == "1.1"
    assert [name.text for name in root.iterfind("meta/task/labels/label/name")] == ["person", "cat & dog"]
    images = root.findall("image")
    assert [image.get("name") for image in images] == ["frame_000000.png", "frame_000001.png"]
    assert images[0].get("width") == "320" and not images[1].findall("mask")
    expected = [mask for _, mask in masks_of(drawn(), SIZE)]
    masks = images[0].findall("mask")
    assert [mask.get("label") for mask in masks] == ["person", "cat & dog"]
    assert [mask.findtext("attribute[@name='track_id']") for mask in masks] == ["7", "0"]
    for element, mask in zip(masks, expected, strict=True):
        left, top, width, height = (int(element.get(name, "")) for name in ("left", "top", "width", "height"))
        runs = [int(run) for run in element.get("rle", "").split(",")]
        part = np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(height, width)
        picture = np.zeros_like(mask)
        picture[top : top + height, left : left + width] = part
        assert np.array_equal(picture, mask)


@pytest.mark.slow
def test_supervision_reads_coco_beside_the_pictures_of_ffmpeg(tmp_path: Path) -> None:
    supervision = pytest.importorskip("supervision")
    for number in (1, 2):
        assert cv2.imwrite(str(tmp_path / f"{number:06}.png"), np.zeros((*SIZE[::-1], 3), np.uint8))
    (tmp_path / "coco.json").write_text(text_of(Coco(SIZE)), encoding="utf-8")
    loaded = supervision.DetectionDataset.from_coco(str(tmp_path), str(tmp_path / "coco.json"), force_masks=True)
    first, second = (found for _, _, found in loaded)
    assert len(first) == 2 and len(second) == 0 and set(loaded.classes) == {"person", "cat & dog"}
    for (_, mask), read in zip(masks_of(drawn(), SIZE), first.mask, strict=True):
        assert (mask == read).all()


def test_label_studio_has_a_polygon_for_each_instance() -> None:
    first, second = json.loads(text_of(LabelStudio(SIZE)))
    assert first["data"] == {"image": "000001.png", "pts": 0.0} and second["data"]["pts"] == 0.04
    assert second["predictions"][0]["result"] == []
    regions = first["predictions"][0]["result"]
    for region, (one, mask) in zip(regions, masks_of(drawn(), SIZE), strict=True):
        assert (region["type"], region["from_name"], region["to_name"]) == ("polygonlabels", "label", "image")
        assert (region["original_width"], region["original_height"]) == SIZE
        assert region["value"]["polygonlabels"] == [one.label] and region["meta"]["text"] == [f"id {one.id}"]
        if one.id:
            assert overlap(filled(np.array(region["value"]["points"]) / 100, SIZE), mask) > 0.95
    assert len({region["id"] for region in regions}) == 2


def test_yolo_has_a_line_for_each_instance_with_its_parts_and_holes() -> None:
    lines = yolo_labels(drawn(), SIZE, {"other": 0, "person": 1}).splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2"]  # a label that was not known comes last
    shares = [np.array(line.split()[1:], float).reshape(-1, 2) for line in lines]
    assert all(len(one) >= 3 and one.min() >= 0 and one.max() <= 1 for one in shares)
    expected = next(masks_of(drawn(), SIZE))[1]
    assert not expected[50, 70] and overlap(filled(shares[0], SIZE), expected) > 0.95
    # A pixel has no outline, and gets that of its box.
    assert shares[1].min(0) == pytest.approx((150 / 160, 85 / 90), abs=1e-6)


def batch(index: int, *instances: FrameInstances) -> Any:
    return SimpleNamespace(frames=SimpleNamespace(repeated=False, index=index), instances=instances)


def visible(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name[0] != "."}


def written(path: Path, form: str, **options: object) -> None:
    config = Config(results=path, results_format=form, **options)  # type: ignore[arg-type]
    with NumberedResults(video_info(SIZE), ("person", "cat & dog"), config) as results:
        before = visible(path.parent)
        results.write(batch(0, drawn()))
        results.write(batch(1, drawn(), drawn()))
        assert visible(path.parent) == before  # they appear together
        results.finish(Fraction(1))


def test_png_holds_ids_of_16_bits(tmp_path: Path) -> None:
    written(tmp_path / "%03d.png", "png")
    assert visible(tmp_path) == {"001.png", "002.png", "003.png"}
    picture = cv2.imread(str(tmp_path / "003.png"), cv2.IMREAD_UNCHANGED)
    assert picture is not None and picture.dtype == np.uint16
    assert np.array_equal(picture, np.where(next(masks_of(drawn(), SIZE))[1], 7, 0))


def test_yolo_names_its_classes_and_replaces_nothing_unasked(tmp_path: Path) -> None:
    written(tmp_path / "%d.txt", "yolo")
    assert visible(tmp_path) == {"1.txt", "2.txt", "3.txt", "classes.txt"}
    assert (tmp_path / "classes.txt").read_text() == "person\ncat & dog\n"
    assert (tmp_path / "1.txt").read_text() == yolo_labels(drawn(), SIZE, {"person": 0, "cat & dog": 1})
    with pytest.raises(OutputError, match="exists already"):
        written(tmp_path / "%d.txt", "yolo")
    written(tmp_path / "%d.txt", "yolo", overwrite=True)


@pytest.mark.parametrize("form", ["yolo", "png"])
def test_one_file_is_refused_where_each_frame_has_one(form: str, tmp_path: Path) -> None:
    for given in (tmp_path / "all.txt", tmp_path / "%d.xml", io.StringIO()):
        config = Config(results=given, results_format=form)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="has a file for each frame"):
            NumberedResults(video_info(SIZE), (), config)


def test_an_id_beyond_16_bits_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    config = Config(results=tmp_path / "%d.png", results_format="png")
    one = Instance(label="person", score=1, box=(0, 0, 1, 1), id=1 << 16)
    found = FrameInstances(instances=(one,), first_map=np.ones((9, 16), np.uint8))
    with (
        pytest.raises(OutputError, match="holds ids up to 65535"),
        NumberedResults(video_info(SIZE), (), config) as results,
    ):
        results.write(batch(0, found))
    assert not list(tmp_path.iterdir())
