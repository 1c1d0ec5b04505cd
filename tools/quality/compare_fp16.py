"""Compares engines in FP16 with FP32: masks, sizes and build times, as the table in tools/lab/engines.md has them.

    python tools/quality/compare_fp16.py person person-hq ../shared/models/prisma-portrait.onnx \\
        --frames samples/astronaut.mp4

Writes tools/lab/results/engines.json and prints the rows of the table. Masks are those of the graph with every value
rounded as FP16 holds it (see segmentation/models/graph/fp16.py), against the FP32 graph, in ONNX Runtime. What stays
in FP32 is chosen on the picture in the package alone; the videos' frames then test the choice. Engines are built for
the GPU at hand, or by TensorRT-RTX for all that it serves where there is none.
"""

import argparse
import json
import os
import platform
import tempfile
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

import segmentation  # noqa: F401 - before onnxruntime: switches its telemetry off

# isort: split
import onnx
import onnxruntime

from segmentation import Config
from segmentation.engines.build import obtain
from segmentation.engines.spec import EngineOptions, EngineSpec
from segmentation.engines.variant import choose, installed
from segmentation.gpu.discovery import find_gpu
from segmentation.models.graph.fp16 import compare_rounded, to_fp16
from segmentation.models.graph.onnx_graph import prepare
from segmentation.models.model import load_model
from segmentation.models.sample_picture import picture_inputs
from segmentation.models.sidecar import load_plan
from segmentation.stages.inference.sample_inputs import frame_inputs

RESULTS = Path(__file__).parents[1] / "lab" / "results" / "engines.json"


def measure(name: str, videos: list[Path]) -> dict[str, Any]:
    """One model: its masks on the picture in the package and on each video, and its engines in both precisions."""
    model = load_model(Config(model=name))
    graph = prepare(model, None)
    _, chosen = to_fp16(graph, model, picture_inputs(model))
    comparisons = {"picture in the package": asdict(chosen)}
    for video in videos:
        comparison = compare_rounded(graph, model, frame_inputs(model, video), chosen.kept_in_fp32)
        comparisons[video.name] = asdict(comparison)
    engines = {}
    gpu = find_gpu()
    variant = choose(gpu, installed(), build=True)
    for precision in ("fp32", "fp16"):
        spec = EngineSpec(model=model, options=EngineOptions(precision=precision), variant=variant, gpu=gpu)
        with tempfile.TemporaryDirectory() as folder:
            _, sidecar = load_plan(obtain(spec, Path(folder) / "e.engine")[0])
        engines[precision] = {"bytes": sidecar.plan_bytes, "build_seconds": sidecar.build_seconds}
    return {
        "model": model.path.name,
        "nodes": len(graph.graph.node),
        "onnx_bytes": model.path.stat().st_size,
        "comparisons": comparisons,
        "engines": engines,
        "variant": str(variant),
        "gpu": str(gpu) if gpu is not None else None,
    }


def row(result: dict[str, Any]) -> str:
    """One model as a row of the table: the worst of its comparisons, and the plans' sizes."""
    comparisons = result["comparisons"].values()
    sizes = " | ".join(f"{result['engines'][p]['bytes'] / 1e6:.2f} MB" for p in ("fp32", "fp16"))
    kept = sorted({node for c in comparisons for node in c["kept_in_fp32"]})
    return (
        f"| {result['model']} | {sum(c['pictures'] for c in comparisons)} | {min(c['iou'] for c in comparisons):.4f} | "
        f"{max(c['largest_difference'] for c in comparisons):.4f} | {len(kept)} of {result['nodes']} | {sizes} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares engines in FP16 with FP32.")
    parser.add_argument("models", nargs="+", metavar="MODEL", help="built-in names or ONNX files")
    parser.add_argument("--frames", nargs="*", type=Path, default=[], metavar="VIDEO")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    results = [measure(name, options.frames) for name in options.models]
    versions = {"python": platform.python_version(), "onnx": onnx.__version__, "onnxruntime": onnxruntime.__version__}
    content = {
        "date": date.today().isoformat(),
        "hardware": {"machine": platform.machine(), "cores": os.cpu_count()},
        "versions": versions,
        "results": results,
    }
    options.output.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    print("\n".join(row(result) for result in results))


if __name__ == "__main__":
    main()
