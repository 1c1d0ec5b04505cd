"""Times networks alone on a GPU, in FP16 as the pipeline runs them: of one picture, and of a batch.

    python tools/benchmarks/networks.py --model person --batch 1,16 -o networks.json

Networks and batch sizes take turns, after a warm-up, for pictures of 1920x1080. A time is the GPU's own, between two
events around several calls in a row.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # the tools are programs, not a package

from circumstances import ROOT, circumstances

from segmentation import Config
from segmentation.gpu.context import Gpu
from segmentation.media.input import probe
from segmentation.models.model import load_model
from segmentation.stages.inference.torch_fp16 import TorchFp16Inference

WARM_UP, IN_A_ROW = 3, 20


def call(name: str, batch: int, gpu: Gpu) -> Callable[[], object]:
    """Returns a call of the network `name` on pictures that are on the GPU."""
    model = load_model(Config(model=name), probe(str(ROOT / "samples" / "astronaut.mp4")))
    infer = TorchFp16Inference(model, Config(batch_size=batch), gpu)
    pictures = torch.randn((batch, 3, model.height, model.width), device=f"cuda:{gpu.index}")
    return lambda: infer(pictures)


def milliseconds(run: Callable[[], object], gpu: Gpu) -> float:
    """Returns the GPU's time of one call."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record(gpu.stream)
    for _ in range(IN_A_ROW):
        run()
    end.record(gpu.stream)
    end.synchronize()
    return begin.elapsed_time(end) / IN_A_ROW


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", help="a built-in network or an ONNX file; may be given again")
    parser.add_argument("--batch", type=lambda text: [int(one) for one in text.split(",")], default=[1, 16])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "tools" / "results" / "networks.json")
    options = parser.parse_args()
    gpu = Gpu()
    calls = {(name, n): call(name, n, gpu) for name in options.model or ["person"] for n in options.batch}
    times: dict[tuple[str, int], list[float]] = {key: [] for key in calls}
    for repeat in range(WARM_UP + options.repeats):
        for key, run in calls.items():
            spent = milliseconds(run, gpu)
            if repeat >= WARM_UP:
                times[key].append(spent)
    rows = [
        {"model": Path(name).name, "batch": n, "median_ms": statistics.median(found), "min_ms": min(found)}
        for (name, n), found in times.items()
    ]
    about = circumstances(f"benchmarks/{Path(__file__).name}", sys.argv[1:])
    about["hardware"]["gpu"] = torch.cuda.get_device_name(gpu.device)
    options.output.write_text(json.dumps(about | {"networks": rows}, indent=2) + "\n")
    for row in rows:
        print(f"{row['model']}, {row['batch']} pictures: {row['median_ms']:.3f} ms, at least {row['min_ms']:.3f}")


if __name__ == "__main__":
    main()
