"""Runs `ClipLoader(device="cuda")` on the CPU: FFmpeg decodes in NVDEC's place, and the kernel runs on the host.

Threads, sessions, packets and memory of clips are those of a GPU, streams are not: tests marked `gpu` show these.
"""

from functools import cache
from typing import Any

import pytest
import torch
from host_nvdec import ENGINES, NvdecGpu, imported_anew

from segmentation.clips import host_clips as maker
from segmentation.errors import LacksEngine
from segmentation.stages.decode.nvdec_support import NVDEC_CODECS

_MODULE = "segmentation.clips.cuda"


@cache
def _module() -> Any:
    cuda = imported_anew("segmentation.gpu.context", "segmentation.stages.decode.nvdec_session", _MODULE)

    class HostCudaMaker(cuda.CudaClipBuilder):  # type: ignore[misc,name-defined]
        """Hands its clips over without streams."""

        def handed_over(self, joined: Any) -> torch.Tensor:
            return joined.array  # type: ignore[no-any-return]

        def _event(self) -> None: ...

    cuda.Gpu = lambda index, priority: NvdecGpu()
    cuda.CudaClipBuilder = HostCudaMaker
    return cuda


def _engines_for(index: int, codec: str, pix_fmt: str, size: tuple[int, int]) -> int:
    if codec not in NVDEC_CODECS or any(side % 2 for side in size) or (pix_fmt == "yuv420p10le" and codec == "h264"):
        raise LacksEngine(f"NVDEC has no decoder for {codec} {pix_fmt} of {size[0]}x{size[1]}")
    return ENGINES


def stand_in(patch: pytest.MonkeyPatch) -> Any:
    """Puts the stand-ins in the place of the GPU for loaders to come. Returns their `segmentation.clips.cuda`.

    Where PyTorch finds a GPU it would look at the stand-ins' streams, so the test is skipped there.
    """
    if torch.cuda.is_available():
        pytest.skip("stands in for a GPU, and there is one")
    module = _module()
    patch.setattr(maker, "device_index", lambda config: 0)
    patch.setattr(maker, "require_video_libraries", lambda: None)
    patch.setattr(maker, "require_torch", lambda: None)
    patch.setattr(maker, "engines_for", _engines_for)
    patch.setattr(maker, "loaded", lambda name, attribute: getattr(module, attribute))
    return module
