"""Pieces lie side by side, begin at keyframes, and are long enough."""

import itertools
import random
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from videos import Synthetic

from segmentation import Config, InputError
from segmentation.media.opening.probe import probe
from segmentation.scale.plan import GOPS, LONGEST, SHORTEST, VideoPlan, config_of, cut, options_of, plan_video

BASE = Fraction(1, 100)


def video(gops: list[int], step: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Times and keys of a video with groups of so many pictures, of 25 a second."""
    times = np.arange(sum(gops), dtype=np.int64) * step
    begins = np.cumsum([0, *gops[:-1]])
    return times, np.repeat(times[begins] - 8, gops)


@pytest.mark.parametrize("seed", range(30))
def test_pieces_cover_the_wanted_frames_and_no_others(seed: int) -> None:
    dice = random.Random(seed)
    times, keys = video([dice.randint(1, 300) for _ in range(dice.randint(1, 60))])
    first = dice.randrange(len(times))
    wanted = range(first, dice.randint(first + 1, len(times)))
    pieces = list(cut(times, keys, BASE, wanted, 50))
    assert sum(piece.frames for piece in pieces) == len(wanted)
    assert pieces[0].begin is None and pieces[0].decode is None and pieces[0].lead is None
    last = pieces[-1]
    assert last.end == last.tail == (int(times[wanted.stop]) if wanted.stop < len(times) else None)
    at = wanted.start
    begins = times[np.flatnonzero(np.diff(keys, prepend=keys[0] - 1))].tolist()
    for piece in pieces:
        assert piece.cuts is not None and piece.cuts[0] == times[at] and sorted(set(piece.cuts)) == list(piece.cuts)
        if at > wanted.start:
            assert piece.begin == times[at] and piece.begin in begins
            assert piece.lead == times[max(wanted.start, at - 2)]
            assert piece.decode is None or (piece.decode in begins and piece.decode <= piece.lead)
        at += piece.frames
    for piece, after in itertools.pairwise(pieces):
        assert piece.end == after.begin and after.begin is not None
        begin = times[wanted.start] if piece.begin is None else piece.begin
        assert (after.begin - begin) * BASE >= SHORTEST


def test_short_groups_make_pieces_of_several_and_long_ones_pieces_of_one() -> None:
    times, keys = video([25] * 100)
    assert {piece.frames for piece in list(cut(times, keys, BASE, range(2500), 50))[:-1]} == {25 * GOPS}
    times, keys = video([250] * 20)
    assert {piece.frames for piece in cut(times, keys, BASE, range(5000), 50)} == {25 * LONGEST}


def test_a_plan_is_text_and_back(tmp_path: Path) -> None:
    source = Synthetic(codec="libx264", pts=range(250), gop=10).write(tmp_path / "a.mp4")
    config = Config(start=Fraction(1, 3), also=[("mask", tmp_path / "m.mkv")], classes=("person",), overwrite=True)
    plan = plan_video(probe(str(source)), tmp_path / "b.mp4", config, recurrent=False)
    assert len(plan.pieces) > 1
    assert VideoPlan.from_json(plan.as_json()) == plan
    assert (
        plan.config == Config(start=Fraction(1, 3), also=[("mask", str(tmp_path / "m.mkv"))], classes=("person",))
        and config_of(options_of(Config())) == Config()
    )


def test_limits_of_the_stretch_are_those_of_the_pieces(tmp_path: Path) -> None:
    source = Synthetic(codec="libx264", pts=range(500), gop=10).write(tmp_path / "a.mp4")
    info = probe(str(source))

    def frames(**options: float) -> int:
        return plan_video(info, tmp_path / "b.mp4", Config(**options), recurrent=False).frames  # type: ignore[arg-type]

    assert frames() == 500
    assert frames(start=2.02) == 500 - 51
    assert frames(start=2.02, duration=10) == 250
    assert frames(start=2.02, max_frames=300) == 300


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("a.mp4", {"interval": 3}, "--interval chooses its keys from the first frame on"),
        ("a.avi", {}, "does not say when frames are shown|don't tell the times of all frames"),
    ],
)
def test_what_is_not_cut_is_one_piece_with_a_reason(
    name: str, options: dict[str, int], reason: str, tmp_path: Path
) -> None:
    codec = "mpeg4" if name.endswith(".avi") else "libx264"
    source = Synthetic(codec=codec, pts=range(250), gop=10, options={"bf": "2"}).write(tmp_path / name)
    plan = plan_video(probe(str(source)), tmp_path / "b.mp4", Config(**options), recurrent=False)  # type: ignore[arg-type]
    assert len(plan.pieces) == 1 and plan.cuts.times is None

    assert re.search(reason, plan.uncut)


def test_other_work_is_told_apart(tmp_path: Path) -> None:
    source = Synthetic(codec="libx264", pts=range(25)).write(tmp_path / "a.mp4")

    def plan(**options: int) -> VideoPlan:
        return plan_video(probe(str(source)), tmp_path / "b.mp4", Config(**options), recurrent=False)  # type: ignore[arg-type]

    before = plan()
    assert before.is_same_work(plan()) and not before.is_same_work(plan(quality=20))
    Synthetic(codec="libx264", pts=range(26)).write(tmp_path / "a.mp4")
    assert not before.is_same_work(plan())
    source.unlink()
    with pytest.raises(InputError):
        plan()
