"""Steps of training. A GPU would wait for Python, which starts some thousand kernels a step: they are recorded."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

STEEPEST = 2.0  # norm of the gradients, at most
DECAY = 0.02  # of the weights

Loss = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]  # of the network, a batch, where people are, what is known


class Steps:
    """Teaches `network` a batch a call; `averaged` is the mean of its weights over the steps.

    On a GPU the second step of each shape is recorded as a CUDA graph, which all later ones replay.
    """

    def __init__(self, network: nn.Module, loss: Loss) -> None:
        self.network, self.averaged = network, copy.deepcopy(network)
        self._loss = loss
        self._learning = [p for p in network.parameters() if p.requires_grad]
        device = self._learning[0].device
        self._on_gpu = device.type == "cuda"
        # The recorded kernels read both from memory, as they change from step to step.
        self._rate, self._share = torch.zeros((), device=device), torch.zeros((), device=device)
        self._optimizer = torch.optim.AdamW(
            self._learning, lr=self._rate, weight_decay=DECAY, fused=self._on_gpu, capturable=self._on_gpu
        )
        self._seen: set[torch.Size] = set()
        self._recorded: dict[torch.Size, tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor]] = {}
        self._side = torch.cuda.Stream() if self._on_gpu else None
        self._pool = torch.cuda.graph_pool_handle() if self._on_gpu else None

    def parts(self) -> dict[str, nn.Module | torch.optim.Optimizer]:
        """Whatever a training that goes on later has to keep."""
        return {"network": self.network, "averaged": self.averaged, "optimizer": self._optimizer}

    def __call__(self, batch: tuple[Tensor, Tensor, Tensor], rate: float, share: float) -> Tensor:
        """Returns the loss (), which the next call overwrites. `share` of the new weights goes into the average."""
        for group in self._optimizer.param_groups:  # not `_rate`: another tensor after `load_state_dict`
            group["lr"].fill_(rate)
        self._share.fill_(share)
        shape = batch[0].shape
        if not self._on_gpu:
            return self._step(*batch)
        if shape not in self._seen:
            self._seen.add(shape)
            return self._beside(batch)
        if shape not in self._recorded:
            self._recorded[shape] = self._record(batch)
        graph, inputs, error = self._recorded[shape]
        for mine, given in zip(inputs, batch, strict=True):
            mine.copy_(given)
        graph.replay()
        return error

    def _step(self, rgb: Tensor, wanted: Tensor, known: Tensor) -> Tensor:
        self.network.train()
        self._optimizer.zero_grad(set_to_none=True)
        error = self._loss(self.network, rgb, wanted, known)
        error.backward()
        nn.utils.clip_grad_norm_(self._learning, STEEPEST)
        self._optimizer.step()
        with torch.no_grad():
            ours, theirs = _values(self.averaged), _values(self.network)
            change = torch._foreach_sub(theirs, ours)
            torch._foreach_mul_(change, self._share)
            torch._foreach_add_(ours, change)
        return error.detach()

    def _beside(self, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """A step on a stream of its own, as a recording needs it first: libraries choose kernels and take memory."""
        assert self._side is not None
        self._side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._side):
            error = self._step(*batch)
        torch.cuda.current_stream().wait_stream(self._side)
        return error

    def _record(self, batch: tuple[Tensor, Tensor, Tensor]) -> tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor]:
        inputs = [part.clone() for part in batch]
        self._optimizer.zero_grad(set_to_none=True)  # gradients of the recording's own memory
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            error = self._step(*inputs)
        return graph, inputs, error


def _values(network: nn.Module) -> list[Tensor]:
    """All numbers of a network but the counts of batches, which nothing uses."""
    return [value for value in (*network.parameters(), *network.buffers()) if value.is_floating_point()]
