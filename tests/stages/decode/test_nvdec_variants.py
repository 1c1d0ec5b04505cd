"""Videos of all kinds are decoded on NVDEC as by FFmpeg, or refused with a reason."""

from pathlib import Path

import pytest
from make_variants import VARIANTS
from native_nvdec import nvdec
from side_differences import compare
from variant_forms import Variant
from variants import DAMAGED, made, side

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", ["gpu", pytest.param("gpu-nvdec", marks=pytest.mark.slow)])
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_both_sides_show_the_same(variant: Variant, name: str, tmp_path: Path) -> None:
    found = compare(str(made(variant.name, tmp_path)), side("cpu"), side(name), masks=0)
    if variant.name.startswith(DAMAGED):  # each decoder conceals in its own way
        assert "refusal" not in found.kinds, found.text
    else:
        assert not found.kinds or found.explained, found.text


@pytest.mark.parametrize("name", ["flipped-40-bits-h264.mp4", "flipped-bits-mpeg4.mp4"])
def test_damage_that_nvdec_conceals_is_counted(name: str, tmp_path: Path) -> None:
    found = compare(str(made(name, tmp_path)), side("cpu"), side("gpu"), masks=0)
    assert found.right.decoder == nvdec() and found.left.damaged and found.right.damaged


@pytest.mark.parametrize("name", ["hevc-begins-with-cra.mkv", "hevc-begins-with-cra.ts", "h264-no-idr.ts"])
def test_a_stream_that_begins_with_no_idr_picture_is_whole(name: str, tmp_path: Path) -> None:
    for _ in range(3):
        found = compare(str(made(name, tmp_path)), side("cpu"), side("gpu"), masks=0)
        assert found.right.decoder == nvdec() and not found.kinds, found.text
