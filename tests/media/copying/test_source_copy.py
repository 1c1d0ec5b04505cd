"""Copies of damaged sound: only what damage has hit is left out."""

from pathlib import Path

import av
import pytest
from mpegts import without_packet
from program import report
from quick import cli
from videos import Synthetic, packets

SOUND = 257  # its PID


def damaged(folder: Path, codec: str, *numbers: int) -> tuple[Path, Path]:
    """Returns a file of 4 s, and one that has lost a packet in each PES of sound of these numbers."""
    several = {"max_delay": "700000"}  # microseconds of sound in a PES
    whole = Synthetic(codec="libx264", pts=range(100), audio=codec, container_options=several).write(folder / "a.ts")
    data = whole.read_bytes()
    for number in numbers:
        data = without_packet(data, SOUND, number)
    (folder / "b.ts").write_bytes(data)
    return whole, folder / "b.ts"


@pytest.mark.parametrize("codec", ["aac", "ac3"])
def test_of_a_pes_that_has_lost_a_packet_the_other_frames_are_copied(codec: str, tmp_path: Path) -> None:
    whole, source = damaged(tmp_path, codec, 3)
    with av.open(str(source)) as container:
        marked = [packet.is_corrupt for packet in container.demux(audio=0) if packet.size]
    assert sum(marked) > 1  # all of the PES
    done = cli(source, "-o", tmp_path / "out.mkv", "--verify", "--json")
    assert done.returncode == 0, done.stderr
    header = 7 if codec == "aac" else 0  # of AAC in MPEG-TS alone
    before = {packet.data[header:] for packet in packets(whole, "audio")}
    kept = packets(tmp_path / "out.mkv", "audio")
    assert len(kept) >= len(before) - 2 and sum(p.data not in before for p in kept) <= 2
    assert report(done)["left_out"] == ({} if len(kept) == len(marked) else {"1": len(marked) - len(kept)})


def test_more_than_a_hundredth_of_a_streams_packets_make_the_run_incomplete(tmp_path: Path) -> None:
    """Of a codec whose frames don't state themselves."""
    _, source = damaged(tmp_path, "libopus", 3, 6, 9)
    done = cli(source, "-o", tmp_path / "out.mkv", "--json")
    assert done.returncode == 4 and "damaged packets of its other streams are left out: " in done.stderr
    assert report(done, complete=False)["left_out"]["1"] >= 3
