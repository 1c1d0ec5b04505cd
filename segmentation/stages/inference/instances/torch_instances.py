"""Inference with networks that find single things: PyTorch, replayed as a CUDA graph.

Boxes are chosen and masks are drawn within the graph, see `instance_reader.py`. So the host waits for nothing, unless a
stage reads the instances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar, overload

import numpy as np
import torch
from numpy.typing import NDArray

from segmentation.frames import Memory, VideoInfo
from segmentation.frames.event import Event
from segmentation.frames.instances import BoxMap, FrameInstances, LabelMap
from segmentation.gpu.discovery import device_index
from segmentation.models.model import Model, detection_of
from segmentation.options.config import Config
from segmentation.stages.inference import Inference, InferenceResult, wants_class_map
from segmentation.stages.inference.compiler.cuda_graph import GraphedNetwork, Loaded, Preloaded, kernels_on, preload
from segmentation.stages.inference.compiler.network_kernels import INSTANCES
from segmentation.stages.inference.instances.fixed_batch import PRECISION, FixedBatch, check_fixed, load_network
from segmentation.stages.inference.instances.instance_reader import Found, InstanceReader
from segmentation.stages.inference.instances.onnx_instances import frame_instances, place_of

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
        return f"PyTorch {torch.__version__}, {name}, {PRECISION}, CUDA graph, single things"

    @classmethod
    def known(cls, model: Model, config: Config) -> str:
        """Raises `BackendError` as `check_fixed`."""
        check_fixed(model)
        return ""

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def __call__(self, tensor: torch.Tensor) -> InferenceResult:
        found = self._network(tensor)
        instances = GpuInstances.of(found, self._model, self._gpu)
        with torch.cuda.stream(self._gpu.stream):
            return InferenceResult(found.masks, None if found.class_map is None else found.class_map.clone(), instances)

    def close(self) -> None:
        self._network.close()


@dataclass(frozen=True, eq=False)
class GpuInstances(Sequence[FrameInstances]):
    """The instances of a batch, on their way to the host. Maps of boxes are drawn there: to copy large ones is slow."""

    things: NDArray[np.float32]  # as in `Found`
    unknown: NDArray[np.uint8]
    label_maps: NDArray[np.uint8] | None
    ready: Event  # passes when they are there
    model: Model

    @classmethod
    def of(cls, found: Found, model: Model, gpu: Gpu) -> GpuInstances:
        """Queues the copies at once: who reads instances later must not wait for what is queued until then."""
        maps = () if found.label_maps is None else (found.label_maps,)
        things, unknown, *copied = gpu.download(found.things, found.unknown, *maps, wait=False)
        return cls(things, unknown, copied[0] if copied else None, gpu.record_event(), model)

    def __len__(self) -> int:
        return len(self.things)

    @overload
    def __getitem__(self, key: int) -> FrameInstances: ...
    @overload
    def __getitem__(self, key: slice) -> GpuInstances: ...
    def __getitem__(self, key: int | slice) -> FrameInstances | GpuInstances:
        if isinstance(key, slice):
            label_maps = None if self.label_maps is None else self.label_maps[key]
            return GpuInstances(self.things[key], self.unknown[key], label_maps, self.ready, self.model)
        return self._on_host[key]

    def __iter__(self) -> Iterator[FrameInstances]:
        return iter(self._on_host)

    @cached_property
    def _on_host(self) -> tuple[FrameInstances, ...]:
        """Waits for the GPU."""
        self.ready.synchronize()
        found = [part[: np.count_nonzero(part[:, 4])] for part in self.things]
        place, maps = place_of(self.model), self.label_maps
        drawn: Iterable[LabelMap] = (
            [BoxMap(one[:, :4], (place.height, place.width)) for one in found] if maps is None else maps
        )
        return tuple(
            replace(frame_instances(one[:, :4], one[:, 4], one[:, 5], self.model, label_map), unknown=bool(lost))
            for one, label_map, lost in zip(found, drawn, self.unknown, strict=True)
        )


def _loaded(model: Model, config: Config, device: torch.device) -> Loaded[Found]:
    """Loads the network, with a function that finds the things in its input."""
    network = load_network(model, config.batch_size or 1, device)
    reader = InstanceReader(model, device, class_map=wants_class_map(model, config))
    looks = _looks(network, model, config, device)
    return Loaded(network.input, network.net, lambda: reader(kernels_on(device, INSTANCES), looks()))


def _looks(
    network: FixedBatch, model: Model, config: Config, device: torch.device
) -> Callable[[], list[list[torch.Tensor]]]:
    """Returns what runs the network on its input, and on each further look at it."""
    passes = detection_of(model).passes
    looks: list[Callable[[], list[torch.Tensor]]] = [network.outputs]
    for name in passes:
        if name == "mirrored":
            looks.append(network.mirrored())
        else:
            smaller = replace(model, height=model.height // 2, width=model.width // 2)
            half = load_network(smaller, config.batch_size or 1, device)
            looks.append(partial(_halved, network, half))
    return lambda: [look() for look in looks]


def _halved(network: FixedBatch, half: FixedBatch) -> list[torch.Tensor]:
    return half.outputs(torch.nn.functional.avg_pool2d(network.input, 2))
