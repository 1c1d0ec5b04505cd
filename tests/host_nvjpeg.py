"""nvJPEG's functions on the host's memory, with OpenCV in place of the GPU: called as `nvjpeg.library` is."""

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np


class HostNvJpeg:
    """`before` is called with the state's number before each picture, by the thread that encodes it."""

    def __init__(self, before: Callable[[int], None] = lambda state: None) -> None:
        self.before = before
        self.alive: set[int] = set()  # states and parameters that have not been destroyed
        self.page_locked: dict[int, int] = {}  # address and size of what files may be copied to
        self._numbers = itertools.count(1)
        self._quality: dict[int, int] = {}  # by parameters
        self._files: dict[int, bytes] = {}  # by state

    def nvjpegGetProperty(self, number: int, value: Any) -> None:
        value._obj.value = number

    def nvjpegCreateSimple(self, handle: Any) -> None:
        handle._obj.value = next(self._numbers)

    def nvjpegEncoderStateCreate(self, handle: Any, pointer: Any, stream: Any) -> None:
        assert handle and pointer._obj.value is None
        pointer._obj.value = next(self._numbers)
        self.alive.add(pointer._obj.value)

    nvjpegEncoderParamsCreate = nvjpegEncoderStateCreate

    def nvjpegEncoderStateDestroy(self, pointer: Any) -> None:
        self.alive.remove(pointer.value)

    nvjpegEncoderParamsDestroy = nvjpegEncoderStateDestroy

    def nvjpegEncoderParamsSetQuality(self, params: Any, quality: int, stream: Any) -> None:
        self._quality[params.value] = quality

    def nvjpegEncoderParamsSetOptimizedHuffman(self, params: Any, optimized: int, stream: Any) -> None:
        assert not optimized

    def nvjpegEncoderParamsSetSamplingFactors(self, params: Any, subsampling: int, stream: Any) -> None:
        assert subsampling == 0  # 4:4:4

    def nvjpegEncodeImage(
        self, handle: Any, state: Any, params: Any, image: Any, form: int, width: int, height: int, stream: Any
    ) -> None:
        assert self.alive >= {state.value, params.value} and form == 3
        self.before(state.value)
        planes = [
            np.ctypeslib.as_array((ctypes.c_uint8 * (pitch * height)).from_address(address))
            for address, pitch in zip(image._obj.channel[:3], image._obj.pitch[:3], strict=True)
        ]
        bgr = np.stack([plane.reshape(height, -1)[:, :width] for plane in reversed(planes)], -1)
        options = [cv2.IMWRITE_JPEG_QUALITY, self._quality[params.value], cv2.IMWRITE_JPEG_SAMPLING_FACTOR, 0x111111]
        self._files[state.value] = cv2.imencode(".jpg", bgr, options)[1].tobytes()

    def nvjpegEncodeRetrieveBitstream(
        self, handle: Any, state: Any, data: int | None, length: Any, stream: Any
    ) -> None:
        file = self._files[state.value]
        if data is not None:
            assert len(file) <= length._obj.value <= self.page_locked[data]
            ctypes.memmove(data, file, len(file))
        length._obj.value = len(file)
