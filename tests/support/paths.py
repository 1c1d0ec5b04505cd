"""Where the tests find what they read."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"  # real videos and models, beside the repository; may be missing
DATA = ROOT / "tests" / "data"
SAMPLE = ROOT / "samples" / "astronaut.mp4"
