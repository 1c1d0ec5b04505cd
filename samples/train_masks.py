"""Trains a small network to find people in clips, from videos and the masks of another network.

    segmentation videos/ -o blurred/ --save-masks masks/
    python samples/train_masks.py videos/ masks/ --steps 300 -o small.pt

Run again with more steps, it goes on from where `small.pt` ends, bit for bit as if it had not stopped. Needs PyTorch.
Where there is a GPU, the clips are decoded there too.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segmentation.clips import ClipDataset, ClipLoader, Output

LENGTH, SIDE = 8, 96  # frames and pixels of a clip


class Network(nn.Module):
    """Clips (N, 3, T, H, W) to logits (N, T, H, W): each convolution also sees the frames before and after."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.down = nn.Conv3d(3, width, 3, stride=(1, 2, 2), padding=1)
        self.deep = nn.Conv3d(width, 2 * width, 3, stride=(1, 2, 2), padding=1)
        self.same = nn.Conv3d(2 * width, 2 * width, 3, padding=1)
        self.up = nn.Conv3d(2 * width, width, 3, padding=1)
        self.logits = nn.Conv3d(width, 1, 3, padding=1)

    def forward(self, clips: Tensor) -> Tensor:
        half = F.relu(self.down(clips))
        quarter = F.relu(self.same(F.relu(self.deep(half))))
        joined = F.relu(half + self.up(F.interpolate(quarter, half.shape[2:])))
        whole = F.interpolate(joined, clips.shape[2:])  # linear interpolation would not be deterministic on a GPU
        logits: Tensor = self.logits(whole)
        return logits[:, 0]


def train(options: argparse.Namespace) -> list[float]:
    """Trains up to `options.steps` steps in all; returns the losses of those that were done now."""
    torch.manual_seed(options.seed)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # or cuBLAS adds up in another order each time
    torch.use_deterministic_algorithms(True)
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    dataset = ClipDataset(options.videos, length=LENGTH, masks=options.masks)
    crops = Output(size=(SIDE, SIDE), crop="random", flip=True, mean=(0.5,) * 3, std=(0.5,) * 3, layout="NCTHW")
    loader = ClipLoader(dataset, options.batch, outputs={"clips": crops}, seed=options.seed, device=device)
    network = Network().to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)
    step = 0
    if options.output.exists():
        state: dict[str, Any] = torch.load(options.output, map_location=device, weights_only=True)
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])
        step = state["step"]
    losses: list[float] = []
    while step < options.steps:
        for batch in loader:
            clips, masks = (torch.as_tensor(batch[name]) for name in ("clips", "masks"))  # arrays on the CPU
            wanted = masks.float() / 255
            loss = F.binary_cross_entropy_with_logits(network(clips), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            losses.append(loss.item())
            if step % 20 == 0 or step == options.steps:
                print(f"step {step}, epoch {loader.state_dict()['epoch']}: loss {losses[-1]:.3f}", flush=True)
            if step == options.steps:
                break
    parts = {"network": network.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(parts | {"loader": loader.state_dict(), "step": step}, options.output)
    return losses


def main(arguments: list[str] | None = None) -> list[float]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", type=Path)
    parser.add_argument("masks", type=Path, help="the folder of --save-masks")
    parser.add_argument("--steps", type=int, default=300, help="in all, with those of earlier runs")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", help="cpu, cuda or cuda:N (default: a GPU, if there is one)")
    parser.add_argument("-o", "--output", type=Path, default=Path("small.pt"))
    return train(parser.parse_args(arguments))


if __name__ == "__main__":
    main()
