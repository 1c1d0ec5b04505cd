"""Makes every process that has this folder on its PYTHONPATH encode nothing, workers too: see `no_encoder.py`."""

import sys
from pathlib import Path

from segmentation.pipeline.plan import IMPLEMENTATIONS

sys.path.append(str(Path(__file__).resolve().parents[1]))
IMPLEMENTATIONS["encode"] |= {"null": "no_encoder:NoEncoder", "x264-segments": "no_encoder:NoSegments"}
