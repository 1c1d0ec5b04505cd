"""A description is the same whether packets and pixels are read for it or not."""

from dataclasses import fields
from pathlib import Path

import pytest
from make_variants import VARIANTS
from variants import made

from segmentation.media.opening import probe as module
from segmentation.media.opening.open_input import open_input
from segmentation.media.opening.probe import probe

SHOWN = (
    "h264-closed.mp4",
    "h264-open.mp4",
    "h264-field-pictures.mp4",
    "h264-fragmented.mp4",
    "h264-priming.mp4",
    "h264-edit-leaves-out.mp4",
    "h264-intra-refresh.mp4",
    "hevc-10-bit.mp4",
    "hevc-edit-begins-late.mp4",
)
OTHERS = [variant.name for variant in VARIANTS if variant.name not in SHOWN and "index-last" not in variant.name]


def check(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(name, folder)
    brief = probe(str(path))
    monkeypatch.setattr(module, "open_input", lambda source, access, *, brief: open_input(source, access))
    monkeypatch.setattr(module, "without_pixels", lambda codec, packet: b"")
    monkeypatch.setattr(module, "samples_in", lambda video: None)
    whole = probe(str(path))
    for field in fields(brief):
        assert getattr(brief, field.name) == getattr(whole, field.name), field.name


@pytest.mark.parametrize("name", SHOWN)
def test_a_description_needs_no_pixels_and_few_packets(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(name, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_other_descriptions_need_none_either(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(name, tmp_path, monkeypatch)
