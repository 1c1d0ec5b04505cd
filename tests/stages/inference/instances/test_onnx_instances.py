"""Networks that find single things: instances, their union and class maps, on made and on real networks."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest
from detectors import make_detector, outputs_of, red_yolo
from drawn import batch_of, make_info, planes_of
from networks import model_of
from paths import SHARED
from videos import Synthetic, pictures

from segmentation import Config, ConfigError, Segmenter, segment
from segmentation.errors import BackendError
from segmentation.frames import FULL, LIMITED, Color
from segmentation.frames.instances import FrameInstances
from segmentation.models.model import Model
from segmentation.pipeline.planning.plan import make_plan
from segmentation.stages.inference import InferenceResult
from segmentation.stages.inference.instances.onnx_instances import InstanceInference
from segmentation.stages.preprocess.opencv import OpenCVPreprocessor

COLOR = Color(matrix=6, range=FULL)


def found_in(model: Model, picture: np.ndarray, *, rotation: int = 0, **options: Any) -> InferenceResult:
    """What a network finds in an RGB picture (H, W, 3) as it is stored."""
    info = make_info(picture.shape[1], picture.shape[0], COLOR, rotation)
    config, model = Config(**options), model.for_video(info)
    tensor = OpenCVPreprocessor(info, "yuv444p", model, config)(batch_of(planes_of(picture, "yuv444p", COLOR)))
    return InstanceInference(model, config)(tensor)


def frame_of(result: InferenceResult) -> FrameInstances:
    assert result.instances
    return result.instances[0]


def boxes_alone(path: Path, rows: list[list[float]], **options: Any) -> Model:
    """A network that finds boxes: each row has left, top, right, bottom in shares, and scores of two classes."""
    array = np.array(rows, np.float32)
    outputs = {"scores": np.hstack([np.zeros((len(rows), 1), np.float32), array[:, 4:]]), "boxes": array[:, :4]}
    return model_of(make_detector(path, outputs), labels=("background", "cat", "dog"), **options)


def test_a_box_is_its_mask_and_the_higher_score_lies_on_top(tmp_path: Path) -> None:
    rows = [[0, 0, 0.5, 1, 0.6, 0], [0.25, 0, 1, 0.5, 0, 0.9], [0.8, 0.8, 0.9, 0.9, 0.2, 0.3]]
    result = found_in(boxes_alone(tmp_path / "m.onnx", rows), np.zeros((48, 80, 3), np.uint8), effect="overlay")
    frame = frame_of(result)
    assert [(one.label, round(one.score, 2), one.box) for one in frame.instances] == [
        ("dog", 0.9, (0.25, 0, 1, 0.5)),
        ("cat", 0.6, (0, 0, 0.5, 1)),
    ], "the third is below the threshold"
    expected = np.zeros((64, 64), np.uint8)
    expected[:, :32] = 2
    expected[:32, 16:] = 1
    assert (frame.label_map == expected).all()
    assert (result.masks[0] == (expected > 0)).all()
    assert result.class_map is not None
    assert (result.class_map[0][expected == 1] == 1).all() and (result.class_map[0][expected == 2] == 0).all()


def test_classes_that_are_not_kept_are_no_instances(tmp_path: Path) -> None:
    rows = [[0, 0, 0.5, 1, 0.6, 0], [0.25, 0, 1, 0.5, 0, 0.9]]
    model = boxes_alone(tmp_path / "m.onnx", rows, classes=("cat",))
    result = found_in(model, np.zeros((48, 80, 3), np.uint8), effect="overlay")
    assert [one.label for one in frame_of(result).instances] == ["cat"]
    assert result.masks[0].mean() == 0.5
    assert result.class_map is None


def test_nothing_found_is_an_empty_mask(tmp_path: Path) -> None:
    result = found_in(boxes_alone(tmp_path / "m.onnx", [[0, 0, 1, 1, 0.1, 0.1]]), np.zeros((48, 80, 3), np.uint8))
    assert frame_of(result).instances == ()
    assert not result.masks.any() and not frame_of(result).label_map.any()


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("size", [(160, 64), (64, 160), (100, 100), (333, 77)])
def test_masks_lie_where_the_picture_is_red_whatever_its_shape(
    tmp_path: Path, size: tuple[int, int], rotation: int
) -> None:
    width, height = size
    picture = np.zeros((height, width, 3), np.uint8)
    picture[height // 4 : height // 2, width // 8 : width // 2, 0] = 255
    result = found_in(model_of(red_yolo(tmp_path / "m.onnx")), picture, rotation=rotation)
    upright = np.rot90(picture[..., 0] > 0, rotation // 90)
    mask = cv2.resize(result.masks[0], upright.shape[::-1], interpolation=cv2.INTER_LINEAR) > 0.5
    assert abs(result.masks.shape[2] / result.masks.shape[1] - upright.shape[1] / upright.shape[0]) < 0.2
    reach = 1 + max(size) * 4 // 64  # a cell of the prototypes
    kernel = np.ones((2 * reach + 1, 2 * reach + 1), np.uint8)
    assert not (mask & (cv2.dilate(upright.astype(np.uint8), kernel) == 0)).any()
    assert (mask & upright).sum() > 0.4 * upright.sum()


def test_an_anamorphic_picture_keeps_the_shape_that_players_show(tmp_path: Path) -> None:
    model = model_of(red_yolo(tmp_path / "m.onnx"))
    info = replace(make_info(64, 64, COLOR), sample_aspect_ratio=2)
    assert model.for_video(info).picture == (0, 16, 64, 32)


def test_a_video_goes_through_all_stages_with_a_network_of_instances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The masks are the network's, smoothed and refined, and results, saved masks and further outputs have them."""
    monkeypatch.chdir(tmp_path)
    red_yolo(Path("red.onnx"))
    picture = np.zeros((48, 96, 3), np.uint8)
    picture[12:36, 24:72, 0] = 255
    frames = [av.VideoFrame.from_ndarray(picture, "rgb24").reformat(format="yuv444p") for _ in range(4)]
    Synthetic(frames=frames, pix_fmt="yuv444p", pts=range(4)).write(Path("in.mkv"))
    report = segment(
        "in.mkv",
        "out.mkv",
        model="red.onnx",
        effect="mask",
        also=[("overlay", "also.mkv")],
        results="r.jsonl",
        save_masks="masks.mkv",
        codec="ffv1",
    )
    assert report.plan["infer"] in ("instances", "torch-instances")
    assert report.frames == 4
    white = next(pictures(Path("out.mkv"))).planes[0] > 128
    assert abs(white.mean() - 0.25) < 0.05
    assert white[24, 48] and not white[6, 48] and not white[24, 12]
    line = json.loads(Path("r.jsonl").read_text().splitlines()[0])
    assert line["classes"] == ["person"]
    assert np.abs(np.array(line["box"]) - [24, 12, 48, 24]).max() <= 5
    assert segment("in.mkv", "again.mkv", masks="masks.mkv", effect="mask", codec="ffv1").frames == 4


def test_other_implementations_refuse_in_one_line(tmp_path: Path) -> None:
    path = red_yolo(tmp_path / "m.onnx")
    model = model_of(path)
    info = make_info(64, 64, Color(1, LIMITED))
    plan = make_plan(Config(model=path, mode="baseline"), info, model=model)
    assert plan.infer is not None
    assert (plan.infer.name, plan.infer.memory) == ("instances", "host")
    assert make_plan(Config(model=path, infer="onnxruntime"), info, model=model).infer == plan.infer
    with pytest.raises(ConfigError, match=r"--infer torch: can't run .*which finds single things"):
        make_plan(Config(model=path, infer="torch"), info, model=model)
    for name in ("instances", "torch-instances"):
        with pytest.raises(ConfigError, match=f"--infer {name}: can't run person, which finds no single things"):
            make_plan(Config(infer=name), info, model=model_of("person"))


@pytest.mark.gpu
def test_a_gpu_infers_where_it_can(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = model_of(red_yolo(tmp_path / "m.onnx"))
    info = make_info(64, 64, Color(1, LIMITED))
    plan = make_plan(Config(model=model.path), info, model=model)
    assert plan.infer is not None and plan.preprocess is not None
    assert (plan.infer.name, plan.infer.memory, plan.preprocess.name) == ("torch-instances", "cuda", "cuda")
    outputs = outputs_of("rtmdet-ins")
    other = model_of(make_detector(tmp_path / "n.onnx", outputs), labels=tuple(f"c{i}" for i in range(7)))
    plan = make_plan(Config(model=other.path), info, model=other)
    assert plan.infer is not None and plan.infer.name == "instances"
    assert "infer: instances on the CPU (torch-instances: rtmdet-ins returns as many things" in caplog.text
    with pytest.raises(BackendError, match="rtmdet-ins returns as many things"):
        make_plan(Config(model=other.path, mode="optimized"), info, model=other)


def test_no_interval_with_single_things(tmp_path: Path) -> None:
    path = red_yolo(tmp_path / "red.onnx")
    video = Synthetic(pts=range(3)).write(tmp_path / "in.mkv")
    with pytest.raises(ConfigError, match=r"interval 2: .*red\.onnx finds single things, frame by frame; leave it out"):
        segment(video, tmp_path / "out.mkv", model=path, interval=2)


def real(name: str) -> Path:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"../shared/{name} is not here")
    return path


def portraits(count: int) -> list[np.ndarray]:
    folder = real("people/stills/portraits-house")
    read = [cv2.imread(str(path)) for path in sorted(folder.iterdir())[:count]]
    return [np.ascontiguousarray(picture[..., ::-1]) for picture in read if picture is not None]


def test_faces_are_those_that_opencvs_own_reader_of_this_network_finds() -> None:
    path = real("models/faces-yunet.onnx")
    model = model_of(path)
    seen = 0
    folder = real("people/stills/scenes-gov")
    for file in sorted(folder.iterdir())[::8][:12]:
        picture = cv2.imread(str(file))
        assert picture is not None
        info = make_info(picture.shape[1], picture.shape[0], COLOR)
        fitted = model.for_video(info)
        tensor = OpenCVPreprocessor(info, "yuv444p", fitted, Config())(
            batch_of(planes_of(np.ascontiguousarray(picture[..., ::-1]), "yuv444p", COLOR))
        )
        detector = cv2.FaceDetectorYN.create(str(path), "", (fitted.width, fitted.height), 0.6, 0.45)
        given = np.clip(np.round(tensor[0].transpose(1, 2, 0)), 0, 255).astype(np.uint8)
        theirs = detector.detect(given)[1]
        theirs = np.zeros((0, 15)) if theirs is None else theirs[np.argsort(-theirs[:, 14])]
        ours = frame_of(InstanceInference(fitted, Config())(given.transpose(2, 0, 1)[None].astype(np.float32)))
        place = fitted.picture
        assert place is not None
        scale = np.array([place.width, place.height] * 2)
        boxes = np.array([one.box for one in ours.instances]).reshape(-1, 4) * scale
        boxes += [place.left, place.top] * 2
        corners = np.hstack([theirs[:, :2], theirs[:, :2] + theirs[:, 2:4]])
        low, high = [place.left, place.top] * 2, [place.left + place.width, place.top + place.height] * 2
        assert [one.score for one in ours.instances] == pytest.approx(theirs[:, 14].tolist(), abs=0.01)
        assert np.abs(boxes - np.clip(corners, low, high)).max(initial=0) < 1
        seen += len(theirs)
    assert seen >= 10, "so few faces that nothing is compared"


@pytest.mark.parametrize(("name", "label"), [("faces-yunet", "face"), ("faces-masked-rfb640", "bare")])
def test_a_portrait_shows_one_face_in_its_upper_half(name: str, label: str) -> None:
    model = model_of(real(f"models/{name}.onnx"))
    right = 0
    shown = portraits(10)
    for picture in shown:
        instances = frame_of(found_in(model, picture)).instances
        right += len(instances) == 1 and instances[0].label == label and 0.2 < instances[0].box[1] + 0.3 < 0.9
    assert right >= 0.8 * len(shown)


def test_instances_of_a_network_get_ids_and_can_be_kept(tmp_path: Path) -> None:
    rows = [[0.1, 0.1, 0.4, 0.9, 0.9, 0], [0.5, 0.1, 0.95, 0.9, 0, 0.8]]
    metadata = {"labels": '["background", "cat", "dog"]'}
    array = np.array(rows, np.float32)
    outputs = {"scores": np.hstack([np.zeros((2, 1), np.float32), array[:, 4:]]), "boxes": array[:, :4]}
    path = make_detector(tmp_path / "m.onnx", outputs, metadata=metadata)
    video = Synthetic(pts=range(3)).write(tmp_path / "in.mkv")
    with Segmenter(model=path, keep="largest", threshold=0.5) as segmenter:
        frames = [frame.instances for frame in segmenter.frames(video, smooth=0, refine=False)]
        segmenter.run(video, tmp_path / "out.mkv", effect="mask", codec="ffv1", refine=False)
    assert [[(one.label, one.kept) for one in frame.instances] for frame in frames if frame is not None] == [
        [("cat", False), ("dog", True)]
    ] * 3
    ids = [[one.id for one in frame.instances] for frame in frames if frame is not None]
    assert ids == [ids[0]] * 3 and len(set(ids[0])) == 2
    white = next(pictures(tmp_path / "out.mkv")).planes[0] > 128
    assert white[24, 48] and not white[24, 16]
