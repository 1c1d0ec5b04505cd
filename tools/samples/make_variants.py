"""Makes small videos of all kinds that a decoder may meet, for tools/quality/compare_sides.py.

    python tools/samples/make_variants.py FOLDER

The names say what the files are: codec, group of pictures, depth, size, times, container, damage. Each is checked by
FFmpeg for being that. The pictures are those of samples/astronaut.mp4. The same versions of the libraries make the same
files. Encoders that the installed PyAV lacks are named, and their files left out.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("SVT_LOG", "1")  # else the AV1 encoder prints its settings; read when PyAV loads it

import av
import av.error
from variant_damage import DAMAGE
from variant_edits import EDITS
from variant_facts import facts
from variant_forms import FORMS, Variant
from variant_written import WRITTEN

VARIANTS = [*FORMS, *EDITS, *WRITTEN, *DAMAGE]


def make(variant: Variant, folder: Path) -> str:
    """Makes a file. Returns why there is none, or what is wrong with the file; else nothing."""
    path = folder / variant.name
    try:
        variant.make(path)
    except (av.error.FFmpegError, ValueError) as exc:  # PyAV's for unknown codecs, and for options that one refuses
        path.unlink(missing_ok=True)
        return f"left out: {' '.join(str(exc).split())}"
    finally:
        for part in folder.glob(f".part*-{path.stem}.*"):
            part.unlink()
    found = facts(path)
    return "" if variant.holds(found) else f"is not what its name says: {found}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Makes small videos of all kinds that a decoder may meet.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", metavar="TEXT", help="make files alone whose names hold this text")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    wrong = made = size = 0
    for variant in VARIANTS:
        if options.only not in variant.name:
            continue
        fault = make(variant, options.folder)
        if fault:
            print(f"{variant.name}: {fault}")
        path = options.folder / variant.name
        if path.exists():
            made += 1
            size += path.stat().st_size
        wrong += fault.startswith("is not")
    print(f"{made} videos, {size / 1e6:.1f} MB")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
