"""Blurs the background of a video in the shape of NVIDIA's CV-CUDA sample, see `gpu_peers.py`.

python tools/benchmarks/gpu_sample.py INPUT OUTPUT.mp4 [--model fcn_resnet50]
"""

import argparse


def main() -> None:
    parser = argparse.ArgumentParser(description="Blurs the background of a video as NVIDIA's sample does.")
    parser.add_argument("input")
    parser.add_argument("output", help="an .mp4 file")
    parser.add_argument("--model", default="person", help="fcn_resnet50, or an ONNX file (default: the built-in one)")
    options = parser.parse_args()
    # Imported here, because these modules need PyTorch and CV-CUDA, and --help does not.
    import torch
    from gpu_peers import BATCH, run_sample
    from torch_network import TorchNetwork

    from segmentation.media.opening.probe import probe

    network = TorchNetwork(options.model, probe(options.input), torch.device("cuda"), half=True, batch=BATCH)
    print(f"{run_sample(options.input, options.output, network)} frames")


if __name__ == "__main__":
    main()
