"""Fused networks on the CPU: `stages/inference/compiler/conv_fusion.py` calls functions that know none."""

from typing import Any

import pytest
import torch
from host_kernels import HostKernels

from segmentation.frames import FORMATS
from segmentation.frames.orientation import UPRIGHT
from segmentation.stages.inference.compiler import conv_fusion
from segmentation.stages.inference.compiler.depthwise import launched
from segmentation.stages.inference.compiler.network_kernels import DEPTHWISE, Form


def run_fused_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for cuDNN's two functions, which know no CPU, and our kernel compiled for the host."""

    def on_host(x: Any, taps: Any, bias: Any, form: Form, *how: Any) -> Any:
        kernels: Any = HostKernels(DEPTHWISE[form], FORMATS["yuv420p"], UPRIGHT)
        return launched(kernels, x, taps, bias, form, *how)

    monkeypatch.setattr(conv_fusion, "depthwise", on_host)
    monkeypatch.setattr(conv_fusion, "_OURS", (*conv_fusion._OURS, conv_fusion.depthwise))
    monkeypatch.setattr(torch, "cudnn_convolution_relu", lambda x, w, *how: torch.conv2d(x, w, *how).relu())
    monkeypatch.setattr(
        torch, "cudnn_convolution_add_relu", lambda x, w, z, alpha, *how: (torch.conv2d(x, w, *how) + alpha * z).relu()
    )
