"""Records a network as a graph of PyTorch's own operators, which a later start loads without the code that ran it."""

from __future__ import annotations

import operator
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

if TYPE_CHECKING:
    from torch._ops import OpOverload

_NAMESPACE = "aten"  # of PyTorch's own operators


class UnrecordableError(Exception):
    """The network is not the same graph for every input."""


def record(net: torch.nn.Module, example: torch.Tensor, *, outputs: int = 1) -> GraphModule:
    """Runs `net` once on `example`, and returns the operators that it ran as a graph for inputs of that shape.

    Only the first `outputs` of its outputs are kept; several are returned in a list. Raises `UnrecordableError` if
    another input might take another path.
    """
    recorder = _Recorder(example)
    with recorder:
        found = net(example)
    return recorder.finish(list(found)[:outputs] if isinstance(found, (tuple, list)) else [found])


class _Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Adds a node to a graph for each operator whose result depends on the input; other results are constants.

    The mode sees the operators of the calling thread alone, so other threads may run networks meanwhile.
    """

    def __init__(self, example: torch.Tensor) -> None:
        super().__init__()
        self._graph = Graph()
        self._root = torch.nn.Module()  # holds the constants
        # By tensor, weakly, so that the memory of intermediate results is freed as usual.
        self._dynamic = WeakTensorKeyDictionary()
        self._constant = WeakTensorKeyDictionary()
        self._dynamic[example] = self._graph.placeholder("input")

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Returns `False`: excluding the mode from compilation would import the compiler, for more than a second."""
        return False

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        dynamic = any(tensor in self._dynamic for tensor in inputs)
        if dynamic:
            self._check(func, args)
        result = func(*args, **kwargs)
        if dynamic:
            self._add(func, args, kwargs, result)
        return result

    def _check(self, func: OpOverload, args: tuple[Any, ...]) -> None:
        """Raises `UnrecordableError` for operators that a replay could not repeat."""
        if func.namespace != _NAMESPACE:
            raise UnrecordableError(f"{func} is not one of PyTorch's own operators")
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.is_write and not (isinstance(value, torch.Tensor) and value in self._dynamic):
                raise UnrecordableError(f"{func} changes a constant")

    def _add(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        args, kwargs = tree_map_only(torch.Tensor, self._node_of, (args, kwargs))
        node = self._graph.call_function(func, args, kwargs)
        if isinstance(result, torch.Tensor):
            self._dynamic[result] = node
        elif isinstance(result, (tuple, list)) and all(isinstance(part, torch.Tensor) for part in result):
            for index, part in enumerate(result):
                self._dynamic[part] = self._graph.call_function(operator.getitem, (node, index))
        else:
            raise UnrecordableError(f"{func} reads values that depend on the picture")

    def _node_of(self, tensor: torch.Tensor) -> Node:
        """Returns the tensor's node; makes one if the tensor is a constant."""
        if tensor in self._dynamic:
            return self._dynamic[tensor]
        if tensor not in self._constant:
            name = f"constant_{len(self._constant)}"
            self._root.register_buffer(name, tensor)
            self._constant[tensor] = self._graph.get_attr(name)
        return self._constant[tensor]

    def finish(self, outputs: list[torch.Tensor]) -> GraphModule:
        """Returns the graph of all operators that the outputs depend on."""
        if any(output not in self._dynamic for output in outputs):
            raise UnrecordableError("the output does not depend on the picture")
        nodes = [self._dynamic[output] for output in outputs]
        self._graph.output(nodes if len(nodes) > 1 else nodes[0])
        self._graph.eliminate_dead_code()
        return GraphModule(self._root, self._graph)


def store(net: GraphModule) -> bytes:
    """Returns a recorded network as the content of a file, in which nothing can be executed."""
    nodes = [
        {"name": node.name, "op": node.op, "target": _named(node.target), "arguments": _plain((node.args, node.kwargs))}
        for node in net.graph.nodes
    ]
    names = [node.target for node in net.graph.nodes if node.op == "get_attr"]
    file = BytesIO()
    torch.save({"nodes": nodes, "constants": {name: getattr(net, name).detach() for name in names}}, file)
    return file.getvalue()


def load(path: Path) -> GraphModule:
    """Reads a recorded network. Its constants are on the device on which they were recorded."""
    content = torch.load(path, weights_only=True)
    graph, root = Graph(), torch.nn.Module()
    for name, tensor in content["constants"].items():
        root.register_buffer(name, tensor)
    nodes: dict[str, Node] = {}
    for entry in content["nodes"]:
        args, kwargs = _restored(entry["arguments"], nodes)
        node = graph.create_node(entry["op"], _target(entry["op"], entry["target"]), tuple(args), kwargs, entry["name"])
        nodes[entry["name"]] = node
    return GraphModule(root, graph)


def _named(target: Any) -> str:
    """Returns the name of a node's target: an operator, `getitem`, or a constant."""
    return "getitem" if target is operator.getitem else str(target)


def _target(op: str, name: str) -> Any:
    """Returns the target of a node. Nothing but PyTorch's own operators can be named."""
    if op != "call_function":
        return name
    if name == "getitem":
        return operator.getitem
    namespace, function, overload = name.split(".")
    assert namespace == _NAMESPACE
    return getattr(getattr(torch.ops.aten, function), overload)


def _plain(value: Any) -> Any:
    """Returns a node's arguments in lists, dictionaries, numbers and strings."""
    match value:
        case Node():
            return {"node": value.name}
        case torch.dtype() | torch.layout() | torch.memory_format():
            return {"torch": str(value).removeprefix("torch.")}
        case torch.device():
            return {"device": str(value)}
        case dict():
            return {"dict": {key: _plain(part) for key, part in value.items()}}
        case tuple() | list():
            return [_plain(part) for part in value]
    assert value is None or isinstance(value, (bool, int, float, str)), f"{type(value)} can't be stored"
    return value


def _restored(value: Any, nodes: dict[str, Node]) -> Any:
    """Returns the arguments that `_plain` was given; tuples come back as lists."""
    match value:
        case {"node": name}:
            return nodes[name]
        case {"torch": name}:
            return getattr(torch, name)
        case {"device": name}:
            return torch.device(name)
        case {"dict": parts}:
            return {key: _restored(part, nodes) for key, part in parts.items()}
        case list():
            return [_restored(part, nodes) for part in value]
    return value
