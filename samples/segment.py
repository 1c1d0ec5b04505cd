"""Blurs the background of a video: python samples/segment.py [INPUT [OUTPUT]]"""

import sys
from pathlib import Path

from segmentation import segment

source = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("astronaut.mp4")
target = sys.argv[2] if len(sys.argv) > 2 else None  # None: beside the input, as NAME.segmented.mp4
report = segment(source, target, effect="blur:25", overwrite=True)
print(f"{report.output}: {report.frames} frames at {report.fps:.0f} fps")
