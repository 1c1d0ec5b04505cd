"""The native decoder's library belongs to the sources that it was built from."""

import runpy
import shutil
from pathlib import Path

from native_nvdec import compiler

from segmentation.stages.decode.native import build


def test_a_library_of_other_sources_is_not_taken(tmp_path: Path) -> None:
    """As after an update of a checkout: it reads other structures."""
    for path in Path(build.__file__).parent.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    earlier = runpy.run_path(str(tmp_path / "build.py"))["BUILT"]
    with (tmp_path / "driver.h").open("a") as file:
        file.write("// updated\n")
    updated = runpy.run_path(str(tmp_path / "build.py"))
    assert earlier.name == build.BUILT.name != updated["BUILT"].name
    earlier.parent.mkdir()
    earlier.touch()
    updated["build_library"](updated["BUILT"], f"env {compiler()}")  # a command of two words, as `ccache g++`
    assert list(earlier.parent.iterdir()) == [updated["BUILT"]]
