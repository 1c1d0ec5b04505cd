"""The planes of decoded frames."""

from pathlib import Path

import numpy as np
import pytest
from videos import pictures

from segmentation import segment


@pytest.mark.parametrize("codec", ["h264", "hevc", "ffv1"])
@pytest.mark.parametrize("chroma", ["420", "444"])
def test_samples_above_their_depth_are_bounded(tmp_path: Path, codec: str, chroma: str) -> None:
    """Encoders would end the process at them."""
    source, target = tmp_path / "a.y4m", tmp_path / "b.mkv"
    samples = 64 * 64 * 3 // (2 if chroma == "420" else 1)
    frame = b"FRAME\n" + np.random.default_rng(1).bytes(2 * samples)
    source.write_bytes(f"YUV4MPEG2 W64 H64 F25:1 Ip C{chroma}p10\n".encode() + 2 * frame)
    done = segment(source, target, codec=codec, mode="baseline", infer="onnxruntime", effect="blur:0.01")
    shown = list(pictures(target))
    assert done.frames == len(shown) == 2 and max(int(plane.max()) for plane in shown[0].planes) <= 1023
