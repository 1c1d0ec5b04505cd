"""Raw videos of chance samples, sizes and rates: each becomes a video or an error in words, and no process ends."""

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

COUNT = 16  # videos of a seed
CHROMA = {"420": (2, 2), "422": (2, 1), "444": (1, 1)}
OUTPUTS = [
    ("a.mp4", {}),
    ("a.mkv", {"codec": "hevc"}),
    ("a.mp4", {"codec": "av1"}),
    ("a.mkv", {"codec": "ffv1"}),
    ("a.mov", {"effect": "cutout"}),
    ("a.webm", {"effect": "cutout"}),
    ("a.gif", {}),
    ("a%d.png", {"effect": "cutout"}),
]
RUN = """
import sys
import numpy as np
from segmentation import SegmentationError, Segmenter
network = lambda pictures: (pictures[:, 0] > pictures[:, 1]).astype(np.float32)
with Segmenter(device="cpu", model=network, input_size=(32, 32)) as segmenter:
    for source, target, options in eval(sys.argv[1]):
        print(source, target, options, file=sys.stderr, flush=True)
        try:
            print(segmenter.run(source, target, overwrite=True, **options).frames)
        except SegmentationError as exc:
            print(exc)
"""


def write(path: Path, rng: random.Random) -> None:
    """Writes two frames of random samples, of which those of 10 and 12 bits exceed their depth."""
    chroma, bits = rng.choice(list(CHROMA)), rng.choice([8, 10, 12])
    width, height = (rng.choice([1, 2, 5, 8, 16, 17, 24, 31, 64, 66, 130]) for _ in range(2))
    across, down = CHROMA[chroma]
    samples = width * height + 2 * -(-width // across) * -(-height // down)
    rate = rng.choice(["25:1", "240:1", "1:1000", "1000000:1"])
    head = f"YUV4MPEG2 W{width} H{height} F{rate} Ip C{chroma}{'' if bits == 8 else f'p{bits}'}\n"
    frame = b"FRAME\n" + np.random.default_rng(rng.randrange(1 << 32)).bytes(samples * (1 if bits == 8 else 2))
    path.write_bytes(head.encode() + 2 * frame)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
def test_no_process_ends(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    runs = []
    for number in range(COUNT):
        source = tmp_path / f"{number}.y4m"
        write(source, rng)
        name, options = OUTPUTS[number % len(OUTPUTS)]
        runs.append((str(source), str(tmp_path / f"{number}{name}"), options))
    done = subprocess.run([sys.executable, "-c", RUN, repr(runs)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-500:]
    assert len(done.stdout.splitlines()) == COUNT and "Invalid argument" not in done.stdout, done.stdout
