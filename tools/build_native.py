"""Builds the native NVDEC decoder's library into the package, which decodes files on a GPU.

    python tools/build_native.py             # in a checkout; an installation does this by itself

It needs a C++17 compiler, and neither a GPU nor CUDA. `CXX` names the compiler, else it is `c++`.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # so that a checkout works without being installed


def main() -> None:
    argparse.ArgumentParser(description="Builds the native NVDEC decoder's library into the package.").parse_args()
    from segmentation.stages.decode.native.build import BUILT, build_library

    try:
        build_library(BUILT, os.environ.get("CXX", "c++"))
    except RuntimeError as exc:
        sys.exit(str(exc))
    print(f"{BUILT}: {BUILT.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
