"""Makes tests/data/*.onnx: a small network exported by PyTorch, with a Resize and a Softmax in it.

    python tests/data/make_network.py    # needs torch and onnx

It was run once; the tests only read what it wrote. The network tells bright places from dark ones; it is trained for
a moment, so that its masks are sure of themselves, as those of real networks are.
"""

import json
from pathlib import Path

import onnx
import torch
from torch.nn import functional

DATA = Path(__file__).parent
SIZE = (48, 64)  # height, width
META = {"labels": ["background", "person"], "mean": [0.5] * 3, "std": [0.25] * 3, "activation": "none"}


class Network(torch.nn.Module):
    """(N, 3, H, W) to the probabilities (N, 2, H, W) of dark and bright, smoothed."""

    def __init__(self) -> None:
        super().__init__()
        self.down = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.out = torch.nn.Conv2d(8, 2, 1)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        scores = self.out(torch.relu(self.norm(self.down(pictures))))
        return torch.softmax(functional.interpolate(scores, scale_factor=2, mode="bilinear", align_corners=False), 1)


def trained() -> Network:
    torch.manual_seed(0)
    network = Network()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(300):
        coarse = torch.randn(16, 3, SIZE[0] // 8, SIZE[1] // 8) * 1.5
        pictures = functional.interpolate(coarse, SIZE, mode="bilinear")
        wanted = (pictures.mean(1) > 0).long()
        loss = functional.nll_loss(torch.log(network(pictures) + 1e-6), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network.eval()


def main() -> None:
    network = trained()
    for name, axes in (("dynamic", {"input": {0: "N"}, "mask": {0: "N"}}), ("static", None)):
        path = DATA / f"bright-{name}.onnx"
        torch.onnx.export(
            network,
            (torch.zeros(1, 3, *SIZE),),
            path,
            input_names=["input"],
            output_names=["mask"],
            dynamic_axes=axes,
            opset_version=17,
            dynamo=False,
        )
        model = onnx.load(path)
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in META.items()}
        onnx.helper.set_model_props(model, {**texts, "channel_order": "rgb"})
        onnx.save(model, path)


if __name__ == "__main__":
    main()
