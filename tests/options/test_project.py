"""Project files come from outside: each fault is one line."""

import json
from pathlib import Path

import numpy as np
import pytest
from projects import project, write_project

from segmentation.errors import ConfigError, InputError
from segmentation.options.config import Config
from segmentation.options.project import LONGEST, parse_project, read_project, with_project

DRAWN = np.zeros((4, 6), np.float32)
DRAWN[1, 2:4], DRAWN[3, 5] = 1, -1
TEXT = project((640, 360), {0.5: DRAWN, 2: -DRAWN}, effect="blur:40", start=1)


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(TEXT)
    read = read_project(str(tmp_path / "a.json"))
    assert read.size == (640, 360) and read.options == {"effect": "blur:40", "start": 1}
    assert [one.time for one in read.corrections] == [0.5, 2]
    assert np.array_equal(read.corrections[0].signed, DRAWN) and np.array_equal(read.corrections[1].signed, -DRAWN)


def test_options_count_where_others_have_their_defaults(tmp_path: Path) -> None:
    path = write_project(tmp_path / "a.json", (640, 360), {}, effect="blur:40", feather=3, threshold=0.4)
    config = with_project(Config(project=path, feather=5))
    assert (config.effect, config.feather, config.threshold) == ("blur:40", 5, 0.4)
    assert with_project(config) == config


def changed(name: str, value: object, correction: str = "") -> str:
    content = json.loads(TEXT)
    (content["corrections"][0] if correction else content)[name] = value
    return json.dumps(content)


FAULTS: list[tuple[str, str]] = [
    ("", "Expecting value"),
    ("[" * 100_000, "nested too deeply"),
    ("[]", "must be an object with segmentation_project"),
    (changed("more", 1), "must be an object with segmentation_project"),
    (changed("segmentation_project", 2), "its version is 2; this program reads 1"),
    (changed("size", [640]), "size must be two whole numbers"),
    (changed("size", [640, 1e9]), "size must be two whole numbers"),
    (changed("input", 3), "input must be text"),
    (changed("options", {"results": "/etc/passwd"}), "'results' is none of these"),
    (changed("options", {"effect": "image:/etc/passwd"}), "names a file"),
    (changed("options", {"threshold": 3}), "must be between 0 and 1"),
    (changed("corrections", [3]), "a correction must be an object with time, size, add, remove"),
    (changed("corrections", [{}] * 10_001), "more than 10000 corrections"),
    (changed("time", -1, "first"), "time -1: must be seconds"),
    (changed("time", True, "first"), "time True: must be seconds"),
    (changed("time", float("nan"), "first"), "time nan: must be seconds"),
    (changed("time", 2, "first"), "times of corrections must rise, and 2 s comes after 2 s"),
    (changed("size", [4, 4096], "first"), "size must be two whole numbers, 1 to 2048"),
    (changed("add", [23], "first"), "add of 0.5 s: the runs must have 4x6 pixels together"),
    (changed("add", [-1, 25], "first"), "add of 0.5 s: must be a list of lengths"),
    (changed("remove", [24.0], "first"), "remove of 0.5 s: must be a list of lengths"),
    (changed("remove", "24", "first"), "remove of 0.5 s: must be a list of lengths"),
    (changed("remove", [0] * 30 + [24], "first"), "the runs must have 4x6 pixels together"),
]


@pytest.mark.parametrize(("text", "message"), FAULTS, ids=range(len(FAULTS)))
def test_faults_are_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_project(text, "a.json")
    assert message in str(caught.value) and "\n" not in str(caught.value) and str(caught.value).startswith("a.json: ")


def test_files_that_are_none(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.json"):  # as --review has it
        with pytest.raises(ConfigError, match=r"directory"):
            read_project(str(path))
    with pytest.raises(InputError, match=r"no project file that can be used .it is nested too deeply"):
        parse_project("[" * 1000 + "]" * 1000, "a.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\x00")
    with pytest.raises(InputError, match="is no project file"):
        read_project(str(tmp_path / "bytes.json"))
    with (tmp_path / "long.json").open("wb") as file:
        file.truncate(LONGEST + 1)
    with pytest.raises(InputError, match="is longer than"):
        read_project(str(tmp_path / "long.json"))
