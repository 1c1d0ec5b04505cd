"""Records a network as a graph of PyTorch's own operators, which a later start loads without the code that ran it."""

from __future__ import annotations

import operator
from collections.abc import Container
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

from segmentation.errors import one_line

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


def is_recorded(net: torch.nn.Module) -> bool:
    """Returns whether a network is a graph of PyTorch's own operators already."""
    plain = ("placeholder", "get_attr", "output")
    nodes = net.graph.nodes if isinstance(net, GraphModule) else ()
    return bool(nodes) and all(node.op in plain or isinstance(node.target, OpOverload) for node in nodes)


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


def load(file: Path | BinaryIO) -> GraphModule:
    """Reads a recorded network. Its constants are on the device on which they were recorded.

    Raises `ValueError` for anything that `store` does not write: PyTorch makes source code of a graph, and of all names
    in it.
    """
    try:
        content = torch.load(file, weights_only=True)
        graph, root = Graph(), torch.nn.Module()
        for name, tensor in content["constants"].items():
            root.register_buffer(_identifier(name), tensor)
        nodes: dict[str, Node] = {}
        for entry in content["nodes"]:
            args, kwargs = _restored(entry["arguments"], nodes)
            target = _target(entry["op"], entry["target"], content["constants"])
            kwargs = {_identifier(key): value for key, value in kwargs.items()}
            node = graph.create_node(entry["op"], target, tuple(args), kwargs, _identifier(entry["name"]))
            nodes[entry["name"]] = node
        return GraphModule(root, graph)
    except Exception as exc:  # the file may hold any types and values
        raise ValueError(f"is no recorded network ({one_line(exc)})") from exc


def _named(target: Any) -> str:
    """Returns the name of a node's target: an operator, `getitem`, or a constant."""
    return "getitem" if target is operator.getitem else str(target)


def _target(op: str, name: str, constants: Container[str]) -> Any:
    """Returns the target of a node: an input, a constant, or one of PyTorch's own operators on tensors.

    Raises `ValueError` for anything else.
    """
    match op:
        case "placeholder" | "output":
            return _identifier(name)
        case "get_attr" if name in constants:
            return _identifier(name)
        case "call_function" if name == "getitem":
            return operator.getitem
        case "call_function":
            namespace, function, overload = map(_identifier, name.split("."))
            found = getattr(getattr(torch.ops.aten, function), overload)
            if namespace == _NAMESPACE and isinstance(found, OpOverload) and _is_of_tensors(found):
                return found
    raise ValueError(f"{op} {name} is not allowed")


def _is_of_tensors(function: OpOverload) -> bool:
    """Returns whether an operator makes tensors of tensors: not so those that read, write or print files."""
    schema = function._schema
    made = [str(one.type) for one in schema.returns]
    tensors = ("Tensor", "List[Tensor]")
    return bool(made) and set(made) <= set(tensors) and any(str(one.type) in tensors for one in schema.arguments)


def _identifier(name: str) -> str:
    """Returns a name that source code may have. Raises `ValueError` for another."""
    if not (isinstance(name, str) and name.isascii() and name.isidentifier() and not name.startswith("__")):
        raise ValueError(f"{name!r} is no name")
    return name


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
            found = getattr(torch, _identifier(name))
            if isinstance(found, torch.dtype | torch.layout | torch.memory_format):
                return found
            raise ValueError(f"torch.{name} is not allowed")
        case {"device": name}:
            return torch.device(name)
        case {"dict": parts}:
            return {key: _restored(part, nodes) for key, part in parts.items()}
        case list():
            return [_restored(part, nodes) for part in value]
    return value
