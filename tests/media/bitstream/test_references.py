"""Whether other pictures may refer to one, by the first slice of its packet."""

import pytest

from segmentation.media.bitstream.references import Reference, reference

START = b"\0\0\1"


def hevc(kind: int, layer: int) -> bytes:
    return START + bytes([kind << 1, layer + 1]) + b"slice"


@pytest.mark.parametrize(
    ("codec", "data", "expected"),
    [
        ("h264", START + b"\x01slice", Reference(False, 0)),
        ("h264", START + b"\x21slice", Reference(True, 0)),
        ("h264", START + b"\x65slice", Reference(True, 0)),
        ("h264", START + b"\x09\xf0" + START + b"\x06\x01" + START + b"\x01slice", Reference(False, 0)),
        ("h264", START + b"\x68\x01" + START + b"\x01slice", Reference(True, 0)),  # a parameter set first
        ("h264", b"", Reference(True, 0)),
        ("hevc", hevc(0, 0), Reference(False, 0)),  # TRAIL_N
        ("hevc", hevc(1, 0), Reference(True, 0)),
        ("hevc", hevc(2, 2), Reference(False, 2)),  # TSA_N
        ("hevc", hevc(14, 0), Reference(False, 0)),  # RSV_VCL_N14
        ("hevc", hevc(19, 0), Reference(True, 0)),  # IDR
        ("hevc", hevc(39, 0) + hevc(8, 1), Reference(False, 1)),  # SEI, RASL_N
        ("hevc", hevc(34, 0) + hevc(0, 0), Reference(True, 0)),  # PPS
        ("vp9", b"\x80", Reference(True, 0)),
    ],
)
def test_references(codec: str, data: bytes, expected: Reference) -> None:
    assert reference(codec, data) == expected
