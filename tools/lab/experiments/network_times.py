"""Times networks alone on a GPU, as the pipeline runs them: of one picture, and of a batch.

    python tools/lab/experiments/network_times.py --model person --batch 1,16 -o networks.json

Networks and batch sizes take turns, after a warm-up, for pictures of 1920x1080. A time is the GPU's own, between two
events around several calls in a row.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))  # the tools are programs, not a package

from circumstances import ROOT, circumstances


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", help="a built-in network or an ONNX file; may be given again")
    parser.add_argument("--batch", type=lambda text: [int(one) for one in text.split(",")], default=[1, 16])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "tools" / "lab" / "results" / "networks.json")
    options = parser.parse_args()
    from gpu_networks import measured  # needs PyTorch, and --help does not

    name, rows = measured(options.model or ["person"], options.batch, options.repeats)
    about = circumstances(f"lab/experiments/{Path(__file__).name}", sys.argv[1:])
    about["hardware"]["gpu"] = name
    options.output.write_text(json.dumps(about | {"networks": rows}, indent=2) + "\n")
    for row in rows:
        print(f"{row['model']}, {row['batch']} pictures: {row['median_ms']:.3f} ms, at least {row['min_ms']:.3f}")


if __name__ == "__main__":
    main()
