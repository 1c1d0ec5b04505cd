"""Arrays of other libraries as NumPy's."""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmentation.errors import one_line


def on_host(array: Any) -> NDArray[Any]:
    """Returns an array, or a copy of a tensor on whatever device, as an array of NumPy.

    Takes NumPy arrays, Pillow's pictures, PyTorch's tensors, and arrays on the host that speak DLPack.
    Raises `TypeError` for the rest.
    """
    torch = sys.modules.get("torch")  # whoever has a tensor has imported it
    if isinstance(array, np.ndarray):
        return array
    try:
        if torch and isinstance(array, torch.Tensor):
            array = array.detach().cpu()
            array = array.float() if array.dtype == torch.bfloat16 else array  # which NumPy lacks
        elif hasattr(array, "__array_interface__"):  # Pillow's pictures have no DLPack
            return np.asarray(array)
        return np.from_dlpack(array)
    except (AttributeError, TypeError, ValueError, RuntimeError, BufferError) as exc:
        kind = type(array).__name__
        raise TypeError(f"a {kind} is no array on the host and no tensor ({one_line(exc)})") from exc
