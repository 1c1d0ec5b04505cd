"""`--log-format`: lines on stderr for programs that collect them."""

import json
import re
from pathlib import Path

import pytest
from fake_session import FakeSegmenter

from segmentation.cli.main import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def arguments(tmp_path: Path, session: type[FakeSegmenter]) -> list[str]:
    """Names an input that is there and one that is not."""
    there = tmp_path / "there \N{CJK UNIFIED IDEOGRAPH-4E00} [bold].mp4"
    there.write_bytes(b"v")
    return [str(there), str(tmp_path / "missing.mp4")]


def test_each_line_is_a_json_object(arguments: list[str], capfd: Capture) -> None:
    assert main([*arguments, "--log-format", "json"]) == 1
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert all(list(line) == ["time", "level", "message"] for line in lines)
    assert {line["level"] for line in lines if "missing.mp4" in line["message"]} == {"error"}
    assert any("\N{CJK UNIFIED IDEOGRAPH-4E00} [bold]" in line["message"] for line in lines if line["level"] == "info")


def test_each_line_begins_with_time_and_level(arguments: list[str], capfd: Capture) -> None:
    assert main([*arguments, "--log-format", "times"]) == 1
    lines = capfd.readouterr().err.splitlines()
    form = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d (info|error) \S")
    assert lines and all(form.match(line) for line in lines)


def test_a_later_run_has_plain_lines_again(arguments: list[str], capfd: Capture) -> None:
    main([*arguments, "--log-format", "json"])
    capfd.readouterr()
    main(arguments)
    assert capfd.readouterr().err.startswith("segmentation: error: ")
