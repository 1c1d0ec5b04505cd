"""The networks that `segmentation-models` fetches: where each is, what it is, and the options that it needs.

Only networks stand here whose very file was run: its SHA-256 is that of the file.
"""

from dataclasses import dataclass

_GITHUB = "https://raw.githubusercontent.com"


@dataclass(frozen=True, slots=True)
class Network:
    """A file that others have published, and how to use it."""

    address: str
    sha256: str  # in hexadecimal digits
    size: int  # bytes
    license: str
    origin: str  # the page of its authors
    finds: str
    options: str  # of `segmentation`, behind the input


NETWORKS = {
    "faces-yunet": Network(
        address=f"{_GITHUB}/ShiqiYu/libfacedetection.train/master/onnx/yunet_n_dynamic.onnx",
        sha256="104ee26c71d5c270ce79a6b3dced91c91013260d29a6bf18f9296c5b8c4c2b12",
        size=322_906,
        license="Apache-2.0",
        origin="https://github.com/ShiqiYu/libfacedetection.train",
        finds="boxes of faces",
        options="--then face=faces-yunet.onnx@person --effect blur@face",
    ),
    "faces-masked-rfb640": Network(
        address=f"{_GITHUB}/Linzaer/Ultra-Light-Fast-Generic-Face-Detector-1MB/dffdddda9794a50607cba8f318507a28c1c27cab"
        "/masked_face/pretrained/RFB-640-masked_face-v2.onnx",
        sha256="27ca3e5985f722e91efea7993f625716de627303c4bafb40bb26f456286beca8",
        size=1_566_571,
        license="MIT",
        origin="https://github.com/Linzaer/Ultra-Light-Fast-Generic-Face-Detector-1MB",
        finds="boxes of faces, with and without a mask",
        options="--model faces-masked-rfb640.onnx --invert",
    ),
    "prisma-portrait": Network(
        address=f"{_GITHUB}/anilsathyan7/Portrait-Segmentation/680f09df2ed6d11e2d10bdf62a45c4e79a15cfb6"
        "/models/prisma_seg/prisma_nchw.onnx",
        sha256="cc7357e7300ed5e41ddb73b51910eed900b4dbbe255305011aeb088f6ddc8bd4",
        size=3_730_406,
        license="MIT",
        origin="https://github.com/anilsathyan7/Portrait-Segmentation",
        finds="people in portraits",
        options="--model prisma-portrait.onnx",
    ),
}
