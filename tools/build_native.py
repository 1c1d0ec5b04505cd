"""Builds the native NVDEC decoder's library into the package, for `--decode nvdec-native`.

    python tools/build_native.py             # then install the package, or build the wheel; without this it works too

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
    from segmentation.errors import BackendError
    from segmentation.stages.decode.native.library import BUILT, build_library

    try:
        build_library(BUILT, os.environ.get("CXX", "c++"))
    except BackendError as exc:
        sys.exit(str(exc))
    print(f"{BUILT}: {BUILT.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
