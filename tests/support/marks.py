"""Marks of tests."""

from collections.abc import Iterable
from typing import Any

import pytest

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
"""Values of the option `device`."""


def first(count: int, cases: Iterable[Any]) -> list[Any]:
    """Returns the cases of a parametrization, of which all but the first `count` are marked slow."""
    cases = list(cases)
    rest = (case if isinstance(case, tuple) else (case,) for case in cases[count:])
    return [*cases[:count], *(pytest.param(*case, marks=pytest.mark.slow) for case in rest)]
