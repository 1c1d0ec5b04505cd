"""Networks on what others have found: crops, one batch, kept answers, ids, pixels, and whole runs."""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest
from detectors import color_classifier, make_detector, outputs_of, red_box
from drawn import batch_of, make_info, planes_of
from numpy.typing import NDArray
from paths import ROOT, SHARED
from photos import PHOTO
from stages import GPU_SIDES, gpu_stages
from videos import Synthetic

from segmentation import Config, ConfigError, Segmenter, segment
from segmentation.errors import UnknownOperator
from segmentation.frames import FORMATS, FULL, Color, MaskedBatch
from segmentation.frames.instances import Box, FrameInstances, Instance
from segmentation.models.secondary import SecondaryNetwork
from segmentation.options.then import Then
from segmentation.pipeline.planning.planned_steps import planned_steps
from segmentation.pipeline.resources import Resources
from segmentation.stages.preprocess.crops import AT_ONCE
from segmentation.tracking.choice import selection
from segmentation.tracking.secondary_steps import FORGET, FRESH, GROWTH, LEAST, SecondaryInference

COLOR = Color(matrix=6, range=FULL)
PERSON: Box = (0.25, 0.25, 0.75, 0.75)


class Counted(SecondaryNetwork):
    """A network that also counts its calls and the crops in them."""

    def __init__(self, then: Then) -> None:
        super().__init__(then)
        self.crops: list[int] = []

    def read(self, outputs: Iterable[Any], places: Sequence[Any]) -> list[Any]:
        self.crops.append(len(places))
        return super().read(outputs, places)


def picture(color: tuple[int, int, int] = (255, 0, 0)) -> NDArray[np.uint8]:
    """Black, with a square of the color in the middle."""
    made = np.zeros((64, 96, 3), np.uint8)
    made[16:48, 24:72] = color
    return made


def frame_with(*instances: Instance) -> FrameInstances:
    """A frame whose label map has each instance's box."""
    label_map = np.zeros((32, 48), np.uint8)
    for number, one in enumerate(instances, 1):
        left, top, right, bottom = one.box
        label_map[round(top * 32) : round(bottom * 32), round(left * 48) : round(right * 48)] = number
    return FrameInstances(instances=instances, first_map=label_map)


def person(box: Box = PERSON, id: int = 1, label: str = "person") -> Instance:
    return Instance(label=label, score=0.9, box=box, id=id)


def masked(frames: Sequence[FrameInstances], first: int = 0, color: tuple[int, int, int] = (255, 0, 0)) -> MaskedBatch:
    """A batch of 30 frames a second from frame `first` on."""
    batch = batch_of(*[planes_of(picture(color), "yuv420p", COLOR)] * len(frames))
    timed = tuple(replace(frame, pts=first + i) for i, frame in enumerate(batch.frames))
    masks = np.stack([(frame.label_map > 0).astype(np.float32) for frame in frames])
    return MaskedBatch(frames=replace(batch, frames=timed), masks=masks, instances=tuple(frames))


def step(network: SecondaryNetwork, ids: Iterator[int] | None = None) -> SecondaryInference:
    info = make_info(96, 64, COLOR)
    return SecondaryInference(network, info, "yuv420p", Config(), ids or count(100))


def found(within: SecondaryInference, *batches: MaskedBatch) -> list[FrameInstances]:
    frames: list[FrameInstances] = []
    for batch in within(iter(batches)):
        assert batch.instances
        frames += batch.instances
    return frames


@pytest.fixture
def spots(tmp_path: Path) -> Counted:
    return Counted(Then("spot", str(red_box(tmp_path / "red.onnx")), "person"))


@pytest.fixture
def colors(tmp_path: Path) -> Counted:
    return Counted(Then("color", str(color_classifier(tmp_path / "colors.onnx")), "person"))


def test_what_is_found_lies_within_its_parent(spots: Counted) -> None:
    (frame,) = found(step(spots), masked([frame_with(person())]))
    parent, child = frame.instances
    assert parent == person()
    assert (child.label, child.parent, child.within, child.id) == ("spot", 1, 1, 100)
    # The crop has a margin of half the shorter side, which is all of the height, and 80 of 96 pixels. Half of that:
    assert child.box == pytest.approx((28 / 96, 0.25, 68 / 96, 0.75), abs=0.02)
    assert (frame.label_map == 2).sum() == pytest.approx(20 * 16, rel=0.1)
    assert set(np.unique(frame.label_map)) <= {0, 1, 2}


@pytest.mark.parametrize("side", GPU_SIDES)
@pytest.mark.parametrize("with_network", [True, False])
def test_on_a_gpu_the_same_is_found(
    side: str, with_network: bool, spots: Counted, colors: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, there = gpu_stages(side)
    if side == "host":
        from plain_network import load_plainly

        load_plainly(monkeypatch)
        crops = SimpleNamespace(CudaCrops=there.CudaCrops)
        monkeypatch.setitem(sys.modules, "segmentation.stages.preprocess.cuda_crops", crops)
    monkeypatch.setattr(Resources, "gpu", device)
    info = make_info(96, 64, COLOR)
    many = AT_ONCE + 2
    batch = masked([frame_with(person(id=0))] * many)
    transfer = there.GpuTransfer(device, info, FORMATS["yuv420p"], many)
    on_gpu = replace(batch, frames=transfer.frames(batch.frames, "cuda"))
    for network in (spots, colors):
        theirs = found(step(network), batch)
        ((_, runs_there),) = Resources(Config()).with_crop_networks([network], "cuda" if with_network else "host")
        assert (runs_there is not None) == with_network
        ours = found(SecondaryInference(network, info, "yuv420p", Config(), count(100), device, runs_there), on_gpu)
        assert network.crops == [AT_ONCE, 2] * 2
        for one, other in zip(ours, theirs, strict=True):
            assert [thing.label for thing in one.instances] == [thing.label for thing in other.instances]
            assert one.instances[1].box == pytest.approx(other.instances[1].box, abs=0.01)


def test_other_labels_are_left_alone(spots: Counted) -> None:
    given = frame_with(person(label="car"))
    (frame,) = found(step(spots), masked([given]))
    assert frame.instances == given.instances
    assert spots.crops == []


def test_what_is_too_small_is_not_looked_at(spots: Counted) -> None:
    given = frame_with(person((0.25, 0.25, 0.75, 0.25 + (LEAST - 1) / 64)))
    assert found(step(spots), masked([given]))[0].instances == given.instances
    assert spots.crops == []


def test_so_many_crops_are_one_call(spots: Counted) -> None:
    frames = found(step(spots), masked([frame_with(person(id=0))] * (2 * AT_ONCE + 1)))
    assert spots.crops == [AT_ONCE, AT_ONCE, 1]
    assert all([one.label for one in frame.instances] == ["person", "spot"] for frame in frames)


def test_all_crops_of_a_batch_are_one_call(colors: Counted) -> None:
    two = frame_with(person((0.25, 0.25, 0.5, 0.75), 1), person((0.5, 0.25, 0.75, 0.75), 2))
    frames = found(step(colors), masked([two, two, two]))
    assert colors.crops == [2], "the second and the third frame have the answers of the first"
    assert [[one.label for one in frame.instances] for frame in frames] == [
        ["person", "person", "color:red", "color:red"]
    ] * 3
    assert [one.id for one in frames[2].instances] == [1, 2, 100, 101]


def test_without_ids_the_network_looks_each_time(colors: Counted) -> None:
    frames = found(step(colors), masked([frame_with(person(id=0))] * 3))
    assert colors.crops == [3]
    assert [(one.id, one.parent, one.within) for one in frames[2].instances] == [(0, 0, 0), (0, 0, 1)]


def test_a_classifier_looks_again_when_the_box_has_grown(colors: Counted) -> None:
    within = step(colors)
    side = 0.5 * (GROWTH**0.5)
    boxes = [PERSON, (0.3, 0.3, 0.6, 0.6), (0.25, 0.25, 0.25 + side - 0.01, 0.25 + side - 0.01)]
    for second, box in enumerate(boxes):
        found(within, masked([frame_with(person(box))], 30 * second))
    assert colors.crops == [1]
    grown = (0.25, 0.25, 0.26 + side, 0.26 + side)
    (frame,) = found(within, masked([frame_with(person(grown))], 90, (0, 255, 0)))
    assert colors.crops == [1, 1]
    assert frame.instances[1].label == "color:green" and frame.instances[1].id == 100


def test_what_is_found_again_keeps_its_id_wherever_the_instance_has_moved(colors: Counted, spots: Counted) -> None:
    """A classifier may look after minutes, and what a detector finds may be smaller than its way since."""
    for network, far in ((colors, 0.6), (spots, 0.3)):
        within = step(network)
        (before,) = found(within, masked([frame_with(person((0.0, 0.25, 0.3, 0.75)))]))
        moved = (far, 0.25, far + 0.4, 0.75)
        (after,) = found(within, masked([frame_with(person(moved))], first=30))
        assert len(network.crops) == 2
        assert [one.id for one in before.instances] == [one.id for one in after.instances] == [1, 100]


def test_a_detector_looks_again_after_a_while_and_its_boxes_move_along(spots: Counted) -> None:
    within = step(spots)
    keep = int(FRESH * 30)
    frames = found(within, masked([frame_with(person())] * keep))
    moved = frame_with(person((0.25, 0.15, 0.75, 0.65)))
    frames += found(within, masked([moved], keep - 1))
    assert spots.crops == [1]
    assert np.array(frames[-1].instances[1].box) - frames[0].instances[1].box == pytest.approx([0, -0.1, 0, -0.1])
    (frame,) = found(within, masked([frame_with(person())], keep))
    assert spots.crops == [1, 1]
    assert frame.instances[1].id == 100, "the same spot"


def test_answers_about_those_who_left_are_forgotten(colors: Counted) -> None:
    within = step(colors)
    found(within, masked([frame_with(person())]))
    found(within, masked([frame_with()], int(30 * FORGET) + 1), masked([frame_with(person())], int(30 * FORGET) + 2))
    assert colors.crops == [1, 1]


def test_a_tree_of_networks(tmp_path: Path, spots: Counted) -> None:
    color = Counted(Then("color", str(color_classifier(tmp_path / "c.onnx")), "spot"))
    ids = count(2)
    first, second = step(spots, ids), step(color, ids)
    (batch,) = second(first(iter([masked([frame_with(person())])])))
    assert batch.instances
    frame = batch.instances[0]
    assert [(one.label, one.id, one.parent, one.within) for one in frame.instances] == [
        ("person", 1, 0, 0),
        ("spot", 2, 1, 1),
        ("color:red", 3, 2, 2),
    ]
    everything = masked([frame_with(person())]).masks[0] > 0
    assert (selection(frame, "person", keeping=False) == everything).all(), "children take no pixels from an effect"
    spots = selection(frame, "spot", keeping=False)
    assert spots.any() and (spots == selection(frame, "color:red", keeping=False)).all()
    assert (spots == selection(frame, "color", keeping=False)).all(), "whatever its color is"


def make_people(path: Path) -> Path:
    """A network that finds one person, where `picture` has its square."""
    outputs = {"scores": np.float32([[0.1, 0.9]]), "boxes": np.float32([PERSON])}
    metadata = {"labels": '["background", "person"]'}
    return make_detector(path, outputs, metadata=metadata)


def write_video(path: Path, frames: int = 6, **options: Any) -> Path:
    made = [av.VideoFrame.from_ndarray(picture(), "rgb24").reformat(format="yuv444p") for _ in range(frames)]
    return Synthetic(frames=made, pix_fmt="yuv444p", pts=range(frames), **options).write(path)


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("rotation", [0, 90])
def test_a_run_with_three_networks(tmp_path: Path, rotation: int, batch_size: int) -> None:
    then = (f"spot={red_box(tmp_path / 'r.onnx')}@person", f"color={color_classifier(tmp_path / 'c.onnx')}@spot")
    video = write_video(tmp_path / "in.mp4", codec="libx264", options={"qp": "0"}, rotation=rotation)
    options: dict[str, Any] = {"model": make_people(tmp_path / "p.onnx"), "then": then, "batch_size": batch_size}
    with Segmenter(**options) as segmenter:
        frames = list(segmenter.frames(video))
        assert len(frames) == 6
        assert frames[5].instances is not None
        labels = [(one.label, one.id, one.parent) for one in frames[5].instances.instances]
        assert [label for label, _, _ in labels] == ["person", "spot", "color:red"]
        assert labels[1][2] == labels[0][1] > 0 and labels[2][2] == labels[1][1] > 0
        report = segmenter.run(video, tmp_path / "out.mp4", effect="mask@spot")
    assert report.frames == 6


def test_networks_that_a_gpu_cannot_run_are_the_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from segmentation.stages.inference.crop_network import CropNetwork

    class Refusing(CropNetwork):
        def __init__(self, *_: object) -> None:
            raise UnknownOperator("PyTorch can't run it (Frobnicate)")

    monkeypatch.setattr("segmentation.stages.inference.crop_network.CropNetwork", Refusing)
    monkeypatch.setattr(Resources, "gpu", None)
    boxes = SecondaryNetwork(Then("spot", str(red_box(tmp_path / "r.onnx")), "person"))
    things = make_detector(tmp_path / "m.onnx", outputs_of("mask-rcnn"), size=(64, 64))
    several = [boxes, SecondaryNetwork(Then("thing", str(things), "person"))]
    given = Config(track="fast")
    reasons = [step.reason for step in planned_steps(given, None, "cuda", several, "cuda", live=False)[1:]]
    assert reasons[0].startswith("PyTorch") and reasons[1].startswith("ONNX Runtime")
    assert reasons[1].endswith("(mask-rcnn returns as many things as it has found, not a fixed number)")
    resources = Resources(given)
    with caplog.at_level("WARNING"):
        assert resources.with_crop_networks(several, "cuda") == [(network, None) for network in several]
        assert resources.with_crop_networks(several, "cuda") == resources.with_crop_networks(several, "host")
    assert caplog.messages == ["then spot: onnxruntime on the CPU (PyTorch can't run it (Frobnicate))"]


def test_the_command_has_it_too(tmp_path: Path) -> None:
    from segmentation.cli.main import main

    then = f"spot={red_box(tmp_path / 'r.onnx')}@person"
    video, out = write_video(tmp_path / "in.mkv"), tmp_path / "out.mp4"
    model = make_people(tmp_path / "p.onnx")
    given = [str(video), "-o", str(out), "--model", str(model), "--then", then, "--effect", "mask@spot", "-q"]
    assert main(given) == 0
    assert out.is_file()
    assert main([*given, "-y", "--then", "other=x.onnx@persn"]) != 0


def test_what_nothing_finds_and_pictures_are_refused(tmp_path: Path) -> None:
    network = red_box(tmp_path / "r.onnx")
    video = write_video(tmp_path / "in.mkv")
    with pytest.raises(
        ConfigError, match=r"then spot: nothing is called 'persn'; choose from person; did you mean person"
    ):
        segment(video, tmp_path / "out.mkv", then=(f"spot={network}@persn",))
    for effects in ({"effect": "blur@spott"}, {"also": (("mask@spott", tmp_path / "also.mkv"),)}):
        with pytest.raises(ConfigError, match=r"'spott'; choose from person, spot; did you mean spot\?"):
            segment(video, tmp_path / "out.mkv", then=(f"spot={network}@person",), **effects)
    assert not (tmp_path / "out.mkv").exists()
    with pytest.raises(ConfigError, match="then: follows things through videos"):
        segment(PHOTO, tmp_path / "out.png", then=(f"spot={network}@person",))


def test_three_real_networks_find_a_man_his_face_and_that_it_is_bare() -> None:
    models, clip = SHARED / "models", SHARED / "people" / "clips" / "webcam-man.mp4"
    if not clip.is_file() or not models.is_dir():
        pytest.skip("../shared/people or ../shared/models is not here")
    then = (f"face={models / 'faces-yunet.onnx'}@person", f"cover={models / 'faces-masked-rfb640.onnx'}@face")
    with Segmenter(then=then) as segmenter:
        frames = [frame.instances for frame in segmenter.frames(clip)]
    assert frames
    for frame in frames:
        assert frame is not None
        assert sorted(one.label for one in frame.instances) == ["cover:bare", "face", "person"]
    ids = {tuple(one.id for one in frame.instances) for frame in frames[1:] if frame is not None}
    assert len(ids) == 1, "the same man, the same face"


def test_the_example_in_the_documents_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    models, clip = SHARED / "models", SHARED / "people" / "clips" / "webcam-man.mp4"
    if not clip.is_file() or not models.is_dir():
        pytest.skip("../shared/people or ../shared/models is not here")
    (example,) = re.findall(
        r"```python\n(from segmentation import Segmenter\n.*?)```", (ROOT / "docs/models.md").read_text(), re.S
    )
    for name, target in (("input.mp4", clip), *((file.name, file) for file in models.glob("faces-*.onnx"))):
        (tmp_path / name).symlink_to(target)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "docs/models.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[1] for line in lines} == {"person", "face", "cover:bare"}
