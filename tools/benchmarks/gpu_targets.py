"""What follows from measured figures: how near each comes to its limit, and whether what was aimed at is reached."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Result = dict[str, Any]

NOTHING_OR_JPEG = ("null", "jpeg")
X264 = ("x264 ultrafast", "x264 default")
_SAMPLES = {"null": "sample, null", "x264 ultrafast": "sample, x264 ultrafast"}  # what each is compared with


@dataclass(frozen=True)
class Target:
    """`figure` of the rows called one of `names` is to be `bound` at least, or at the most."""

    title: str
    figure: str
    names: tuple[str, ...]
    bound: float
    at_most: bool = False


TARGETS = (
    Target("nothing encoded or JPEG, part of NVDEC's limit", "of_limit", NOTHING_OR_JPEG, 0.9),
    Target("x264, part of the lower of NVDEC's and its own limit", "of_limit", X264, 0.85),
    Target("x264 ultrafast, times the typical workflow", "times_typical", ("x264 ultrafast",), 50),
    Target("x264 ultrafast, times the sample", "times_sample", ("x264 ultrafast",), 10),
    Target("GPU memory at the peak, GB", "gpu_gb", (*NOTHING_OR_JPEG, *X264), 4, at_most=True),
    Target("a cold process's first frames, finished, seconds", "cold_seconds", ("cold start",), 3, at_most=True),
)


def derive(rows: list[Result]) -> list[Result]:
    """The pipeline's rows against their limits and the peers.

    `of_limit` compares the rates of further frames, `of_limit_whole` whole runs. Ratios whose other side was not
    measured are left out.
    """
    derived = []
    for row in rows:
        if row["name"] not in NOTHING_OR_JPEG + X264:
            continue
        result = {"name": row["name"], "clip": row["clip"], "model": row["model"]}
        for figure, rate in (("of_limit", "steady_fps"), ("of_limit_whole", "fps")):
            limits = _limits(rows, row, rate)
            if limits is not None:
                result[figure] = round(row[rate]["median"] / limits, 3)
        for figure, peer in (("times_typical", "typical workflow"), ("times_sample", _SAMPLES.get(row["name"]))):
            other = _find(rows, peer, model=row["model"])
            if other:
                result[figure] = round(row["fps"]["median"] / other[0]["fps"]["median"], 1)
        result["gpu_gb"] = round(row["gpu_memory_mib"] * 2**20 / 1e9, 2)
        derived.append(result)
    return derived


def judge(derived: list[Result], cold_start: Result | None) -> list[Result]:
    """Each target with the figure that is furthest from it, whose that is, and whether it is met."""
    figures = list(derived)
    if cold_start is not None:
        figures.append({"name": "cold start", "cold_seconds": cold_start["seconds"]["median"]})
    judged = []
    for target in TARGETS:
        found = [row for row in figures if row["name"] in target.names and target.figure in row]
        if not found:
            judged.append({"target": target.title, "bound": target.bound, "met": None})
            continue
        worst = (max if target.at_most else min)(found, key=lambda row, of=target.figure: row[of])
        value = worst[target.figure]
        met = value <= target.bound if target.at_most else value >= target.bound
        whose = " ".join(filter(None, (worst["name"], worst.get("clip"), worst.get("model"))))
        judged.append({"target": target.title, "bound": target.bound, "figure": value, "of": whose, "met": met})
    return judged


def table(results: Result) -> Iterator[str]:
    """What is printed last."""
    for row in sorted(results["runs"], key=lambda row: (row["clip"], row["model"])):
        speed = "{median:.1f} fps ({min:.1f} to {max:.1f})".format(**row["fps"])
        steady = f", steady {row['steady_fps']['median']:.1f}" if "steady_fps" in row else ""
        cpu, host, gpu = (row[k] for k in ("cpu_seconds_per_1000_frames", "peak_memory_mib", "gpu_memory_mib"))
        what = " ".join(filter(None, (row["clip"], row["model"], row["name"])))
        yield f"{what}: {speed}{steady}, {cpu:.2f} CPU s/1000, {host:.0f} MiB, GPU {gpu:.0f} MiB"
        for held in row.get("held", []):
            yield "  after {frames} frames: GPU {gpu_used_mib} MiB, host {host_mib} MiB, {open_files} files".format(
                **held
            )
    for row in results["derived"]:
        ratios = ", ".join(f"{k} {row[k]}" for k in row if k not in ("name", "clip", "model"))
        yield f"{row['clip']} {row['model']} {row['name']}: {ratios}"
    for row in results["targets"]:
        state = {True: "met", False: "MISSED", None: "not measured"}[row["met"]]
        figure = f"{row['figure']} ({row['of']})" if "figure" in row else "-"
        yield f"{row['target']}, {row['bound']}: {figure}: {state}"
    yield from (f"failed: {error}" for error in results["errors"])


def _limits(rows: list[Result], row: Result, rate: str) -> float | None:
    """What the row could reach: NVDEC's rate with its clip, for x264 also that of its encoders alone."""
    decoders = [
        r[rate]["median"] for r in rows if r["name"].endswith("independent decoders") and r["clip"] == row["clip"]
    ]
    if not decoders:
        return None
    limit: float = max(decoders)
    if row["name"] not in X264:
        return limit
    alone = _find(rows, f"{row['name']} alone")
    return min(limit, alone[0][rate]["median"]) if alone else None


def _find(rows: list[Result], name: str | None, **same: str) -> list[Result]:
    return [row for row in rows if row["name"] == name and all(row[key] == value for key, value in same.items())]
