"""The check of an output finds what the decoder has done wrong, by decoding the input a second time."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import wrong_decoders
from marks import first
from paths import SAMPLE
from quick import segment

from segmentation import OutputError
from segmentation.frames import Frame, FrameBatch
from segmentation.pipeline.planning.implementations import IMPLEMENTATIONS, Implementation
from segmentation.pipeline.verification.thumbnails import thumbnails


@pytest.fixture(autouse=True)
def wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enters the wrong decoders into the plan's table, as implementations of their own."""
    names = [name for name, kind in vars(wrong_decoders).items() if isinstance(kind, type)]
    table = IMPLEMENTATIONS["decode"] | {name: Implementation(f"wrong_decoders:{name}") for name in names}
    monkeypatch.setitem(IMPLEMENTATIONS, "decode", table)


def run(source: Path, tmp_path: Path, decoder: str, **options: Any) -> Any:
    given: dict[str, Any] = {"max_frames": 40, "effect": "color", "refine": False} | options
    return segment(source, tmp_path / "out.mp4", decode=decoder, verify=True, **given).verified


def truncated(folder: Path) -> Path:
    """The sample without its second half, but with its index: half of the frames are missing."""
    import av

    whole = folder / "whole.mp4"
    with av.open(str(SAMPLE)) as given, av.open(str(whole), "w", options={"movflags": "faststart"}) as container:
        stream = given.streams.video[0]
        copy = container.add_stream_from_template(stream)
        for packet in given.demux(stream):
            if packet.size:
                packet.stream = copy
                container.mux(packet)
    path = folder / "cut.mp4"
    path.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    return path


def test_the_same_frames_pass(tmp_path: Path) -> None:
    assert run(SAMPLE, tmp_path, "Right").frames == 40


@pytest.mark.parametrize(
    ("decoder", "figure"),
    first(
        3,
        [
            (
                "Doubles",
                "frame 1 of the input is that of 0.016667 s, and when it is decoded a second time it is that of 0.033",
            ),
            ("Drops", "frame 9 of the input is that of 0.333333 s"),
            ("LosesPacked", "frame 3 of the input is that of 0.133333 s"),
            ("LosesLast", "it lacks the input's last 3 frames, from 4.900000 s on"),
            ("Garbage", "frame 20 of the input is another picture"),
            ("Resizes", "frame 30 of the input is another picture"),
            ("Shifts", "frame 6 of the input is that of 0.2000"),
        ],
    ),
)
def test_what_a_decoder_does_wrong_is_found(tmp_path: Path, decoder: str, figure: str) -> None:
    with pytest.raises(OutputError, match="verification failed") as caught:
        run(SAMPLE, tmp_path, decoder, max_frames=None if decoder == "LosesLast" else 40)
    assert figure in str(caught.value)


@pytest.mark.slow
def test_damage_that_was_not_reported_is_found(tmp_path: Path) -> None:
    source = truncated(tmp_path)
    assert run(source, tmp_path, "Right", max_frames=None).frames > 60
    with pytest.raises(OutputError, match=r"\d+ frames of the input are damaged, and none was reported"):
        run(source, tmp_path, "HidesDamage", max_frames=None, overwrite=True)


def test_thumbnails_of_both_sides_are_equal() -> None:
    """Those of tensors as those of arrays, for sizes that eight divides or not, and of less than eight rows."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    dice = np.random.default_rng(3)
    for height, width in ((48, 64), (51, 70), (5, 9), (1, 1)):
        planes = dice.integers(0, 256, (3, height, width), np.uint8)
        frames = tuple(Frame(planes=(plane,) * 3, pts=i, duration=1) for i, plane in enumerate(planes))
        on_gpu = FrameBatch(frames=frames, index=0, planes=(torch.from_numpy(planes),))
        there = thumbnails(on_gpu, SimpleNamespace(stream=None))  # type: ignore[arg-type]
        assert np.allclose(there.numpy(), thumbnails(FrameBatch(frames=frames, index=0), None), atol=1e-3)


@pytest.mark.parametrize("effect", ["mask", "overlay"])
def test_frames_are_counted_with_every_effect(tmp_path: Path, effect: str) -> None:
    with pytest.raises(OutputError, match="frame 9 of the input"):
        run(SAMPLE, tmp_path, "Drops", effect=effect, max_frames=20)
