"""A segmentation network in PyTorch as it is usually run, eager: for what the pipeline is compared with."""

import torch

from segmentation import Config
from segmentation.frames import VideoInfo
from segmentation.models.graph.fp16_cache import fp16_graph
from segmentation.models.graph.onnx_graph import prepare
from segmentation.models.model import load_model
from segmentation.stages.inference.compiler.onnx_to_torch import convert, probabilities

FCN = "fcn_resnet50"  # torchvision's, at 224x224, with random weights: for timing
_FCN_SIZE = 224  # pixels
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean and standard deviation of RGB in 0..1
_VOC_PERSON = 15


class TorchNetwork:
    """Takes (N, 3, height, width) float32 `(rgb - mean) / std` on its device to (N, h, w) float32 probabilities.

    `model` is `FCN`, a built-in model's name or an ONNX file; of its sizes, the one for the video `info` is taken. In
    FP16 (`half`) an ONNX file is converted as the pipeline converts it, which keeps what overflows in FP32.
    """

    def __init__(
        self, model: str, info: VideoInfo, device: torch.device, *, half: bool = False, batch: int = 1
    ) -> None:
        if model == FCN:
            from torchvision.models import get_model

            torch.manual_seed(0)
            net = get_model(FCN, weights=None, weights_backbone=None).eval().to(device)
            self._dtype = torch.float16 if half else torch.float32
            self._net = net.to(self._dtype)
            self._probabilities = lambda output: output["out"].float().softmax(dim=1)[:, _VOC_PERSON]
            self.height = self.width = _FCN_SIZE
            self.mean, self.std = _IMAGENET
        else:
            meaning = load_model(Config(model=model), info)
            if half:
                self._net = convert(fp16_graph(meaning, batch), device)
            else:
                self._net = convert(meaning.path, device, prepare(meaning, batch)).float()
            self._dtype = torch.float32  # of the input, which an ONNX in FP16 keeps
            self._probabilities = lambda output: probabilities(output, meaning)
            self.height, self.width = meaning.height, meaning.width
            self.mean, self.std = meaning.mean, meaning.std

    @torch.inference_mode()
    def __call__(self, pictures: torch.Tensor) -> torch.Tensor:
        return self._probabilities(self._net(pictures.to(self._dtype)))
