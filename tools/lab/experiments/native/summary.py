"""Prints the results of the sections, shortly: at most some 40 lines."""

import json
from typing import Any

from common import OUT


def load(name: str) -> dict[str, list[Any]]:
    try:
        found: dict[str, list[Any]] = json.loads((OUT / f"native-{name}.json").read_text(encoding="utf-8"))
        return found
    except (OSError, ValueError):
        return {}


def main() -> None:
    ways, files = load("parity-ways"), load("parity")
    for name, found in ways.items():
        if not found[-1].get("equal"):
            print("WAY WRONG:", name, str(found[-1])[:300])
    print("ways right:", [name for name, found in ways.items() if found[-1].get("equal")])
    wrong = {name: found[-1] for name, found in files.items() if not found[-1].get("equal")}
    refused = sum("today" in found[-1] and name not in wrong for name, found in files.items())
    frames = sum(found[-1].get("frames", 0) for name, found in files.items() if name not in wrong)
    print(
        f"files: {len(files) - len(wrong)} of {len(files)} equal ({frames} frames), {refused} of them refused by both"
    )
    for name, value in list(wrong.items())[:8]:
        print("  differs:", name, str(value)[:240])
    for part in ("alone", "one,clips,files,command"):
        for name, rounds in load(part).items():
            if name.startswith("(first)") and "error" not in rounds[-1]:
                continue
            if errors := [value["error"] for value in rounds if "error" in value]:
                print(f"{name}: ERROR {errors[0][:200]}")
            good = [value for value in rounds if "fps" in value]
            if good:
                rest = {
                    key: good[-1][key] for key in ("calls", "ms_in", "late", "threads", "stages") if key in good[-1]
                }
                print(f"{name}: {[v['fps'] for v in good]} fps, CPU {[v['cpu'] for v in good]} {str(rest)[:210]}")


main()
