"""Trains a built-in network, from the pictures in the shared folder to the ONNX file in the package.

    python tools/lab/training/train.py --seed 1     # labels, packs, trains, writes segmentation/models/person.onnx

What is there already is not made again: the teachers' labels, the packed pictures, the teacher's weights. Needs PyTorch
and ONNX; only the decoder is trained, which two cores do in an hour.
To label, also ONNX Runtime, ai-edge-litert and PyAV. `--seconds` trains for a time instead of `--steps`, with the same
schedule.
"""

import argparse
from pathlib import Path

NETWORKS = ("person", "person-hq")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=NETWORKS, default="person")
    parser.add_argument("--steps", type=int, default=14_000)
    parser.add_argument("--seconds", type=float, help="instead of --steps")
    parser.add_argument("--resume", type=Path, help="where the training is kept, and goes on from if the file is there")
    parser.add_argument("--piece", type=float, help="stop after so many seconds, to be resumed")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=int, help="judge the network every so many steps")
    parser.add_argument("--watch", type=int, default=1, help="every how manyth held-out picture is judged")
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--pictures", type=Path, default=Path(".train/pictures.npz"))
    parser.add_argument("--teacher", type=Path, default=Path(".train/teacher.npz"))
    parser.add_argument("-o", "--output", type=Path, help="default: the package's own")
    options = parser.parse_args()
    from trainer import train  # imports PyTorch

    train(options)


if __name__ == "__main__":
    main()
