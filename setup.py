"""Builds the native NVDEC decoder into the package, where there is a C++ compiler. All else is in pyproject.toml."""

import os
import runpy
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

NATIVE = Path("segmentation", "stages", "decode", "native")


class BuildWithNative(build_py):
    """Leaves the library out where it can't be compiled: PyNvVideoCodec decodes in its place."""

    def run(self) -> None:
        super().run()
        build = runpy.run_path(str(NATIVE / "build.py"))
        built = build["BUILT"] if self.editable_mode else Path(self.build_lib, NATIVE, "built", build["BUILT"].name)
        if sys.platform == "linux":
            try:
                build["build_library"](built, os.environ.get("CXX", "c++"))
            except RuntimeError as exc:
                self.warn(f"{exc}; --decode nvdec-native will be missing")


setup(cmdclass={"build_py": BuildWithNative})
