"""What `--except`, `--only` and the lines of `--review` are."""

import math
from pathlib import Path
from typing import Any

import pytest

from segmentation import Config, ConfigError
from segmentation.options.review import Named, corrected_ids, read_corrections


def test_things_are_named_by_ids_or_by_a_point() -> None:
    assert Named.parse("id:3,7").ids == {3, 7}
    pick = Named.parse("at 640,360.5@1:02.5").pick
    assert pick is not None and (pick.point, pick.time) == ((640, 360.5), 62.5)


def test_a_review_has_a_correction_a_line(tmp_path: Path) -> None:
    review = tmp_path / "review.txt"
    review.write_text("# checked on Monday\n\ncover 10%,20%,5%,5%@1.5-2\n  leave id:3,4\nleave id:5@-0:01\n")
    place, always, begun = read_corrections(review)
    assert place.cover and place.region is not None and place.region.percent
    assert [time in place for time in (1.4, 1.5, 2.0)] == [False, True, False]
    assert (always.cover, always.ids, always.begin, always.end) == (False, {3, 4}, 0, math.inf)
    assert (begun.begin, begun.end) == (0, 1)
    assert corrected_ids(("id:1",), (), review) == {1, 3, 4, 5}
    assert read_corrections(None) == ()


def test_a_review_of_an_editor_on_windows(tmp_path: Path) -> None:
    (tmp_path / "review.txt").write_bytes(b"\xef\xbb\xbfcover id:1\r\nleave id:2\r\n")
    assert [line.ids for line in read_corrections(tmp_path / "review.txt")] == [{1}, {2}]


@pytest.mark.parametrize("line", ["hide id:3", "cover", "cover id:x", "leave 1,2,3", "leave id:3@2-1", "cover id:3@2"])
def test_a_line_that_is_none_is_named(tmp_path: Path, line: str) -> None:
    review = tmp_path / "review.txt"
    review.write_text(f"cover id:1\n{line}\n")
    with pytest.raises(ConfigError, match=r"review .*review\.txt, line 2: "):
        read_corrections(review)


def test_a_review_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_corrections(tmp_path / "none.txt")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(ConfigError, match="is no text in UTF-8"):
        read_corrections(tmp_path / "picture.png")


@pytest.mark.parametrize("text", ["3", "at 3@4", "at 1,2", "id:0"])
def test_what_names_nothing_is_told_the_form(text: str) -> None:
    with pytest.raises(ConfigError, match=r"id:N|X,Y|whole numbers from 1"):
        Named.parse(text)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"except_": ("id:1",)}, "except: corrects what --anonymize covers"),
        ({"review": "r.txt"}, "review: corrects what --anonymize covers"),
        ({"anonymize": "people", "only": ("id:1",)}, "only: chooses boxes, of which anonymize people has none"),
        ({"anonymize": "faces", "only": ("id:1",), "except_": ("id:2",)}, "leave out one of them"),
        ({"anonymize": "faces", "except_": ("1",)}, "--except or --only '1': write id:N"),
    ],
)
def test_what_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config(**options)
