"""The options that name instances."""

import pytest

from segmentation import ConfigError
from segmentation.options.config import Config
from segmentation.options.effect import Effect
from segmentation.options.instances import CountPlace, Keep, Pick
from segmentation.options.review import Named


def test_they_are_read() -> None:
    assert Keep.parse("id:3, 7") == Keep(frozenset({3, 7}))
    assert Keep.parse("first").criterion == "first"
    assert Pick.parse("640,360.5@1:02.5") == Pick((640, 360.5), 62.5)
    assert Pick.parse("50%,25%@2").place((640, 360)) == (320, 90)
    assert Pick.parse("50,25@2").place((640, 360)) == (50, 25)
    assert Named.parse("at 0,100%@2").pick == Pick((0, 100), 2, percent=True)
    assert CountPlace.parse("line:1,2,3,4").points == ((1, 2), (3, 4))
    assert len(CountPlace.parse("zone:0,0,9,0,9,9").points) == 3
    assert CountPlace.parse("line:50%, 0%,50%,100%").corners((640, 360)) == ((320, 0), (320, 360))
    assert CountPlace.parse("line:50,0,50,100").corners((640, 360)) == ((50, 0), (50, 100))
    assert (Effect.parse("blur:40@face").label, Effect.parse("blur:40@face").strength) == ("face", 40)
    assert Effect.parse("image:me@home.jpg").label == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": "largst"}, "largest"),
        ({"keep": "id:0"}, "ids are whole numbers from 1 on"),
        ({"keep": "id:"}, "ids are whole numbers from 1 on"),
        ({"pick": "3,4"}, "write X,Y@TIME"),
        ({"pick": "3@4"}, "1 numbers"),
        ({"pick": "3,4%@5"}, "some numbers are percent and some are pixels"),
        ({"pick": "3,4@5", "keep": "first"}, "leave out one"),
        ({"count": ("line:1,2,1,2",)}, "two ends that differ"),
        ({"count": ("zone:1,2,3,4",)}, "three corners"),
        ({"count": ("circle:1,2",)}, "line:X1,Y1,X2,Y2"),
        ({"track": "best"}, "fast, balanced, accurate"),
        ({"results_format": "mot"}, "--results"),
        ({"effect": "blur@"}, "EFFECT@LABEL"),
    ],
)
def test_mistakes_get_one_line(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=r"^[^\n]*$") as raised:
        Config(**options)  # type: ignore[arg-type]
    assert message in str(raised.value)


def test_what_needs_ids_implies_a_tracker() -> None:
    assert Config().tracker is None
    assert Config(track="fast", keep="first").tracker == "fast"
    for options in ({"keep": "id:1"}, {"pick": "1,2@3"}, {"count": ("line:1,2,3,4",)}, {"effect": "blur@face"}):
        assert Config(**options).tracker == "balanced"  # type: ignore[arg-type]
