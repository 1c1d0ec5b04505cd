"""What `workers.py` has measured, as a table in Markdown."""

import json
from pathlib import Path
from typing import Any

from ladder_results import markdown

_HEAD = ("run", "fps", "CPU seconds for 1,000 frames", "frames", "network saw", "begun again", "PSNR, mean / least")


def worker_blocks(folder: Path) -> dict[str, str]:
    """The table that stands in a document, of the figures in `folder`, by its name."""
    measured = json.loads((folder / "workers.json").read_text(encoding="utf-8"))
    kinds, machine = measured["kinds"], measured["hardware"]
    turns = f"medians of {measured['repeats']} runs" if measured["repeats"] > 1 else "one run"
    about = (
        f"{machine['cores']} cores of {machine['cpu']}, {kinds['ordinary']['frames']:,} frames of {measured['size']}, "
        f"{turns} after a warm-up, load average {measured['load_average'][1]:g} "
        f"([workers.json](results/workers.json), {measured['date'][:10]}, {measured['versions']['git']}):"
    )
    return {"workers": f"{about}\n\n{markdown(_HEAD, [_row(name, kind) for name, kind in kinds.items()])}"}


def _row(name: str, kind: dict[str, Any]) -> list[str]:
    fps, cpu = kind["fps"]["median"], kind["cpu_seconds_per_1000_frames"]["median"]
    alike = kind["compared_with_ordinary"]
    psnr = f"{alike['psnr_mean']:.1f} / {alike['psnr_min']:.1f} dB" if alike["frames_that_differ"] else "same pictures"
    return [
        f"`{name}`" if name.startswith("local") else name,
        f"{fps:.1f}",
        f"{cpu:.1f}",
        f"{kind['frames']:,}",
        ", ".join(f"{seen:,}" for seen in sorted(set(kind.get("inferred", ())))),
        ", ".join(map(str, sorted(set(kind.get("redone", ()))))) if name.startswith("local") else "",
        psnr,
    ]
