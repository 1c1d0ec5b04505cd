"""Where tests of the masks' kernels run: on the host (host_kernels), and on a GPU."""

from typing import Any

import pytest

SIDES = ["host", pytest.param("gpu", marks=pytest.mark.gpu)]


def gpu_of(side: str) -> Any:
    """Returns the GPU that all tests share, or the host in its place."""
    if side == "gpu":
        from stages import gpu

        return gpu()
    from host_kernels import HostGpu

    return HostGpu()
