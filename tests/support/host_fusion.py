"""Fused networks on the CPU: `stages/inference/compiler/conv_fusion.py` calls functions that know none."""

from typing import Any

import pytest
import torch
from host_kernels import HostKernels

from segmentation.frames import FORMATS
from segmentation.frames.orientation import UPRIGHT
from segmentation.gpu.kernels import KernelSource
from segmentation.stages.inference.compiler import conv_fusion, depthwise, separable, stem
from segmentation.stages.inference.compiler.network_kernels import (
    DEPTHWISE,
    SEPARABLE,
    STEM,
    LayerForm,
    SeparableForm,
)


def run_fused_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for cuDNN's two functions, which know no CPU, and our kernels compiled for the host."""

    def kernels(source: KernelSource) -> Any:
        return HostKernels(source, FORMATS["yuv420p"], UPRIGHT)

    def of_each_channel(x: Any, taps: Any, bias: Any, form: LayerForm, *how: Any) -> Any:
        return depthwise.launched(kernels(DEPTHWISE[form]), x, taps, bias, form, *how)

    def of_the_picture(*given: Any) -> Any:
        return stem.launched(kernels(STEM), *given)

    def of_both(*given: Any) -> Any:
        form: SeparableForm = given[5]
        return separable.launched(kernels(SEPARABLE[form]), *given)

    monkeypatch.setattr(conv_fusion, "depthwise", of_each_channel)
    monkeypatch.setattr(conv_fusion, "separable", of_both)
    monkeypatch.setattr(conv_fusion, "stem", of_the_picture)
    monkeypatch.setattr(conv_fusion, "_OURS", (*conv_fusion._OURS, of_each_channel, of_both, of_the_picture))
    monkeypatch.setattr(torch, "cudnn_convolution_relu", lambda x, w, *how: torch.conv2d(x, w, *how).relu())
    monkeypatch.setattr(
        torch, "cudnn_convolution_add_relu", lambda x, w, z, alpha, *how: (torch.conv2d(x, w, *how) + alpha * z).relu()
    )
