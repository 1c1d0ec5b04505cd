"""Where what was built is kept."""

import os
from pathlib import Path

import platformdirs


def engine_folder() -> Path:
    """`SEGMENTATION_ENGINES`, else `engines/` of a checkout, else the user's cache folder."""
    if chosen := os.environ.get("SEGMENTATION_ENGINES"):
        return Path(chosen)
    checkout = Path(__file__).parent.parent / "engines"
    if (checkout / "README.md").is_file() and os.access(checkout, os.W_OK):
        return checkout
    return platformdirs.user_cache_path("video-segmentation") / "engines"
