"""Recorded networks of plain convolutions in FP16: what they find stays, and heads of a few channels are one."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from converter import need_onnx2torch

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("cuda.core", reason="cuda-core is not installed")

from host_fusion import run_fused_on_the_host  # noqa: E402

from segmentation import Config  # noqa: E402
from segmentation.models.graph.onnx_graph import prepare  # noqa: E402
from segmentation.models.model import detection_of, load_model  # noqa: E402
from segmentation.models.sample_picture import picture_inputs  # noqa: E402
from segmentation.stages.inference.compiler import conv_fusion  # noqa: E402
from segmentation.stages.inference.compiler.conv_fusion import for_mirrored, fuse, kernel_sources, sum_with_doubled  # noqa: E402
from segmentation.stages.inference.compiler.fp16_nodes import in_fp16  # noqa: E402
from segmentation.stages.inference.compiler.fx_nodes import CONVERSION, CONVOLUTION, POOL, SUM, UPSAMPLING  # noqa: E402
from segmentation.stages.inference.compiler.network_kernels import SEPARABLE, STEM  # noqa: E402
from segmentation.stages.inference.compiler.onnx_to_torch import convert  # noqa: E402
from segmentation.stages.inference.compiler.pointwise import pointwise  # noqa: E402
from segmentation.stages.inference.compiler.recorded import record  # noqa: E402
from segmentation.stages.inference.instances import fixed_batch  # noqa: E402

SHAPE = 2, 3, 32, 48
OF_EACH = {"padding": 1, "groups": 16}


class Boxes(torch.nn.Module):
    """A network as YuNet is: pooled convolutions, two sizes that are added, and heads for scores and for boxes."""

    def __init__(self, scale: float = 1.0, heads: tuple[int, ...] = (1, 4, 1)) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first = torch.nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.point, self.depth = torch.nn.Conv2d(16, 16, 1), torch.nn.Conv2d(16, 16, 3, **OF_EACH)
        pairs = ((torch.nn.Conv2d(16, n, 1), torch.nn.Conv2d(n, n, 3, padding=1, groups=n)) for n in heads)
        self.below = torch.nn.Conv2d(16, 16, 1)
        self.heads = torch.nn.ModuleList(torch.nn.Sequential(*pair) for pair in pairs)
        self.first.weight.data *= scale
        self.eval()

    def forward(self, x: Any) -> list[Any]:
        x = torch.relu(self.depth(self.point(torch.relu(self.first(x)))))
        x = torch.max_pool2d(x, [2, 2], [2, 2])
        below = torch.max_pool2d(self.below(x), [2, 2], [2, 2])
        x = torch.nn.functional.interpolate(below, scale_factor=2.0, mode="nearest") + x
        found = [head(x).permute(0, 2, 3, 1).reshape(len(x), -1, head[0].out_channels) for head in self.heads]
        return [found[0].sigmoid(), *found[1:]]


def recorded(net: Any) -> Any:
    with torch.inference_mode():
        return record(net, torch.zeros(SHAPE), outputs=3)


def calls(net: Any) -> Counter[Any]:
    return Counter(node.target for node in net.graph.nodes if node.op == "call_function")


@pytest.mark.parametrize("heads", [(1, 4, 1), (8, 4, 1), (7, 6, 5)], ids=str)
def test_outputs_stay_and_narrow_heads_are_one(heads: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    run_fused_on_the_host(monkeypatch)
    net, pictures = recorded(Boxes(heads=heads)), torch.rand(SHAPE)
    half = in_fp16(net)
    with torch.inference_mode():
        expected, plain = net(pictures), half(pictures)
        fuse(half)
        fused = half(pictures)
    for wanted, *found in zip(expected, plain, fused, strict=True):
        assert all(one.dtype is torch.float16 and one.shape == wanted.shape for one in found)
        for one in found:
            torch.testing.assert_close(one.float(), wanted, rtol=5e-3, atol=5e-3)
    wide = sum(count % 8 == 0 for count in heads)
    kinds = calls(half)
    assert kinds[conv_fusion.stem] == 1 and not kinds[CONVERSION] and not kinds[CONVOLUTION]
    assert kinds[conv_fusion.separable] == 1 and kinds[pointwise] - 1 == kinds[conv_fusion.depthwise] == wide + 1
    assert kinds[POOL] == kinds[sum_with_doubled] == 1 and not kinds[UPSAMPLING] and not kinds[SUM]


def test_all_pairs_of_the_face_network_are_one_kernel_each(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    need_onnx2torch()
    run_fused_on_the_host(monkeypatch)
    model = replace(load_model(Config(anonymize="faces")), height=64, width=96)
    pictures = torch.from_numpy(picture_inputs(model)[:1])
    with torch.inference_mode():
        net = convert(model.path, torch.device("cpu"), prepare(model, 1))
        net = record(net, pictures, outputs=len(detection_of(model).outputs))
        half = in_fp16(net)
        fuse(half)
        for wanted, found in zip(net(pictures), half(pictures), strict=True):
            torch.testing.assert_close(found.float(), wanted, rtol=0.02, atol=0.02)
        mirrored = for_mirrored(half)
        assert mirrored is not None and for_mirrored(net) is None
        for wanted, found in zip(half(pictures.flip(3)), mirrored(pictures), strict=True):
            assert torch.equal(found, wanted)
    assert set(kernel_sources(half)) == {STEM, *SEPARABLE.values()}
    kinds = calls(half)
    assert kinds[conv_fusion.separable] == 20 and kinds[conv_fusion.stem] == 1
    assert not kinds[pointwise] and not kinds[conv_fusion.depthwise] and not kinds[CONVOLUTION]


def test_a_network_that_does_more_stays_as_it_is() -> None:
    class Softmax(Boxes):
        def forward(self, x: Any) -> list[Any]:
            scores, *rest = super().forward(x)
            return [scores.softmax(dim=1), *rest]

    assert in_fp16(recorded(Softmax())) is None


@pytest.mark.parametrize("scale, same", [(1.0, True), (3e5, False)])
def test_fp16_is_taken_where_it_agrees_on_a_photograph(
    scale: float, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond 65504, the most that FP16 holds, nothing agrees."""
    run_fused_on_the_host(monkeypatch)
    net = recorded(Boxes(scale))
    model = replace(load_model(Config(anonymize="faces")), height=SHAPE[2], width=SHAPE[3], mean=0.0, std=1.0)
    with torch.inference_mode():
        assert fixed_batch._agree(net, in_fp16(net), model, torch.zeros(SHAPE)) is same
