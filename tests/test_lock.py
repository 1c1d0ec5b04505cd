"""`uv.lock` is about the dependencies that `pyproject.toml` names."""

import re
import tomllib
from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from paths import ROOT

Dependency = tuple[str, str, str]  # name, extra, versions


def asked() -> Iterator[Dependency]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extra, texts in {"": project["dependencies"], **project["optional-dependencies"]}.items():
        for text in texts:
            wanted = Requirement(text)
            yield canonicalize_name(wanted.name), extra, ",".join(sorted(str(wanted.specifier).split(",")))


def test_the_lock_is_of_this_project() -> None:
    packages = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    (own,) = (one for one in packages if one["name"] == "video-segmentation")
    locked = set()
    for one in own["metadata"]["requires-dist"]:
        extra = re.search(r"extra == '([\w-]+)'", one.get("marker", ""))
        locked.add((one["name"], extra[1] if extra else "", ",".join(sorted(one.get("specifier", "").split(",")))))
    assert locked == set(asked()), "run `uv lock`"
    assert {one["source"].get("registry", "") for one in packages} == {"", "https://pypi.org/simple"}
