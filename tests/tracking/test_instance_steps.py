"""Runs that know who is who, on videos of bright figures that pass each other."""

import io
import json
import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from pycocotools.coco import COCO

from segmentation import ConfigError, InputError, Segmenter
from segmentation.options.keywords import RunOptions

WIDTH, HEIGHT, FRAMES = 320, 180, 50
RATE = 25
LINE = "line:160,180,160,0"


def bright(pictures: NDArray[np.float32]) -> NDArray[np.float32]:
    """Finds what is bright, as a network would."""
    return np.clip(pictures.mean(1) * 2 - 0.5, 0, 1)


def columns(frame: int) -> tuple[int, int]:
    """Returns the columns of the left and the right figure's centers, which pass each other."""
    return 40 + 5 * frame, 280 - 5 * frame


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("who") / "clip.mkv"
    background = np.random.default_rng(0).integers(20, 60, (HEIGHT, WIDTH, 3), np.uint8)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=RATE)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        stream.time_base = Fraction(1, RATE)
        for n in range(FRAMES):
            picture = background.copy()
            left, right = columns(n)
            picture[50:130, left - 15 : left + 15] = (200, 255, 200)
            picture[40:160, right - 18 : right + 18] = (255, 200, 255)  # nearer
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
    return path


@pytest.fixture(scope="module")
def segmenter() -> Iterator[Segmenter]:
    with Segmenter(model=bright, input_size=(144, 256), activation="none", labels=("person",), refine=False) as session:
        yield session


@pytest.fixture
def run(segmenter: Segmenter, clip: Path, tmp_path: Path) -> Callable[..., list[NDArray[np.uint8]]]:
    """Returns a run with some options, as the pictures that it makes."""

    def made(**options: object) -> list[NDArray[np.uint8]]:
        target = tmp_path / "out.mkv"
        given: RunOptions = {"codec": "ffv1", "overwrite": True, **options}  # type: ignore[typeddict-item]
        segmenter.run(clip, target, **given)
        with av.open(str(target)) as container:
            return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]

    return made


@pytest.mark.parametrize("interval", [0, 3])
@pytest.mark.parametrize("track", ["fast", "balanced", "accurate"])
def test_frames_carry_instances_with_ids(segmenter: Segmenter, clip: Path, track: str, interval: int) -> None:
    frames = list(segmenter.frames(clip, track=track, interval=interval))  # type: ignore[arg-type]
    ids = []
    for n in (3, FRAMES - 3):
        left, right = columns(n)
        ids.append((frames[n].id_at((left, 90)), frames[n].id_at((right, 90))))
    assert sorted(ids[0]) == [1, 2]
    if track != "fast":
        assert ids[1] == ids[0]


def test_without_an_option_there_are_no_instances(segmenter: Segmenter, clip: Path) -> None:
    assert all(frame.instances is None for frame in segmenter.frames(clip, max_frames=3))


@pytest.mark.parametrize("percent", [False, True])
def test_pick_keeps_one_before_and_after_the_time(
    percent: bool, run: Callable[..., list[NDArray[np.uint8]]], clip: Path
) -> None:
    left, _ = columns(40)
    with av.open(str(clip)) as container:
        width, height = container.streams.video[0].width, container.streams.video[0].height
    place = f"{100 * left / width}%,{100 * 90 / height}%" if percent else f"{left},90"
    pictures = run(effect="color:#0000ff", pick=f"{place}@{40 / RATE}")
    for n in (2, 10, 40, 48):
        left, right = columns(n)
        assert pictures[n][90, left].tolist() == pytest.approx([200, 255, 200], abs=12), n
        assert pictures[n][90, right].tolist() == pytest.approx([0, 0, 255], abs=12), n


def test_pick_of_nobody_names_the_place(run: Callable[..., list[NDArray[np.uint8]]]) -> None:
    with pytest.raises(InputError, match="nobody is at 5,5 at 1 s"):
        run(pick="5,5@1")
    with pytest.raises(InputError, match=r"its last frame is at \d+\.\d\d s, before 5%,5% at 99 s"):
        run(pick="5%,5%@99")
    with pytest.raises(ConfigError, match="not in the stretch"):
        run(pick="5,5@1", start=1.5)


def test_a_stop_is_heeded_while_somebody_is_looked_for(clip: Path, tmp_path: Path) -> None:
    """The stretch up to the time of --pick was followed to its end."""
    stop, seen = threading.Event(), []

    def stopping(pictures: NDArray[np.float32]) -> NDArray[np.float32]:
        seen.extend(pictures)
        if len(seen) > 3:
            stop.set()
        return bright(pictures)

    options = {"input_size": (144, 256), "activation": "none", "labels": ("person",), "batch_size": 1}
    said = "stopped before the first frame; nothing was written"
    with Segmenter(model=stopping, **options) as session, pytest.raises(InputError, match=said):  # type: ignore[arg-type]
        session.run(clip, tmp_path / "out.mkv", pick="40,90@1.9", stop=stop)
    assert len(seen) < FRAMES / 2 and not any(tmp_path.iterdir())


def test_an_effect_on_a_label_leaves_all_else_as_it_is(run: Callable[..., list[NDArray[np.uint8]]], clip: Path) -> None:
    with av.open(str(clip)) as container:
        plain = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    pictures = run(effect="color:#ff0000@person", keep="id:1")
    left, right = columns(5)
    colors = [pictures[5][90, x].tolist() for x in (left, right)]
    assert sorted(color == pytest.approx([255, 0, 0], abs=12) for color in colors) == [False, True]
    assert np.array_equal(pictures[5][:30], plain[5][:30])  # the background


def test_results_have_instances_and_counts(run: Callable[..., list[NDArray[np.uint8]]]) -> None:
    text = io.StringIO()
    run(results=text, count=(LINE,), rle=True)
    lines = [json.loads(line) for line in text.getvalue().splitlines()]
    left, right = columns(4)
    boxes = sorted(one["box"] for one in lines[4]["instances"])
    for box, expected in zip(boxes, ([left - 15, 50, 30, 80], [right - 18, 40, 36, 120]), strict=True):
        assert box == pytest.approx(expected, abs=3)
    assert {one["id"] for one in lines[4]["instances"]} == {1, 2}
    assert all(one["rle"]["size"] == [144, 256] and one["parent"] == 0 for one in lines[4]["instances"])
    assert lines[-1]["counts"] == {LINE: {"left": 1, "right": 1}}


def test_results_are_read_by_cocos_tools(run: Callable[..., list[NDArray[np.uint8]]], tmp_path: Path) -> None:
    path = tmp_path / "who.json"
    run(results=path, results_format="coco")
    coco = COCO(str(path))
    assert len(coco.imgs) == FRAMES
    for annotation in coco.loadAnns(coco.getAnnIds(imgIds=[5])):
        mask = coco.annToMask(annotation)
        assert mask.shape == (HEIGHT, WIDTH) and mask.sum() == annotation["area"]
        left, top, width, height = annotation["bbox"]
        assert mask[top : top + height, left : left + width].sum() == mask.sum()


def test_results_in_mots_format(run: Callable[..., list[NDArray[np.uint8]]]) -> None:
    text = io.StringIO()
    run(results=text, results_format="mot")
    rows = [line.split(",") for line in text.getvalue().splitlines()]
    assert all(len(row) == 10 for row in rows)
    assert {row[1] for row in rows} == {"1", "2"} and rows[-1][0] == str(FRAMES)


@pytest.mark.parametrize("form, suffix", [("yolo", "txt"), ("png", "png")])
def test_results_have_a_file_for_each_frame(
    run: Callable[..., list[NDArray[np.uint8]]], tmp_path: Path, form: str, suffix: str
) -> None:
    run(results=tmp_path / f"%02d.{suffix}", results_format=form)
    assert len(list(tmp_path.glob(f"[0-9][0-9].{suffix}"))) == FRAMES
    if form == "yolo":
        assert (tmp_path / "classes.txt").read_text() == "person\n"
        assert [line[:2] for line in (tmp_path / "05.txt").read_text().splitlines()] == ["0 ", "0 "]


def test_an_overlay_shows_boxes_and_ids_and_does_not_change_the_rest(
    run: Callable[..., list[NDArray[np.uint8]]],
) -> None:
    plain, marked = run(effect="overlay"), run(effect="overlay", track="fast")
    changed = (np.abs(plain[5].astype(int) - marked[5]) > 20).any(2)
    left, _ = columns(5)
    assert changed[50:130, left - 17 : left - 11].any(1).all()  # the box's left side
    assert not changed[165:].any() and changed.mean() < 0.2


def test_also_outputs_have_effects_of_their_own(run: Callable[..., list[NDArray[np.uint8]]], tmp_path: Path) -> None:
    other = tmp_path / "other.mkv"
    main = run(effect="color:#0000ff", also=[("color:#ff0000@person", other)])
    with av.open(str(other)) as container:
        pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    left, _ = columns(5)
    assert main[5][90, left].tolist() == pytest.approx([200, 255, 200], abs=12)
    assert pictures[5][90, left].tolist() == pytest.approx([255, 0, 0], abs=12)
    assert main[5][10, 10].tolist() == pytest.approx([0, 0, 255], abs=12)
    assert pictures[5][10, 10].max() < 80
