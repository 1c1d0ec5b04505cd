"""Networks recorded as PyTorch's own operators: the same results, from a file in which nothing can be executed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from converter import need_onnx2torch
from forms import make_form

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from segmentation import Config  # noqa: E402
from segmentation.models.model import load_model  # noqa: E402
from segmentation.stages.inference.compiler.onnx_to_torch import cached_network  # noqa: E402
from segmentation.stages.inference.compiler.recorded import UnrecordableError, load, record, store  # noqa: E402

SHAPE = (2, 3, 16, 24)
EXAMPLE = torch.zeros(SHAPE)


class Net(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, forward: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn((4, 3, 3, 3), generator=generator))
        self.mean = torch.zeros(4)
        self.sizes = torch.tensor([8, 12])
        self._forward = forward

    def forward(self, x: Any) -> Any:
        return self._forward(self, x)


def convolved(net: Net, x: Any) -> Any:
    return torch.nn.functional.conv2d(x, net.weight, padding=1)


NETWORKS: dict[str, Callable[[Any, Any], Any]] = {
    "convolution": convolved,
    "first of several outputs": lambda net, x: [convolved(net, x), x],
    "sizes read on the host": lambda net, x: torch.nn.functional.interpolate(x, net.sizes.tolist(), mode="bilinear"),
    "constants computed": lambda net, x: x + (net.weight.sum() * 2).reshape(1, 1, 1, 1),
    "several results": lambda net, x: torch.split(x, 1, dim=1)[1] * x.max(dim=1).values[:, None],
    "in place": lambda net, x: convolved(net, x).relu_().add_(1).flatten(1)[:, ::2],
    "types": lambda net, x: x.to(torch.float16).to(memory_format=torch.channels_last).float().mean((2, 3)),
    "indices": lambda net, x: x[:, torch.tensor([2, 0])].masked_fill(x[:, :1] > 0, float("-inf")).exp(),
    "normalized": lambda net, x: torch.nn.functional.batch_norm(convolved(net, x), net.mean, net.mean + 1),
    "layers normalized": lambda net, x: torch.nn.functional.layer_norm(x.permute(0, 2, 3, 1), (3,)),
}


@pytest.mark.parametrize("forward", NETWORKS.values(), ids=NETWORKS)
def test_a_network_from_the_file_does_the_same(forward: Callable[[Any, Any], Any], tmp_path: Path) -> None:
    net, path = Net(forward), tmp_path / "net.pt"
    with torch.inference_mode():
        path.write_bytes(store(record(net, EXAMPLE)))
        loaded = load(path)
        for seed in range(2):
            x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))
            expected = net(x)
            assert torch.equal(loaded(x), expected[0] if isinstance(expected, list) else expected)


def test_several_outputs_are_kept_where_they_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    net = Net(lambda net, x: [convolved(net, x), x.mean(dim=1), x * 2])
    with torch.inference_mode():
        path.write_bytes(store(record(net, EXAMPLE, outputs=2)))
        x = torch.randn(SHAPE)
        found = load(path)(x)
        assert len(found) == 2 and all(map(torch.equal, found, net(x)))


REFUSED: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "a value read": (lambda net, x: x * 2 if x.sum().item() > 0 else x, "reads values that depend on the picture"),
    "a constant changed": (lambda net, x: net.mean.add_(x.mean()) + x[:, :1, :1, :4], "changes a constant"),
    "a constant": (lambda net, x: net.mean * 2, "the output does not depend on the picture"),
}


@pytest.mark.parametrize(("forward", "reason"), REFUSED.values(), ids=REFUSED)
def test_another_input_might_take_another_path(forward: Callable[[Any, Any], Any], reason: str) -> None:
    with torch.inference_mode(), pytest.raises(UnrecordableError, match=reason):
        record(Net(forward), EXAMPLE)


def test_the_file_names_nothing_but_operators(tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    node = {"name": "a", "op": "call_function", "target": "os.system", "arguments": [[], {}]}
    torch.save({"constants": {}, "nodes": [node]}, path)
    with pytest.raises((ValueError, AssertionError)):
        load(path)
    torch.save(Net(convolved), path)
    with pytest.raises(Exception, match="Weights only load failed"):
        load(path)


CODE = "x):\n    raise SystemExit\ndef other(y"


@pytest.mark.parametrize(
    ("op", "target", "arguments"),
    [
        ("placeholder", CODE, [[], {}]),
        ("get_attr", "missing", [[], {}]),
        ("get_attr", CODE, [[], {}]),
        ("call_module", "constant_0", [[], {}]),
        ("call_method", "numpy", [[], {}]),
        ("call_function", "aten.from_file.default", [["/etc/passwd"], {}]),
        ("call_function", "aten.add.__init__", [[], {}]),
        ("call_function", "aten.relu.default", [[], {CODE: 1}]),
        ("call_function", "aten.relu.default", [[{"torch": "load"}], {}]),
    ],
)
def test_a_planted_file_brings_no_names_of_its_own(op: str, target: str, arguments: Any, tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    node = {"name": "a", "op": op, "target": target, "arguments": arguments}
    torch.save({"constants": {"constant_0": EXAMPLE}, "nodes": [node]}, path)
    with pytest.raises(ValueError, match="is no recorded network"):
        load(path)


def test_a_changed_file_is_made_again(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with torch.inference_mode():
        first = cached_network("net", (), EXAMPLE, lambda: Net(convolved))
        (file,) = folder.glob("*.pt")
        kept = file.read_bytes()
        file.write_bytes(kept[:-1])
        second = cached_network("net", (), EXAMPLE, lambda: Net(convolved))
        assert torch.equal(first(EXAMPLE), second(EXAMPLE)) and file.read_bytes() == kept
    assert "its SHA-256 is not the one beside it" in caplog.text and folder.stat().st_mode & 0o777 == 0o700


def test_a_network_is_converted_once(folder: Path) -> None:
    made = []

    def build() -> Any:
        made.append(1)
        return Net(convolved)

    with torch.inference_mode():
        first, second = (cached_network("net", ("origin",), EXAMPLE, build) for _ in range(2))
        x = torch.randn(SHAPE)
        assert torch.equal(first(x), second(x)) and len(made) == 1
        (file,) = folder.glob("*.pt")
        assert {path.name for path in folder.iterdir()} == {file.name, f"{file.name}.sha256"}
        cached_network("net", ("another origin",), EXAMPLE, build)
        cached_network("net", ("origin",), torch.zeros((1, *SHAPE[1:])), build)
        cached_network("net", ("origin",), EXAMPLE.double(), lambda: build().double())
    assert len(made) == 4 and len(list(folder.glob("*.pt"))) == 4


def test_a_network_that_cannot_be_recorded_is_converted_each_time(folder: Path) -> None:
    net = Net(REFUSED["a value read"][0])
    with torch.inference_mode():
        built: Any = cached_network("net", (), EXAMPLE, lambda: net)
    assert built is net and not folder.exists()


def test_a_folder_that_cannot_be_written_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SEGMENTATION_ENGINES", str(tmp_path / "file"))
    with torch.inference_mode():
        net = cached_network("net", (), EXAMPLE, lambda: Net(convolved))
        assert net(EXAMPLE).shape == (2, 4, 16, 24)
    assert "the converted network cannot be written" in caplog.text


@pytest.mark.parametrize("form", [{}, {"bytes": True, "last": True, "output": "labels"}, {"batch": 1}], ids=str)
def test_the_second_start_imports_no_converter(
    tmp_path: Path, folder: Path, form: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    need_onnx2torch()
    from segmentation.stages.inference.compiler import onnx_to_torch
    from segmentation.stages.inference.torch import TorchInference

    model = load_model(Config(model=make_form(tmp_path / "m.onnx", **form), labels=("background", "red")))
    pictures = np.random.default_rng(0).random((3, 3, model.height, model.width)).astype(np.float32)
    config = Config(infer="torch", device="cpu", batch_size=2)
    first = TorchInference(model, config)(pictures).masks
    monkeypatch.setattr(onnx_to_torch, "convert", None)
    assert np.array_equal(TorchInference(model, config)(pictures).masks, first)
