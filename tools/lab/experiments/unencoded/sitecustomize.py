"""Makes every process that has this folder on its PYTHONPATH encode nothing, workers too: see `no_encoder.py`."""

import sys
from pathlib import Path

from segmentation.pipeline.planning.implementations import IMPLEMENTATIONS, Implementation

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))
IMPLEMENTATIONS["encode"] |= {
    "null": Implementation("no_encoder:NoEncoder"),
    "x264-segments": Implementation("no_encoder:NoSegments"),
}
