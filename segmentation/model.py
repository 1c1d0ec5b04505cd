"""What a segmentation network's input and output mean.

A model is an ONNX file: one input (N, 3, H, W), one output (N, C, h, w). The rest (labels, normalisation, channel
order, activation) comes from options, else the ONNX's own `metadata_props`, else a `.json` beside it, else the defaults
of `_DEFAULTS`. Both hold the same keys: `labels`, `mean`, `std`, `channel_order`, `activation`, `input_size`; in
`metadata_props` lists are written as JSON. A TensorRT engine is a model too: its sidecar says all of that.
"""

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from segmentation.config import Config
from segmentation.errors import ModelError
from segmentation.frames import VideoInfo
from segmentation.input_size import DEFAULT, Size, fitting, sizes_of
from segmentation.sidecar import load_plan

log = logging.getLogger(__name__)

ENGINE = ".engine"  # the suffix of TensorRT engines
BUILT_IN = {"person": Path(__file__).parent / "models" / "person.onnx"}
_DEFAULTS: dict[str, Any] = {
    "mean": (0.0, 0.0, 0.0),  # values 0..1, not normalised further
    "std": (1.0, 1.0, 1.0),
    "channel_order": "rgb",
    "input_size": DEFAULT,  # for models whose own size is dynamic
}
_VOC = (
    "background aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike person "
    "pottedplant sheep sofa train tvmonitor"
)
# Labels by number of channels: one is the person, two are background and person, 21 are Pascal VOC's.
_LABELS = {1: ("person",), 2: ("background", "person"), 21: tuple(_VOC.split())}
_DTYPES: dict[str, Any] = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A network and the meaning of its input and output."""

    name: str
    path: Path
    input_name: str
    output_name: str
    dtype: type[np.float32 | np.float16]  # of the input
    batch: int | None  # fixed batch size, None if dynamic
    height: int  # of the input, pixels
    width: int
    mean: tuple[float, float, float]  # of R, G, B in 0..1; the input is (rgb - mean) / std
    std: tuple[float, float, float]
    channel_order: str  # "rgb" or "bgr"
    labels: tuple[str, ...]  # one for each output channel
    activation: str  # still to be applied to the output: "none", "sigmoid" or "softmax"
    keep: tuple[int, ...]  # output channels whose classes are kept

    @property
    def kept(self) -> tuple[str, ...]:
        """The labels of the classes that are kept."""
        return tuple(self.labels[channel] for channel in self.keep)


def load_model(config: Config, info: VideoInfo | None = None) -> Model:
    """Reads the model that `config` names and settles what it means.

    Of several sizes that a network can be run at, the one is taken whose shape is nearest to that of the video `info`,
    without one the first. Raises `ModelError`.
    """
    path = BUILT_IN.get(str(config.model), Path(config.model))
    if path.suffix == ENGINE:
        return _load_engine(path, config)
    session = open_session(path)
    source, output = _input_and_output(session, path)
    described = {**_sidecar(path), **_metadata(session, path)}
    meaning = {**described, **_options(config)}
    for name, value in _DEFAULTS.items():
        if name not in meaning:
            meaning[name] = value
            if name != "input_size":
                log.info("model %s does not say its %s: %s is assumed", config.model, name, value)
    batch, _, height, width = (d if isinstance(d, int) and d > 0 else None for d in source.shape)
    height, width = _size(meaning["input_size"], height, width, path, config, info)
    probe = _probe(session, source, output, (batch or 1, 3, height, width), path)
    channels = probe.shape[1]
    if "activation" not in meaning:
        meaning["activation"] = _guess_activation(probe)
        log.info("model %s does not say its activation: %s is still to be applied", config.model, meaning["activation"])
    if "labels" not in meaning:
        meaning["labels"] = _LABELS.get(channels) or tuple(f"class{i}" for i in range(channels))
        log.info("model %s does not say its labels: assumed %s", config.model, ", ".join(meaning["labels"]))
    return _model(
        config,
        path,
        meaning,
        channels=channels,
        input_name=source.name,
        output_name=output.name,
        dtype=_DTYPES[source.type],
        batch=batch,
        height=height,
        width=width,
    )


def _size(said: Any, height: int | None, width: int | None, path: Path, config: Config, info: VideoInfo | None) -> Size:
    """Height and width of the input, of which those that are not None are fixed."""
    sizes = [(height or h, width or w) for h, w in sizes_of(said, path)]
    if config.input_size not in (None, sizes[0]):
        raise ModelError(
            f"{path}: its input is {sizes[0][0]}x{sizes[0][1]} and can't be changed; leave out --input-size"
        )
    size = fitting(sizes, info)
    if len(sizes) > 1:
        known = ", ".join(f"{h}x{w}" for h, w in sizes)
        log.info("model %s runs at %dx%d, of the sizes %s", config.model, *size, known)
    return size


def _load_engine(path: Path, config: Config) -> Model:
    """What the sidecar of an engine says. Raises `EngineError` if the two don't belong together."""
    if config.input_size is not None:
        raise ModelError(f"{path}: an engine's size is fixed; leave out --input-size, or build another engine")
    _, sidecar = load_plan(path)
    described = {name: getattr(sidecar, name) for name in ("labels", "mean", "std", "channel_order", "activation")}
    batch, _, height, width = sidecar.input["shape"]
    return _model(
        config,
        path,
        {**described, **_options(config)},
        channels=sidecar.output["shape"][1],
        input_name=sidecar.input["name"],
        output_name=sidecar.output["name"],
        dtype=np.dtype(sidecar.input["dtype"]).type,
        batch=None if batch < 0 else batch,
        height=height,
        width=width,
    )


def _options(config: Config) -> dict[str, Any]:
    """What the user says about the model."""
    options = {name: getattr(config, name) for name in (*_DEFAULTS, "labels", "activation")}
    return {name: value for name, value in options.items() if value is not None}


def _model(config: Config, path: Path, meaning: dict[str, Any], *, channels: int, **facts: Any) -> Model:
    labels = tuple(meaning["labels"])
    if len(labels) != channels:
        raise ModelError(f"{path}: {len(labels)} labels for {channels} output channels; give --labels, one for each")
    return Model(
        name=str(config.model),
        path=path,
        mean=_three(meaning["mean"], "mean", path),
        std=_three(meaning["std"], "std", path),
        channel_order=str(meaning["channel_order"]).lower(),
        labels=labels,
        activation=str(meaning["activation"]).lower(),
        keep=_kept(labels, config.classes, str(config.model)),
        **facts,
    )


def open_session(path: Path, options: ort.SessionOptions | None = None) -> ort.InferenceSession:
    """An ONNX Runtime session on the CPU. Raises `ModelError` in one line."""
    if not path.is_file():
        known = ", ".join(BUILT_IN)
        raise ModelError(f"{path}: no such model; give an .onnx file or a built-in name ({known})")
    options = options or ort.SessionOptions()
    options.log_severity_level = 4  # its warnings go to stderr by themselves, its errors are raised
    # What waits sleeps: threads that spin instead would take the cores from other stages.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as exc:  # ONNX Runtime's exceptions have no common base but this
        raise ModelError(f"{path}: is not an ONNX model that ONNX Runtime can load ({short(exc)})") from exc


def _input_and_output(session: ort.InferenceSession, path: Path) -> tuple[ort.NodeArg, ort.NodeArg]:
    inputs = session.get_inputs()
    if len(inputs) != 1:
        names = ", ".join(i.name for i in inputs)
        raise ModelError(f"{path}: has {len(inputs)} inputs ({names}); a segmentation model takes one picture")
    source = inputs[0]
    if source.type not in _DTYPES:
        raise ModelError(f"{path}: input {source.name} is {source.type}; float or float16 is needed")
    if len(source.shape) != 4 or (isinstance(source.shape[1], int) and source.shape[1] != 3):
        raise ModelError(f"{path}: input {source.name} has shape {source.shape}; (N, 3, H, W) is needed")
    for output in session.get_outputs():  # the first that can be a mask: auxiliary outputs come after it
        if len(output.shape) == 4 and output.type in _DTYPES:
            return source, output
    shapes = ", ".join(f"{o.name} {o.shape}" for o in session.get_outputs())
    raise ModelError(f"{path}: is no segmentation model: (N, C, H, W) scores are needed, its outputs are {shapes}")


def _metadata(session: ort.InferenceSession, path: Path) -> dict[str, Any]:
    props = session.get_modelmeta().custom_metadata_map
    return {k: _value(k, v, path) for k, v in props.items() if k in _DEFAULTS or k in ("labels", "activation")}


def _value(key: str, text: str, path: Path) -> Any:
    if key in ("channel_order", "activation"):
        return text.lower()
    try:
        return json.loads(text)
    except ValueError as exc:
        raise ModelError(f"{path}: its metadata {key} is {text!r}; a JSON list is needed") from exc


def _sidecar(path: Path) -> dict[str, Any]:
    beside = path.with_suffix(".json")
    if not beside.is_file():
        return {}
    try:
        content = json.loads(beside.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise ModelError(f"{beside}: cannot be read as JSON ({short(exc)})") from exc
    if not isinstance(content, dict):
        raise ModelError(f"{beside}: a JSON object is needed, with keys such as labels, mean, std")
    return content


def _probe(
    session: ort.InferenceSession, source: ort.NodeArg, output: ort.NodeArg, shape: tuple[int, ...], path: Path
) -> NDArray[np.float32]:
    """The output (N, C, h, w) for noise: its shape and range are facts that no metadata can get wrong."""
    noise = np.random.default_rng(0).random(shape).astype(_DTYPES[source.type])
    try:
        result = session.run([output.name], {source.name: noise})[0]
    except Exception as exc:  # as above: ONNX Runtime's own
        raise ModelError(f"{path}: does not run on input {shape} ({short(exc)})") from exc
    return np.asarray(result, np.float32)


def _guess_activation(scores: NDArray[np.float32]) -> str:
    """Probabilities are left alone; scores outside 0..1 are logits, of a sigmoid if there is one channel."""
    if scores.min() >= 0 and scores.max() <= 1:
        return "none"
    return "sigmoid" if scores.shape[1] == 1 else "softmax"


def _kept(labels: tuple[str, ...], classes: tuple[str, ...] | None, name: str) -> tuple[int, ...]:
    if classes is None:
        classes = (
            ("person",) if "person" in labels else tuple(x for x in labels if x not in ("background", "__background__"))
        )
    unknown = [c for c in classes if c not in labels]
    if unknown:
        raise ModelError(f"model {name} does not know the class {unknown[0]!r}: choose from {', '.join(labels)}")
    return tuple(labels.index(c) for c in classes)


def _three(values: Any, name: str, path: Path) -> tuple[float, float, float]:
    try:
        r, g, b = (float(v) for v in values)
    except (TypeError, ValueError) as exc:
        raise ModelError(f"{path}: its {name} is {values!r}; three numbers are needed") from exc
    return r, g, b


def short(exc: Exception) -> str:
    """The first 200 characters of an error's text, in one line."""
    text = " ".join(str(exc).split())
    return text if len(text) <= 200 else text[:200] + "..."
