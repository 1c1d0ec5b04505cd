"""What a file says about its network is checked as options are: one line, no memory, no traceback."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from networks import RED, make_model

from segmentation import Config, EngineError, ModelError
from segmentation.models.metadata import KEYS, load_json
from segmentation.models.model import load_model
from segmentation.models.sidecar import digest, load_plan

DEEP = "[" * 100_000 + "]" * 100_000
WRONG = [
    ("std", "[0, 1, 1]", "must be 1e-06 to 1,000,000"),
    ("std", "[NaN, 1, 1]", "must be 1e-06 to 1,000,000"),
    ("std", "[-1, 1, 1]", "must be 1e-06 to 1,000,000"),
    ("std", "[1, 1]", "three numbers"),
    ("std", "[1e-300, 1, 1]", "1e-06 to 1,000,000"),
    ("std", "[1e300, 1, 1]", "1e-06 to 1,000,000"),
    ("mean", "[1e300, 0, 0]", "must be -1,000,000 to 1,000,000"),
    ("model_inputs", json.dumps({"x" * 100_000: 1}), "names and numbers"),
    ("model_output", f"9{'9' * 400}", "more than 200 characters"),
    ("mean", "[Infinity, 0, 0]", "must be -1,000,000 to 1,000,000"),
    ("mean", f"[1{'0' * 400}, 0, 0]", "a list of numbers"),
    ("mean", '["0.5", "0.5", "0.5"]', "a list of numbers"),
    ("mean", "null", "is null"),
    ("mean", DEEP, "mean"),
    ("labels", json.dumps(["x"] * 100_000), "at most 4096"),
    ("labels", json.dumps(["x" * 100_000]), "more than 200 characters"),
    ("labels", "[5]", "a list of texts"),
    ("input_size", json.dumps([[64, 64]] * 1000), "at most 64"),
    ("input_size", "[1e9, 64]", "each number in 8 to 8192"),
    ("input_size", DEEP, "input_size"),
    ("model_inputs", '{"x:0": NaN}', "names and numbers"),
    ("model_inputs", f'{{"x:0": 1{"0" * 400}}}', "names and numbers"),
]


def refused(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load_model(Config(model=path))
    text = str(caught.value)
    assert "\n" not in text and len(text) < len(str(path)) + 300, text[:500]
    return text


@pytest.mark.parametrize(("key", "value", "said"), WRONG, ids=range(len(WRONG)))
def test_wrong_values_are_one_line(key: str, value: str, said: str, tmp_path: Path) -> None:
    size = ("h", "w") if key == "input_size" else (32, 48)
    path = make_model(tmp_path / "m.onnx", RED, metadata={key: value}, size=size)
    assert said in refused(path)
    path = make_model(tmp_path / "n.onnx", RED, size=size)
    path.with_suffix(".json").write_text(f'{{"{key}": {value}}}')
    assert said in refused(path) or "cannot be read as JSON" in refused(path)


@pytest.mark.parametrize(
    ("metadata", "said"),
    [({"activation": "tanh"}, "choose none"), ({"channel_order": "gbr"}, "choose rgb, bgr")],
)
def test_unknown_words_are_one_line(metadata: dict[str, str], said: str, tmp_path: Path) -> None:
    assert said in refused(make_model(tmp_path / "m.onnx", RED, metadata=metadata))


def test_a_long_name_is_not_quoted(tmp_path: Path) -> None:
    assert "more than 200 characters" in refused(
        make_model(tmp_path / "m.onnx", RED, metadata={"model_output": "x" * 10**6})
    )


def test_a_json_of_an_editor_on_windows(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"labels": ["cat"]}\r\n')
    assert load_json(tmp_path / "a.json") == {"labels": ["cat"]}


def test_a_huge_json_is_not_read(tmp_path: Path) -> None:
    path = make_model(tmp_path / "m.onnx", RED)
    with path.with_suffix(".json").open("wb") as file:
        file.truncate(10 << 30)
    assert "more than 16 MiB" in refused(path)


@pytest.mark.parametrize(("batch", "size"), [("N", (1 << 20, 1 << 20)), (1 << 30, (32, 48))])
def test_huge_inputs_take_no_memory(batch: int | str, size: tuple[int, int], tmp_path: Path) -> None:
    text = refused(make_model(tmp_path / "m.onnx", RED, batch=batch, size=size))
    assert "at most" in text or "can load" in text


def test_a_huge_second_input_takes_no_memory(tmp_path: Path) -> None:
    path = make_model(tmp_path / "m.onnx", RED, metadata={"model_inputs": '{"gain": 1}'})
    model = onnx.load(path)
    model.graph.input.append(onnx.helper.make_tensor_value_info("gain", onnx.TensorProto.FLOAT, [1 << 20, 1 << 20]))
    onnx.save(model, path)
    assert "at most" in refused(path)


@pytest.mark.parametrize("seed", range(60))
def test_any_value_gives_a_model_or_one_line(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    stated = {key: anything(dice) for key in dice.sample(KEYS, 3)}
    path = make_model(tmp_path / "m.onnx", RED)
    path.with_suffix(".json").write_text(json.dumps(stated))
    try:
        load_model(Config(model=path))
    except ModelError as exc:
        assert "\n" not in str(exc)


def anything(dice: random.Random, depth: int = 0) -> Any:
    """A JSON value of any kind."""
    kinds: list[Callable[[], Any]] = [
        lambda: dice.choice([None, True, False, "", "person", "rgb", "x" * 1000, "\x1b[2J\n"]),
        lambda: dice.choice([0, 1, -1, 0.5, 10**30, 10**400, float("nan"), float("inf")]),
    ]
    if depth < 3:
        kinds += [
            lambda: [anything(dice, depth + 1) for _ in range(dice.randrange(5))],
            lambda: {dice.choice(["a", "x:0", ""]): anything(dice, depth + 1) for _ in range(dice.randrange(3))},
        ]
    return dice.choice(kinds)()


SIDECAR: dict[str, Any] = {
    "engine_format": 3, "plan_sha256": digest(b"plan"), "plan_bytes": 4, "fingerprint": "x", "ingredients": {},
    "variant": "tensorrt_rtx", "variant_version": "1", "batch": [1, 1, 1], "labels": ["person"],
    "input": {"name": "i", "dtype": "float32", "shape": [-1, 3, 32, 48]},
    "output": {"name": "o", "dtype": "float32", "shape": [-1, 1, 32, 48]},
    "states": [{"name": "h_in", "dtype": "float32", "shape": [1, 4], "source": "h_out"}],
    "mean": [0, 0, 0], "std": [1, 1, 1], "channel_order": "rgb", "activation": "none",
    "precision": "fp32", "fp16": None, "checked": "yes", "build_seconds": 1.0, "versions": {},
}  # fmt: skip


@pytest.mark.parametrize("key", SIDECAR)
@pytest.mark.parametrize("value", [None, 10**400, [], {}, [1], {"shape": [1, 2]}, float("nan")], ids=range(7))
def test_sidecars_of_engines_are_checked(key: str, value: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.engine"
    path.write_bytes(b"plan")
    path.with_suffix(".json").write_text(json.dumps(SIDECAR))
    assert load_plan(path)[0] == b"plan" and load_model(Config(model=path)).width == 48
    path.with_suffix(".json").write_text(json.dumps({**SIDECAR, key: value}))
    try:
        load_model(Config(model=path))
    except (EngineError, ModelError) as exc:
        assert "\n" not in str(exc) and len(str(exc)) < len(str(path)) + 300
