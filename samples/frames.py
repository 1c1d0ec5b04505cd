"""Prints how much of each frame is kept: python samples/frames.py [VIDEO]"""

import sys
from contextlib import closing
from pathlib import Path

from segmentation import Segmenter

source = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("astronaut.mp4")
with Segmenter() as segmenter, closing(segmenter.frames(source, duration=1)) as frames:
    for frame in frames:
        height, width, _ = frame.image.shape  # uint8 RGB, converted when it is asked for
        kept = (frame.mask > 0.5).mean()  # the mask is (height, width) float32
        print(f"{float(frame.time):.3f} s: {100 * kept:.0f} % of {width}x{height}")
