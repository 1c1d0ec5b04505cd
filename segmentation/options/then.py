"""Reads the option `--then`: further networks, on what others have found."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from segmentation.errors import ConfigError, did_you_mean


@dataclass(frozen=True, slots=True)
class Then:
    """A network on crops of the instances with a label."""

    name: str  # the label of what the network finds
    file: str
    parent: str  # the label of what the network looks at, or the name of an earlier network

    @staticmethod
    def parse(text: str) -> Then:
        """Reads `NAME=FILE@LABEL`. Raises `ConfigError`."""
        name, _, rest = text.partition("=")
        file, _, parent = rest.rpartition("@")
        if not re.fullmatch(r"[\w-]+", name) or not file or not parent:
            raise ConfigError(f"then {text!r}: write NAME=FILE.onnx@LABEL, such as face=face.onnx@person")
        return Then(name, file, parent)

    def label(self, found: str, *, alone: bool) -> str:
        """Returns the label of an instance of the network's class `found`: the name if that class is `alone`."""
        return self.name if alone else f"{self.name}:{found}"

    def looks_at(self, label: str) -> bool:
        """Returns whether the network looks at instances of this label: its parent's, of all or of one class."""
        return is_called(label, self.parent)


def is_called(label: str, name: str) -> bool:
    """Returns whether instances of this label have the name: that of a class, or of a network, whatever its class."""
    return label == name or label.startswith(f"{name}:")


def parse_all(texts: Sequence[str]) -> tuple[Then, ...]:
    """Returns the networks in their order. Raises `ConfigError` for names that can't be."""
    networks = tuple(map(Then.parse, texts))
    for number, network in enumerate(networks):
        if network.name in {other.name for other in networks[:number]}:
            raise ConfigError(f"then: two networks are called {network.name!r}; give each a name of its own")
        parent = network.parent.partition(":")[0]
        if parent == network.name:
            raise ConfigError(f"then: {network.name} would look at what it finds itself; give it another name")
        if parent in {other.name for other in networks[number:]}:
            raise ConfigError(f"then: {network.name} looks at {network.parent}, which is found later; put it first")
    return networks


def networks_on(texts: Sequence[str], labels: Sequence[str]) -> tuple[Then, ...]:
    """Returns the networks in their order, on what is found of `labels`. Raises `ConfigError`."""
    networks, known = parse_all(texts), list(labels)
    for then in networks:
        if then.parent not in known and then.parent.partition(":")[0] not in known:
            proposal = did_you_mean(then.parent, known)
            raise ConfigError(
                f"then {then.name}: nothing is called {then.parent!r}; choose from {', '.join(known)}{proposal}"
            )
        known.append(then.name)
    return networks
