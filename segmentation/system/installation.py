"""Where this package comes from, for advice on how to install its extras."""

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

_NAME = "video-segmentation"


def install(extra: str = "") -> str:
    """Returns the command that adds an extra to this installation, or what every installation has.

    The package is in no index.
    """
    extra = extra and f"[{extra}]"
    checkout = Path(__file__).parents[2]
    if (checkout / "pyproject.toml").is_file():
        return f"pip install '{checkout}{extra}'"
    try:
        origin = json.loads(distribution(_NAME).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    url = origin.get("url", "git+URL")
    source = f"{origin['vcs_info']['vcs']}+{url}" if "vcs_info" in origin else url
    return f"pip install '{_NAME}{extra} @ {source}'"
