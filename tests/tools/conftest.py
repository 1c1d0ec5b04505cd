"""Fixtures that the tests of training share."""

from pathlib import Path

import pytest
from paths import SHARED


@pytest.fixture(scope="module")
def shared() -> Path:
    """The folder of pictures that networks are trained on, which lies beside the repository."""
    if not (SHARED / "people" / "INDEX.tsv").is_file():
        pytest.skip(f"the pictures are not here: {SHARED / 'people'} is missing")
    return SHARED
