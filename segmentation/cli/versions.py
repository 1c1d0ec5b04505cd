"""The options `--version` and `--licenses`: the program and what it runs on, a line each."""

import argparse
import platform
from collections.abc import Callable, Sequence
from importlib import metadata

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


class PrintLines(argparse.Action):
    """Prints the lines that `const` returns, and ends the program."""

    const: Callable[[], list[str]]

    def __init__(self, option_strings: Sequence[str], dest: str, *, const: Callable[[], list[str]], help: str) -> None:
        none = argparse.SUPPRESS
        super().__init__(option_strings, none, nargs=0, const=const, default=none, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *arguments: object) -> None:
        put_out("\n".join(self.const()))
        parser.exit()


def versions() -> list[str]:
    """Returns name and version of the program, of Python and FFmpeg, and of each library that is installed."""
    import av  # which the other options of this kind do without

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
