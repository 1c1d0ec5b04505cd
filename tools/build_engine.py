"""Builds a TensorRT engine from an ONNX file, the built-in model or a torchvision name; see docs/engines.md.

    python tools/build_engine.py model.onnx -v

Installed, it is `segmentation-build`.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # so that a checkout works without being installed

from segmentation.cli.build_engine import main

sys.exit(main())
