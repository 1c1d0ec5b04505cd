"""Inference with networks that find single things: PyTorch in FP32, replayed as a CUDA graph.

Boxes are chosen and masks are drawn within the graph, see `instance_reader.py`. So the host waits for nothing, unless a
stage reads the instances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, overload

import numpy as np
import torch

from segmentation.frames import Memory, VideoInfo
from segmentation.frames.instances import FrameInstances
from segmentation.gpu.discovery import device_index
from segmentation.models.model import Model
from segmentation.options.config import Config
from segmentation.stages.inference import Inference, InferenceResult, wants_class_map
from segmentation.stages.inference.compiler.cuda_graph import GraphedNetwork, Loaded, Preloaded, kernels_on, preload
from segmentation.stages.inference.compiler.network_kernels import INSTANCES
from segmentation.stages.inference.instances.fp32 import Fp32Network, check_fixed, load_fp32
from segmentation.stages.inference.instances.instance_reader import Found, InstanceReader
from segmentation.stages.inference.instances.onnx_instances import frame_instances, map_of_boxes, place_of

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu  # imports libraries that loading a network does not need


class TorchInstanceInference(Inference):
    """See `segmentation.stages.inference`. The masks returned are written again by the next call."""

    memory: ClassVar[Memory] = "cuda"
    workers = 1  # one stream

    def __init__(self, model: Model, config: Config, gpu: Gpu, preloaded: Preloaded[Found] | None = None) -> None:
        self._model, self._gpu = model, gpu
        self._network = GraphedNetwork(preloaded or self.preload(model, config), gpu, model.name)

    @classmethod
    def preload(cls, model: Model, config: Config) -> Preloaded[Found]:
        """Loads the network and runs it once. Raises `RefusesNetwork` where PyTorch can't run it in batches."""
        device = torch.device("cuda", device_index(config))
        return preload(lambda: _loaded(model, config, device), device)

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        name = torch.cuda.get_device_name(torch.device(config.device or "cuda:0"))
        return f"PyTorch {torch.__version__}, {name}, FP32, CUDA graph, single things"

    @classmethod
    def known(cls, model: Model, config: Config) -> str:
        """Raises `BackendError` as `check_fixed`."""
        check_fixed(model)
        return ""

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def __call__(self, tensor: torch.Tensor) -> InferenceResult:
        found = self._network(tensor)
        with torch.cuda.stream(self._gpu.stream):
            label_maps, class_map = map(_copy, (found.label_maps, found.class_map))
            things, unknown = found.things.clone(), found.unknown.clone()
            instances = GpuInstances(things, unknown, label_maps, self._model, self._gpu)
            return InferenceResult(found.masks, class_map, instances)

    def close(self) -> None:
        self._network.close()


class GpuInstances(Sequence[FrameInstances]):
    """The instances of a batch, which come to the host when one of them is first read."""

    def __init__(
        self, things: torch.Tensor, unknown: torch.Tensor, label_maps: torch.Tensor | None, model: Model, gpu: Gpu
    ) -> None:
        """See `Found` for the tensors. Maps of boxes are drawn on the host: to copy large ones takes longer."""
        self._things, self._unknown, self._label_maps = things, unknown, label_maps
        self._model, self._gpu = model, gpu

    def __len__(self) -> int:
        return len(self._things)

    @overload
    def __getitem__(self, key: int) -> FrameInstances: ...
    @overload
    def __getitem__(self, key: slice) -> GpuInstances: ...
    def __getitem__(self, key: int | slice) -> FrameInstances | GpuInstances:
        if isinstance(key, slice):
            label_maps = None if self._label_maps is None else self._label_maps[key]
            return GpuInstances(self._things[key], self._unknown[key], label_maps, self._model, self._gpu)
        return self._on_host[key]

    def __iter__(self) -> Iterator[FrameInstances]:
        return iter(self._on_host)

    @cached_property
    def _on_host(self) -> tuple[FrameInstances, ...]:
        """Waits for the GPU."""
        self._gpu.enter()
        maps_there = () if self._label_maps is None else (self._label_maps,)
        things, unknown, *copied = self._gpu.download(self._things, self._unknown, *maps_there)
        found = [part[: np.count_nonzero(part[:, 4])] for part in things]
        place = place_of(self._model)
        maps = copied[0] if copied else [map_of_boxes(one[:, :4], (place.height, place.width)) for one in found]
        return tuple(
            replace(frame_instances(one[:, :4], one[:, 4], one[:, 5], self._model, label_map), unknown=bool(lost))
            for one, label_map, lost in zip(found, maps, unknown, strict=True)
        )


def _copy(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.clone()


def _loaded(model: Model, config: Config, device: torch.device) -> Loaded[Found]:
    """Loads the network, with a function that finds the things in its input."""
    network = load_fp32(model, config.batch_size or 1, device)
    reader = InstanceReader(model, device, class_map=wants_class_map(model, config))
    looks = _looks(network, model, config, device)
    return Loaded(network.input, network.net, lambda: reader(kernels_on(device, INSTANCES), looks()))


def _looks(
    network: Fp32Network, model: Model, config: Config, device: torch.device
) -> Callable[[], list[list[torch.Tensor]]]:
    """Returns what runs the network on its input, and on each further look at it."""
    assert model.detection is not None
    passes = model.detection.passes
    smaller = replace(model, height=model.height // 2, width=model.width // 2)
    half = load_fp32(smaller, config.batch_size or 1, device) if "half" in passes else None

    def further(name: str) -> list[torch.Tensor]:
        if name == "mirrored":
            return network.outputs(network.input.flip(3))
        assert half is not None
        return half.outputs(torch.nn.functional.avg_pool2d(network.input, 2))

    return lambda: [network.outputs(), *map(further, passes)]
