"""Single things that a GPU finds in a network's outputs are those that the CPU finds; on the host by host_kernels."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from detectors import Arrays, make_detector, outputs_of
from mask_sides import SIDES, gpu_of
from networks import model_of
from numpy.typing import NDArray
from references import SIZE

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("cuda.core", reason="cuda-core is not installed")

from segmentation import Config  # noqa: E402
from segmentation.errors import RefusesNetwork  # noqa: E402
from segmentation.frames import FORMATS  # noqa: E402
from segmentation.frames.instances import EDGE, MOST, FrameInstances  # noqa: E402
from segmentation.models.detection import Detection, Place  # noqa: E402
from segmentation.models.detections import read  # noqa: E402
from segmentation.models.model import Model, load_model  # noqa: E402
from segmentation.models.sample_picture import picture_inputs  # noqa: E402
from segmentation.stages.inference.compiler.network_kernels import INSTANCES, MOST_COMPARED  # noqa: E402
from segmentation.stages.inference.instances.instance_reader import Found, InstanceReader  # noqa: E402
from segmentation.stages.inference.instances.onnx_instances import InstanceInference  # noqa: E402
from segmentation.stages.inference.instances.proposals import READERS  # noqa: E402
from segmentation.stages.inference.instances.torch_instances import GpuInstances  # noqa: E402

COUNTS = {"rf-detr": 5, "yolo-seg": 5, "yolo": 5, "yolov5": 5, "yunet": 1, "ssd": 6}  # of labels
PLACES = [None, Place(0, 8, 64, 48), Place(12, 0, 40, 64)]


def found_by(
    side: str, model: Model, outputs: Sequence[Arrays], further: Sequence[Sequence[Arrays]] = ()
) -> tuple[Found, list[FrameInstances]]:
    """What the reader finds in the outputs of each picture, and of further looks at it, and what comes to the host."""
    gpu = gpu_of(side)
    gpu.enter()
    assert model.detection is not None
    names = model.detection.outputs
    with torch.inference_mode(), torch.cuda.stream(gpu.stream):
        looks = [
            [torch.from_numpy(np.stack([one[name] for one in look])).to(gpu.device) for name in names]
            for look in (outputs, *further)
        ]
        reader = InstanceReader(model, gpu.device, class_map=True)
        found = reader(gpu.kernels(INSTANCES, FORMATS["yuv420p"]), looks)
        instances = list(GpuInstances.of(found, model, gpu))
        return Found(*(None if part is None else part.cpu() for part in found)), instances


def network(folder: Path, task: str, outputs: Arrays, place: Place | None = None, **options: Any) -> Model:
    labels = ("background",) * (task == "ssd") + tuple(f"c{i}" for i in range(COUNTS[task] - (task == "ssd")))
    path = make_detector(folder / "m.onnx", outputs, size=(SIZE, SIZE))
    return replace(model_of(path, **{"labels": labels, **options}), picture=place)


def crowd(count: int, classes: int, seed: int = 0, digits: int = 9) -> Arrays:
    """Outputs of `count` boxes that overlap, in the layout yolov5. Scores have so many digits."""
    rng = np.random.default_rng(seed)
    center, size = rng.uniform(-4, SIZE + 4, (count, 2)), rng.uniform(2, 20, (count, 2))
    rows = np.hstack([center, size, np.ones((count, 1)), rng.uniform(0, 1, (count, classes)).round(digits)])
    return {"output0": rows.astype(np.float32)}


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("task", READERS)
@pytest.mark.parametrize("side", SIDES)
def test_the_instances_are_those_of_the_cpu(tmp_path: Path, side: str, task: str, place: Place | None) -> None:
    outputs = [outputs_of(task, seed) for seed in range(3, 6)]
    found, instances = found_by(side, network(tmp_path, task, outputs[0], place), outputs)
    assert sum(len(frame.instances) for frame in instances) >= 6, "so few that nothing is compared"
    for row, (one, frame) in enumerate(zip(outputs, instances, strict=True)):
        model = network(tmp_path, task, one, place)
        picture = np.zeros((1, 3, SIZE, SIZE), np.float32)
        theirs = InstanceInference(model, Config(effect="overlay"))(picture)
        assert theirs.instances
        expected, union = theirs.instances[0], theirs.masks[0]
        assert [thing.label for thing in frame.instances] == [thing.label for thing in expected.instances]
        for thing, wanted in zip(frame.instances, expected.instances, strict=True):
            assert thing.score == pytest.approx(wanted.score, abs=1e-4)
            assert thing.box == pytest.approx(wanted.box, abs=1e-4)
        assert np.abs(found.masks[row].numpy() - union).max() < 1e-4
        certain = np.abs(union - EDGE) > 1e-4  # rounding decides at the others
        assert certain.mean() > 0.99
        assert (frame.label_map == expected.label_map)[certain].all()
        assert frame.label_map.any()
        if theirs.class_map is not None:
            assert found.class_map is not None
            assert (found.class_map[row].numpy() == theirs.class_map[0])[certain].all()


@pytest.mark.parametrize("digits", [9, 1])
@pytest.mark.parametrize("limit", [0.1, 0.45, 0.9, None])
@pytest.mark.parametrize("side", SIDES)
def test_a_crowd_is_suppressed_alike(tmp_path: Path, side: str, limit: float | None, digits: int) -> None:
    """Also where many scores are equal: the first of equals stays."""
    outputs = [crowd(MOST_COMPARED, 2, seed, digits) for seed in range(2)]
    form = Detection(task="yolov5", outputs=("output0",), boxes="cxcywh-pixels", score_threshold=0.3, nms=limit)
    model = network(tmp_path, "yolov5", outputs_of("yolov5"))
    model = replace(model, detection=form, labels=("c0", "c1"), keep=(0, 1))
    found, _ = found_by(side, model, outputs)
    for things, one in zip(found.things.numpy(), outputs, strict=True):
        theirs = read(list(one.values()), form, (SIZE, SIZE), (0, 1)).within(Place(0, 0, SIZE, SIZE))
        count = len(theirs.boxes)
        assert (things[count:, 4] == 0).all() and count > 30
        assert (things[:count, 5] == theirs.classes).all()
        np.testing.assert_allclose(things[:count, 4], theirs.scores, atol=1e-6)
        np.testing.assert_allclose(things[:count, :4], theirs.boxes, atol=1e-4)
        assert limit not in (0.9, None) or count > 0.9 * MOST, "the number of things has to reach its bound"


@pytest.mark.parametrize("side", SIDES)
def test_of_more_proposals_the_best_are_compared(tmp_path: Path, side: str) -> None:
    """The weaker ones are no instances, even where nothing else is."""
    rows = np.tile(np.float32([10, 10, 8, 8, 1, 0.9]), (MOST_COMPARED + 1, 1))
    rows[-1] = [40, 40, 8, 8, 1, 0.8]
    model = replace(network(tmp_path, "yolov5", outputs_of("yolov5")), labels=("c0",), keep=(0,))
    _, (frame,) = found_by(side, model, [{"output0": rows}])
    assert [one.score for one in frame.instances] == pytest.approx([0.9])


@pytest.mark.parametrize("side", SIDES)
def test_what_is_no_number_makes_the_picture_unknown_as_on_the_cpu(tmp_path: Path, side: str) -> None:
    """The pipeline puts the effect everywhere in such a picture, and counts it."""
    rows = np.tile(np.float32([40, 40, 8, 8, 1, 0.8]), (5, 2, 1))
    rows[0, 0, 2], rows[1, 0, 0], rows[2, 0, 5] = np.nan, np.inf, np.nan
    rows[3, 0] = [np.nan, 10, 8, 8, 1, 0.1]  # below the threshold: no box is drawn
    model = replace(network(tmp_path, "yolov5", outputs_of("yolov5")), labels=("c0",), keep=(0,))
    found, frames = found_by(side, model, [{"output0": row} for row in rows])
    assert model.detection is not None
    theirs = [read([row], model.detection, (SIZE, SIZE), model.keep) for row in rows]
    assert [frame.unknown for frame in frames] == [one.unknown for one in theirs] == [True, True, True, False, False]
    assert [frame.instances[0].score for frame in frames] == pytest.approx([0.8] * 5)
    assert np.isnan(found.masks.numpy()).all(axis=(1, 2)).tolist() == [True, True, True, False, False]


@pytest.mark.parametrize("side", SIDES)
def test_a_mask_that_is_no_number_stays_so(tmp_path: Path, side: str) -> None:
    """The pipeline puts the effect everywhere in such a picture."""
    outputs = outputs_of("rf-detr")
    outputs["masks"][:, 2, 2] = np.nan
    found, _ = found_by(side, network(tmp_path, "rf-detr", outputs_of("rf-detr")), [outputs, outputs_of("rf-detr")])
    assert found.masks[0].isnan().all() and not found.masks[1].isnan().any()
    assert found.unknown.tolist() == [1, 0]


@pytest.mark.parametrize("side", SIDES)
def test_classes_that_are_not_kept_are_no_instances(tmp_path: Path, side: str) -> None:
    outputs = outputs_of("yolo")
    whole, some = (
        found_by(side, network(tmp_path, "yolo", outputs, **options), [outputs])[1][0].instances
        for options in ({}, {"classes": ("c1", "c3")})
    )
    assert [one for one in whole if one.label in ("c1", "c3")] == list(some)
    assert 0 < len(some) < len(whole)


def test_a_run_gets_its_part_of_a_batch(tmp_path: Path) -> None:
    outputs = [outputs_of("yolo", seed) for seed in range(3)]
    model = network(tmp_path, "yolo", outputs[0])
    found, whole = found_by("host", model, outputs)
    part = GpuInstances.of(found, model, gpu_of("host"))[1:3]
    assert [frame.instances for frame in part] == [frame.instances for frame in whole[1:]]
    assert len(part) == 2 and (part[1].label_map == whole[2].label_map).all()
    assert whole[1].instances != whole[2].instances


@pytest.mark.parametrize("side", SIDES)
def test_nothing_found_is_an_empty_mask(tmp_path: Path, side: str) -> None:
    outputs = {name: array * 0 for name, array in outputs_of("yolo-seg").items()}
    found, (frame,) = found_by(side, network(tmp_path, "yolo-seg", outputs), [outputs])
    assert frame.instances == () and not frame.label_map.any()
    assert not found.masks.any() and found.class_map is not None and not found.class_map.any()


def test_another_number_of_prototypes_is_refused(tmp_path: Path) -> None:
    outputs = outputs_of("yolo-seg")
    model = network(tmp_path, "yolo-seg", outputs)
    fewer = {"output0": outputs["output0"][:-1], "output1": outputs["output1"][:-1]}
    with pytest.raises(RefusesNetwork, match="31 prototypes"):
        found_by("host", model, [fewer])


@pytest.mark.parametrize("side", SIDES)
def test_further_looks_join_as_on_the_cpu(side: str) -> None:
    """The built-in face network: the picture, its mirror, and half of it."""
    model = load_model(Config(model="face", input_size=(512, 512)))
    picture = picture_inputs(model)[:1]
    half = picture.reshape(1, 3, 256, 2, 256, 2).mean(axis=(3, 5))
    session = ort.InferenceSession(str(model.path))
    assert model.detection is not None and model.detection.passes == ("mirrored", "half")
    names = list(model.detection.outputs)

    def outputs(pixels: NDArray[np.float32]) -> Arrays:
        found = session.run(names, {model.input_name: np.ascontiguousarray(pixels)})
        return {name: output[0] for name, output in zip(names, found, strict=True)}

    looks = [[outputs(picture[..., ::-1])], [outputs(half)]]
    _, (frame,) = found_by(side, model, [outputs(picture)], looks)
    theirs = InstanceInference(model, Config(model="face", input_size=(512, 512)))(picture).instances
    assert theirs is not None and len(theirs[0].instances) == len(frame.instances) > 0
    for one, other in zip(frame.instances, theirs[0].instances, strict=True):
        assert one.box == pytest.approx(other.box, abs=1e-4) and one.score == pytest.approx(other.score, abs=1e-4)
