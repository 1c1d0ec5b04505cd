"""The option `--version`: the program and what it runs on, a line each."""

import argparse
import platform
from collections.abc import Sequence
from importlib import metadata

import av

import segmentation
from segmentation.cli.console import put_out

# Names of distributions, as pip shows them. Several may bring one library, such as ONNX Runtime.
_PACKAGES = (
    "av",
    "numpy",
    "opencv-python-headless",
    "onnxruntime",
    "onnxruntime-gpu",
    "torch",
    "torchvision",
    "cvcuda-cu13",
    "PyNvVideoCodec",
    "cuda-core",
    "tensorrt-cu13",
    "tensorrt-rtx",
    "onnx",
)


class PrintVersions(argparse.Action):
    """Prints the versions and ends the program."""

    def __init__(self, option_strings: Sequence[str], dest: str, **others: str) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, help=others["help"])

    def __call__(self, parser: argparse.ArgumentParser, *arguments: object) -> None:
        put_out("\n".join(versions()))
        parser.exit()


def versions() -> list[str]:
    """Returns name and version of the program, of Python and FFmpeg, and of each library that is installed."""
    found = [
        f"segmentation {segmentation.__version__}",
        f"Python {platform.python_version()}",
        f"FFmpeg {av.ffmpeg_version_info}",
    ]
    for name in _PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return found
