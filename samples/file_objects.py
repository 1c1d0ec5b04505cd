"""Segments a video that is in memory, and leaves the result there: python samples/file_objects.py [VIDEO]"""

import io
import sys
from pathlib import Path

from segmentation import segment

source = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("astronaut.mp4")
data = Path(source).read_bytes()  # such as the body of a request
result = io.BytesIO()  # anything with `write`; it is never sought
report = segment(data, result, format="matroska", duration=1)
print(f"{report.frames} frames, {len(result.getvalue())} bytes of Matroska")
