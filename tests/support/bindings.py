"""Checks calls in our source against TensorRT's real bindings, without making any of its objects.

TensorRT runs only on a GPU, so a misspelt method would be found by the first user. But its bindings carry each method's
signature in their docstrings, return types included: following them through a function tells the class of nearly every
value, and with it which names and arguments there are.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

ALIASES = {"IParserError": "ParserError"}  # docstrings name some classes as C++ does
FITS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "bool": (bool,),
    "typing.SupportsInt": (int, bool),
    "typing_extensions.Buffer": (bytes,),
}


@dataclass(frozen=True)
class Signature:
    """One overload: parameters after `self` as (name, type, has a default), and the class that is returned."""

    parameters: tuple[tuple[str, str, bool], ...]
    returns: str

    def accepts(self, call: ast.Call) -> bool:
        names = [name for name, _, _ in self.parameters]
        given = dict(zip(names, call.args, strict=False)) | {k.arg: k.value for k in call.keywords if k.arg}
        if len(call.args) + len(call.keywords) != len(given) or not given.keys() <= set(names):
            return False
        for name, kind, optional in self.parameters:
            if name not in given:
                if not optional:
                    return False
            elif not _fits(given[name], kind):
                return False
        return True


def _fits(value: ast.expr, kind: str) -> bool:
    """Whether a value that is written out can be of a type; any other expression may be."""
    if isinstance(value, ast.Constant):
        return isinstance(value.value, FITS.get(kind, object))
    return not (isinstance(value, ast.Tuple | ast.List) and kind in FITS)


def signatures(function: Any) -> list[Signature]:
    """The overloads in a pybind11 docstring."""
    found = []
    for line in (function.__doc__ or "").splitlines():
        if match := re.fullmatch(r"(?:\d+\. )?\w+\((.*)\) -> (.+)", line.strip()):
            parts = [p for p in _split(match[1]) if not p.startswith("self:")]
            if parts[:1] == ["*args"]:
                continue
            parameters = []
            for part in parts:
                name, _, rest = part.partition(":")
                kind, default, _ = rest.partition(" = ")
                parameters.append((name.strip(), kind.strip(), bool(default)))
            found.append(Signature(tuple(parameters), match[2]))
    return found


def _split(text: str) -> list[str]:
    """At the commas that are in no bracket."""
    parts, depth, begin = [], 0, 0
    for place, char in enumerate(text):
        depth += (char in "([<{") - (char in ")]>}")
        if char == "," and depth == 0:
            parts.append(text[begin:place].strip())
            begin = place + 1
    return [*parts, text[begin:].strip()] if text.strip() else []


@dataclass
class Checker:
    """Follows TensorRT's objects through one source file.

    `seeds` are, by function, the parameters that are such objects, with their class; a name that ends in `trt` is the
    module itself. `skip` are functions that are for another variant. `problems` is what is wrong, `seen` what was found
    to be right.
    """

    module: ModuleType
    seeds: dict[str, dict[str, str]]
    skip: frozenset[str] = frozenset()
    problems: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    _own: dict[str, str] = field(default_factory=dict)  # self.x and its class

    def check(self, source: str) -> "Checker":
        functions = list(self._functions(ast.parse(source)))
        for _ in range(3):  # until attributes that other methods set are known
            self.problems.clear()
            for function in functions:
                self._check_function(function)
        return self

    def _functions(self, tree: ast.AST) -> Iterator[ast.FunctionDef]:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name not in self.skip:
                yield node

    def _check_function(self, function: ast.FunctionDef) -> None:
        names = dict(self.seeds.get(function.name, {}))
        statements = [n for n in ast.walk(function) if isinstance(n, ast.Assign | ast.AnnAssign)]
        for statement in sorted(statements, key=lambda n: n.lineno):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            targets, values = [target], [statement.value]
            if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
                targets, values = list(target.elts), list(statement.value.elts)
            for one, value in zip(targets, values, strict=True):
                kind = self._type(value, names, quiet=True) if value is not None else None
                if kind is not None:
                    (self._own if isinstance(one, ast.Attribute) else names)[ast.unparse(one)] = kind
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute | ast.Call):
                self._type(node, names)

    def _type(self, node: ast.AST, names: dict[str, str], *, quiet: bool = False) -> str | None:
        """The class of a value's TensorRT object, "module", "class NAME" or "CLASS.method"; None if it is none."""
        text = ast.unparse(node)
        if isinstance(node, ast.Name | ast.Attribute):
            if re.fullmatch(r"(self\._)?trt", text):
                return "module"
            if text in names or text in self._own:
                return names.get(text) or self._own[text]
        if isinstance(node, ast.IfExp):
            return self._type(node.body, names, quiet=True) or self._type(node.orelse, names, quiet=True)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, self._type(node.value, names, quiet=True), quiet)
        if isinstance(node, ast.Call):
            return self._call(node, self._type(node.func, names, quiet=True), quiet)
        return None

    def _attribute(self, node: ast.Attribute, owner: str | None, quiet: bool) -> str | None:
        if owner is None:
            return None
        of_class = owner.startswith("class ")
        place = self.module if owner == "module" else getattr(self.module, owner.removeprefix("class "), None)
        value = getattr(place, node.attr, None)
        if place is None or value is None:
            self._complain(node, f"{owner} has no {node.attr}", quiet)
            return None
        self.seen.add(f"{owner.removeprefix('class ')}.{node.attr}")
        if isinstance(node.ctx, ast.Store) and not (isinstance(value, property) and value.fset):
            self._complain(node, f"{owner}.{node.attr} can't be set", quiet)
        if isinstance(value, type):
            return f"class {value.__name__}"
        if of_class or isinstance(value, property):
            return None
        return f"{owner}.{node.attr}"

    def _call(self, node: ast.Call, function: str | None, quiet: bool) -> str | None:
        if function is None or function == "module" or ("." not in function and not function.startswith("class ")):
            return None
        if function.startswith("class "):
            name = function.removeprefix("class ")
            overloads, returns = signatures(getattr(self.module, name).__init__), name
        else:
            owner, method = function.split(".")
            overloads, returns = signatures(getattr(getattr(self.module, owner), method)), ""
        fitting = [one for one in overloads if one.accepts(node)]
        if not fitting:
            self._complain(node, f"{function} takes {[o.parameters for o in overloads]}", quiet)
            return None
        name = returns or re.split(r"[.:]+", fitting[0].returns)[-1]
        name = ALIASES.get(name, name)
        return name if hasattr(self.module, name) else None

    def _complain(self, node: ast.AST, text: str, quiet: bool) -> None:
        if not quiet:
            self.problems.append(f"line {getattr(node, 'lineno', '?')}: {ast.unparse(node)}: {text}")
