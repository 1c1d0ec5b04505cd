"""Reads a segmentation network and the meaning of its input and output.

A model is an ONNX file that takes a picture and returns scores or class numbers, in the forms of `tensor_form.py`. The
meaning (labels, normalization, channel order, activation) comes from options, else the ONNX's `metadata_props`, else a
`.json` beside the file, else the network's type (`model_types.py`), else `_DEFAULTS`. All of these have the same keys:
`labels`, `mean`, `std`, `channel_order`, `activation`, `input_size`, `model_output`, `model_inputs`, and those of
networks that find single things: `task`, `fit`, `boxes`, `score_threshold`, `nms`, `passes`. In `metadata_props` the
values are JSON. A TensorRT engine is a model too, described by its sidecar.
"""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict, TypeVar, cast

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from segmentation.errors import ModelError, did_you_mean, is_exhausted, one_line
from segmentation.frames import VideoInfo
from segmentation.models.detection import Detection, Place, named_outputs, place_in, task_of
from segmentation.models.function import FunctionNetwork
from segmentation.models.graph.onnx_file import described, find_inputs, find_output, takes_channels_last
from segmentation.models.graph.onnx_file import open_session as open_file
from segmentation.models.input_size import (
    DEFAULT,
    VIDEO,
    Size,
    choose_size,
    nearest_size,
    own_size,
    shape_shown,
    sizes_of,
)
from segmentation.models.metadata import check_input, checked
from segmentation.models.output_reader import OutputReader, class_count
from segmentation.models.sidecar import StateSpec, load_plan, sidecar_of
from segmentation.models.tensor_form import (
    BYTE,
    FLOATS,
    INTEGERS,
    Extra,
    Form,
    Runner,
    is_channels_last,
    is_picture,
    to_scores,
)
from segmentation.options.config import Config
from segmentation.options.keywords import Network
from segmentation.options.model_types import BACKGROUNDS, SEGMENTATION, TASKS, TYPES, VOC, Meaning, recognized

log = logging.getLogger(__name__)
T = TypeVar("T")

ENGINE = ".engine"  # the suffix of TensorRT engines
# Networks of masks.
PEOPLE = {name: Path(__file__).parent / f"{name}.onnx" for name in ("person", "person-hq", "person-best")}
BUILT_IN = PEOPLE | {"face": Path(__file__).parent / "face.onnx"}
_DEFAULTS: Meaning = {
    "mean": (0.0, 0.0, 0.0),  # values 0..1, not normalized further
    "std": (1.0, 1.0, 1.0),
    "channel_order": "rgb",
    "input_size": DEFAULT,  # for models whose own size is dynamic
}
_BOXES_ALONE = ("yunet", "yolo", "yolov5")  # in pixels of the input
# Labels by number of channels: one is the person, two are background and person, 21 are Pascal VOC's.
_LABELS = {1: ("person",), 2: ("background", "person"), 21: VOC}


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A network and the meaning of its input and output."""

    name: str
    path: Path
    input_name: str
    output_name: str
    dtype: type[np.float32 | np.float16]  # of its input
    batch: int | None  # fixed batch size; None if dynamic
    height: int  # of the input, pixels
    width: int
    mean: tuple[float, float, float]  # of R, G, B in 0..1; the input is (rgb - mean) / std
    std: tuple[float, float, float]
    channel_order: str  # "rgb" or "bgr"
    labels: tuple[str, ...]  # one for each output channel
    activation: str  # still to be applied to the output: "none", "sigmoid", "softmax" or "minmax"
    keep: tuple[int, ...]  # output channels whose classes are kept
    form: Form = Form()  # of the file's tensors  # noqa: RUF009
    sizes: tuple[Size, ...] = ()  # (height, width) at which the network may be run, where there are several
    sized_as_video: bool = False  # whether it is run at the video's own size
    function: FunctionNetwork | None = field(default=None, compare=False)  # that is called in place of a file
    detection: Detection | None = None  # of a network that finds single things, or says what a picture shows
    picture: Place | None = None  # where the input shows the video; `None`: all over

    def for_video(self, info: VideoInfo) -> "Model":
        """Returns the model at the size whose shape is nearest to the video's."""
        model = self
        if self.sizes:
            height, width = nearest_size(self.sizes, info)
            model = replace(self, height=height, width=width)
        elif self.sized_as_video:
            height, width = own_size(info)
            model = replace(self, height=height, width=width)
        if model.detection is not None and model.detection.fit == "letterbox":
            model = replace(model, picture=model.place_of(*shape_shown(info, info.width, info.height)))
        return model

    def place_of(self, width: float, height: float) -> Place:
        """Returns where the input shows a picture of this shape."""
        fit = "squash" if self.detection is None else self.detection.fit
        return place_in((self.height, self.width), width, height, fit)

    @property
    def batch_on_gpu(self) -> int | None:
        """The frames that the stages on a GPU take at a time; `None` if any number will do.

        A network that finds single things in one picture at a time runs several times for a batch, and so does a
        recurrent one.
        """
        once = self.batch == 1 and (self.detection is not None or self.form.recurrent)
        return None if once else self.batch

    @property
    def kept(self) -> tuple[str, ...]:
        """The labels of the classes that are kept."""
        return tuple(self.labels[channel] for channel in self.keep)


def detection_of(model: Model) -> Detection:
    """Returns how the outputs of a network of single things are read. Raises `ModelError` for a network of masks."""
    if model.detection is None:
        raise ModelError(f"{model.path}: gives masks of classes, and no single things")
    return model.detection


def load_model(config: Config, info: VideoInfo | None = None) -> Model:
    """Reads the model that `config` names, and its meaning.

    Of several input sizes, the model has the one whose shape is nearest to that of the video `info`; without a video
    the first. Raises `ModelError`, and `EngineError` for an engine that is refused.
    """
    if callable(config.model):
        return _load_function(config.model, config)
    if "://" in config.model_name:  # a path has one slash of the two
        raise ModelError(f"{config.model_name}: is an address; download the model, and give the file")
    path = BUILT_IN.get(str(config.model), Path(config.model))
    if path.suffix == ENGINE:
        return _load_engine(path, config)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # it is read, not run
    session = open_session(path, options)
    stated = described(session, path)
    meaning: Meaning = {**_type(config, stated, session), **stated, **_options(config)}
    source, extras = find_inputs(session, _inputs(meaning, config, path), path)
    detects = meaning.get("task", SEGMENTATION) != SEGMENTATION
    single = detects and len(source.shape) == 3
    form = Form(
        input_last=not single and takes_channels_last(source, path),
        bytes=source.type not in FLOATS,
        extras=extras,
        single=single,
    )
    _assume(meaning, form, config, path)
    batch, height, width = _dimensions(source, form)
    check_input(source.name, {"batch": batch, "height": height, "width": width}, path)
    follows = meaning["input_size"] == VIDEO and height is width is None
    if meaning["input_size"] == VIDEO:
        meaning["input_size"] = DEFAULT if info is None else own_size(info)
    sizes = tuple((height or h, width or w) for h, w in sizes_of(meaning["input_size"], path))
    height, width = choose_size(sizes, path, config.input_size, info)
    given: _Input = {
        "input_name": source.name,
        "dtype": FLOATS.get(source.type, np.float32),
        "batch": 1 if single else batch,
        "height": height,
        "width": width,
        "sizes": sizes if len(set(sizes)) > 1 else (),
        "sized_as_video": follows,
    }
    return (_read_detector if detects else _read_scores)(meaning, session, given, form, config, path)


class _Input(TypedDict):
    """The fields of a `Model` that state what its input is."""

    input_name: str
    dtype: type[np.float32 | np.float16]
    batch: int | None
    height: int
    width: int
    sizes: tuple[Size, ...]
    sized_as_video: bool


def _read_scores(
    meaning: Meaning, session: ort.InferenceSession, given: _Input, form: Form, config: Config, path: Path
) -> Model:
    """Returns a model that gives each pixel scores or a class, after running it once. Raises `ModelError`.

    A built-in network is as it states, and is not run: that would be a third of a second of each start.
    """
    output, first = find_output(session, meaning.get("model_output"), form.extras, path)
    form = replace(form, output_flat=len(output.shape) == 3, first=first)
    runner = Runner(session, given["input_name"], output.name, form)
    size = given["height"], given["width"]
    if path in PEOPLE.values():
        raw = np.zeros((1, output.shape[1], *size), np.float32)
    else:
        raw = _tried(runner.raw, (1 if form.recurrent else given["batch"] or 1, 3, *size), given["dtype"], path)
    if raw.ndim != len(output.shape) or not raw.size:
        raise ModelError(f"{path}: its output {output.name} is {raw.shape}, which holds no mask")
    counts = {node.shape[0] for node in session.get_inputs() if node.name == given["input_name"]}
    if given["batch"] is None and not form.recurrent and counts != {output.shape[0]}:  # else the file states it
        _check_several(runner, size, given["dtype"], path)
    if form.output_flat and not is_picture(raw.shape[1:], size):
        raise ModelError(
            f"{path}: is no segmentation model: its output {output.name} is {raw.shape}, which is no mask; "
            "give --task if it holds boxes"
        )
    if not form.output_flat:
        form = replace(form, output_last=is_channels_last(raw.shape, size, form.input_last))
    if output.type in INTEGERS:
        form = replace(form, classes=_classes(meaning, raw, form, path))
        meaning["activation"] = "none"
    read = _meaning_of_output(meaning, to_scores(raw, form), config, path)
    return Model(**read, **given, output_name=output.name, form=form)


def _read_detector(
    meaning: Meaning, session: ort.InferenceSession, given: _Input, form: Form, config: Config, path: Path
) -> Model:
    """Returns a model that finds single things, after running it once. Raises `ModelError`."""
    if form.recurrent:
        raise ModelError(f"{path}: carries states from frame to frame, which networks of single things can't here")
    task = str(meaning["task"])
    words = ("fit", "boxes", "score_threshold", "nms", "passes")
    detection = Detection(
        task=task,
        outputs=named_outputs(task, session.get_outputs(), path),
        **{word: meaning[word] for word in words if word in meaning},  # type: ignore[arg-type]
    )
    if detection.passes and (task not in _BOXES_ALONE or given["height"] % 2 or given["width"] % 2):
        raise ModelError(f"{path}: passes are for networks of boxes ({', '.join(_BOXES_ALONE)}) with even sides")
    reader = OutputReader(session, given["input_name"], detection.outputs, form, given["batch"])
    shape = (1, 3, given["height"], given["width"])
    outputs = _tried(lambda pictures: next(reader(pictures)), shape, given["dtype"], path)
    count = class_count(outputs, task, path)
    if "activation" not in meaning:
        done = task != "classifier" or (outputs[0].min() >= 0 and abs(outputs[0].sum() - 1) < 0.01)
        meaning["activation"] = "none" if done else "softmax"
    labels = cast(tuple[str, ...], meaning.get("labels", ()))
    if count is not None and (not labels or (labels == TASKS[task].get("labels") and len(labels) != count)):
        meaning["labels"] = labels = tuple(f"class{i}" for i in range(count))
        log.info("model %s does not say its labels: assumed %s", config.model_name, ", ".join(labels))
    read = _checked(meaning, len(labels) if count is None else count, config, path)
    return Model(**read, **given, output_name=detection.outputs[0], form=form, detection=detection)


def _load_function(function: Network, config: Config) -> Model:
    """Finds the meaning of a function's scores by a call with noise. Raises `ModelError`."""
    path = Path(config.model_name)
    meaning: Meaning = _options(config)
    _assume(meaning, Form(), config, path)
    height, width = sizes_of(meaning["input_size"], path)[0]
    network = FunctionNetwork(function, path)
    scores = network(_noise((1, 3, height, width)))
    return Model(
        **_meaning_of_output(meaning, scores, config, path),
        input_name="pictures",
        output_name="scores",
        dtype=np.float32,
        batch=None,
        height=height,
        width=width,
        function=network,
    )


def open_session(path: Path, options: ort.SessionOptions | None = None) -> ort.InferenceSession:
    """Opens an ONNX Runtime session on the CPU. Raises `ModelError`."""
    if not path.is_file():
        known = ", ".join(BUILT_IN)
        proposal = did_you_mean(str(path), BUILT_IN)
        raise ModelError(f"{path}: no such model; give an .onnx file or a built-in name ({known}){proposal}")
    if not os.access(path, os.R_OK):
        raise ModelError(f"{path}: may not be read; check its permissions")
    return open_file(path, options)


def _type(config: Config, stated: Meaning, session: ort.InferenceSession) -> Meaning:
    """Returns the meaning of the type that the user names or that the network certainly has; empty without a type.

    A task that an option or the file states goes before the looks.
    """
    if config.model_type is not None:
        return TYPES[config.model_type]
    inputs, outputs = session.get_inputs(), session.get_outputs()
    name = recognized(inputs, outputs) or task_of(inputs, outputs)
    task = config.task or stated.get("task")
    known = {**TYPES, **TASKS}
    if task is not None and (name is None or known[name].get("task", SEGMENTATION) != task):
        return known.get(str(task), {})
    if name is None:
        return {}
    log.info("model %s is of the type %s, by the names and shapes of its inputs and outputs", config.model_name, name)
    return known[name]


def _options(config: Config) -> Meaning:
    """Returns the meaning that options state."""
    options = {name: getattr(config, name) for name in (*_DEFAULTS, "labels", "activation", "model_output", "task")}
    return {name: value for name, value in options.items() if value is not None}


def _inputs(meaning: Meaning, config: Config, path: Path) -> dict[str, tuple[float, ...]]:
    """Returns the values of inputs besides the picture, by name. Raises `ModelError`."""
    stated = checked({"model_inputs": meaning.get("model_inputs", {})}, path)["model_inputs"]
    return {**cast(dict[str, tuple[float, ...]], stated), **config.inputs_by_name}


def _assume(meaning: Meaning, form: Form, config: Config, path: Path) -> None:
    """Completes the meaning of the input. Raises `ModelError` for options that an input of bytes can't have."""
    if form.bytes:
        if config.mean is not None or config.std is not None:
            raise ModelError(f"{path}: its input is uint8, which is 0 to 255 as it is; leave out --mean and --std")
        meaning.update(mean=(0.0, 0.0, 0.0), std=(BYTE, BYTE, BYTE))
    for name, value in _DEFAULTS.items():
        if name not in meaning:
            meaning[name] = value
            if name != "input_size":
                log.info("model %s does not say its %s: %s is assumed", config.model_name, name, value)


def _dimensions(source: ort.NodeArg, form: Form) -> tuple[int | None, int | None, int | None]:
    """Returns batch, height and width of the input; `None` where dynamic."""
    shape = [1, *source.shape] if form.single else source.shape
    batch, *rest = (side if isinstance(side, int) and side > 0 else None for side in shape)
    return (batch, *(rest[:2] if form.input_last else rest[1:]))  # type: ignore[return-value]


def _classes(meaning: Meaning, raw: NDArray[np.generic], form: Form, path: Path) -> int:
    """Returns the number of classes of an output that holds class numbers. Raises `ModelError`."""
    channels = 1 if form.output_flat else raw.shape[3 if form.output_last else 1]
    if channels != 1:
        raise ModelError(f"{path}: its output is whole numbers in {channels} channels; scores are needed")
    if "labels" not in meaning:
        raise ModelError(
            f"{path}: puts out class numbers, and nothing says of which classes; give --labels, one for each number "
            "from 0 on, or --model-type"
        )
    return len(cast(tuple[str, ...], meaning["labels"]))


def _load_engine(path: Path, config: Config) -> Model:
    """Reads an engine. Raises `EngineError` if it is refused, `ModelError` for options of an ONNX."""
    for name in ("input_size", "model_type", "task", "model_output", "model_inputs"):
        if getattr(config, name):
            option = f"--{name.replace('_', '-').removesuffix('s')}"
            raise ModelError(f"{path}: an engine has its own; leave out {option}, or build another engine")
    _, sidecar = load_plan(path)
    words = ("labels", "mean", "std", "channel_order", "activation")
    said = checked({name: getattr(sidecar, name) for name in words}, sidecar_of(path))
    batch, _, height, width = sidecar.input["shape"]
    return Model(
        **_checked({**said, **_options(config)}, sidecar.output["shape"][1], config, path),
        input_name=sidecar.input["name"],
        output_name=sidecar.output["name"],
        dtype=np.float16 if sidecar.input["dtype"] == "float16" else np.float32,
        batch=None if batch < 0 else batch,
        height=height,
        width=width,
        form=Form(extras=tuple(map(_state, sidecar.states))),
    )


def _state(spec: StateSpec) -> Extra:
    """Returns a state of an engine."""
    shape = tuple(spec["shape"])
    return Extra(name=spec["name"], dtype=spec["dtype"], shape=shape, values=(0.0,), source=spec["source"])


class _Checked(TypedDict):
    """The fields of a `Model` that state its meaning."""

    name: str
    path: Path
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    channel_order: str
    labels: tuple[str, ...]
    activation: str
    keep: tuple[int, ...]


def _meaning_of_output(meaning: Meaning, scores: NDArray[np.float32], config: Config, path: Path) -> _Checked:
    """Completes the meaning by that of the output, guessed from `scores` (N, C, h, w). Raises `ModelError`."""
    if "activation" not in meaning:
        meaning["activation"] = _guess_activation(scores)
        log.info(
            "model %s does not say its activation: %s is still to be applied", config.model_name, meaning["activation"]
        )
    channels = scores.shape[1]
    if "labels" not in meaning:
        labels = _LABELS.get(channels) or tuple(f"class{i}" for i in range(channels))
        meaning["labels"] = labels
        log.info("model %s does not say its labels: assumed %s", config.model_name, ", ".join(labels))
    return _checked(meaning, channels, config, path)


def _checked(meaning: Meaning, channels: int, config: Config, path: Path) -> _Checked:
    """Returns the complete meaning of a model with so many output channels. Raises `ModelError`."""
    labels = cast(tuple[str, ...], meaning["labels"])
    if len(labels) != channels:
        raise ModelError(f"{path}: {len(labels)} labels for {channels} output channels; give --labels, one for each")
    return {
        "name": config.model_name,
        "path": path,
        "mean": cast(tuple[float, float, float], meaning["mean"]),
        "std": cast(tuple[float, float, float], meaning["std"]),
        "channel_order": str(meaning["channel_order"]),
        "labels": labels,
        "activation": str(meaning["activation"]),
        "keep": _kept(labels, config.classes, config.model_name),
    }


def _tried(
    run: Callable[[NDArray[np.floating]], T],
    shape: tuple[int, ...],
    dtype: type[np.float32 | np.float16],
    path: Path,
) -> T:
    """Returns the file's result for noise of this shape. Raises `ModelError` if the file does not run."""
    try:
        return run(_noise(shape).astype(dtype))
    except Exception as exc:  # ONNX Runtime's exceptions have no common base
        if is_exhausted(exc):
            raise
        raise ModelError(f"{path}: does not run on input {shape} ({one_line(exc)})") from exc


def _check_several(runner: Runner, size: Size, dtype: type[np.float32 | np.float16], path: Path) -> None:
    """Raises `ModelError` if a file that takes any number of pictures returns another number of masks for two.

    One that fails with two may still serve one by one.
    """
    try:
        runner.raw(_noise((2, 3, *size)).astype(dtype))
    except ModelError as exc:
        raise ModelError(f"{path}: {exc}") from exc
    except Exception as exc:  # ONNX Runtime's exceptions have no common base
        log.info("model %s does not run on two pictures at a time (%s)", path, one_line(exc))


def _noise(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Returns values in 0..1, the same each time."""
    return np.random.default_rng(0).random(shape).astype(np.float32)


def _guess_activation(scores: NDArray[np.float32]) -> str:
    """Guesses that scores in 0..1 need no activation; others are logits, of a sigmoid if there is one channel."""
    if scores.min() >= 0 and scores.max() <= 1:
        return "none"
    return "sigmoid" if scores.shape[1] == 1 else "softmax"


def _kept(labels: tuple[str, ...], classes: tuple[str, ...] | None, name: str) -> tuple[int, ...]:
    """Returns the channels of the classes; without any, those of persons, else all but the background."""
    if classes is None:
        classes = ("person",) if "person" in labels else tuple(x for x in labels if x not in BACKGROUNDS)
    unknown = [c for c in classes if c not in labels]
    if unknown:
        proposal = did_you_mean(unknown[0], labels)
        raise ModelError(
            f"model {name} does not know the class {unknown[0]!r}: choose from {', '.join(labels)}{proposal}"
        )
    return tuple(labels.index(c) for c in classes)
