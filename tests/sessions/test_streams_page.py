"""The page of streams in a browser: it shows pictures, states and figures, and goes on after losses."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser
from numpy.typing import NDArray
from rtsp_server import RtspServer

from segmentation import Streams

pytestmark = pytest.mark.slow

STATES = "Object.fromEntries([...document.querySelectorAll('article')].map((a) => [a.dataset.name, a.className]))"
PICTURES = "[...document.querySelectorAll('img.shown')].filter((image) => image.naturalWidth).length"


def keep(batch: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.ones((len(batch), 32, 32), np.float32)


@pytest.fixture
def streams() -> Iterator[Streams]:
    options: dict[str, Any] = {"model": keep, "device": "cpu", "input_size": (64, 64), "smooth": 0.0, "stall": 1.0}
    with Streams(reconnect="0.1..0.2", **options) as made:
        yield made


@pytest.mark.parametrize("dark", [False, True])
def test_it_shows_pictures_states_and_figures_and_goes_on(dark: bool, streams: Streams, tmp_path: Path) -> None:
    with RtspServer(fps=10) as hall, RtspServer(fps=10) as gate, Browser(tmp_path / "profile", dark=dark) as browser:
        strange = "<img src=x onerror=alert(1)>"
        browser.open(streams.serve(":0"))
        browser.until("document.getElementById('summary').textContent", lambda text: text == "0 of 0 up")
        streams.add("hall", hall.url(), tmp_path / "hall.mkv")
        streams.add("gate", gate.url(), tmp_path / "gate.mkv")
        browser.until(STATES, lambda states: states == {"hall": "up", "gate": "up"})
        browser.until(PICTURES, lambda count: count == 2)
        first = browser.value("document.querySelector('img').src")
        browser.until("document.querySelector('img').src", lambda source: source != first)
        browser.until("document.querySelectorAll('dd')[2].textContent", lambda shown: int(shown) > 10)
        assert browser.value("document.getElementById('summary').textContent") == "2 of 2 up"
        colors = browser.value("getComputedStyle(document.body).backgroundColor")
        assert colors == ("rgb(20, 22, 26)" if dark else "rgb(244, 245, 247)")

        browser.value("document.querySelector('summary').click()")  # what the figures' tooltips have, without a mouse
        browser.until("document.querySelector('details[open] ul').textContent", lambda text: "received; " in text)

        gate.refuse()
        gate.reset()
        browser.until(STATES, lambda states: states == {"hall": "up", "gate": "lost"})
        before = int(browser.value("document.querySelectorAll('dd')[2].textContent"))
        browser.until("document.querySelectorAll('dd')[2].textContent", lambda shown: int(shown) > before + 10)
        gate.accept()
        browser.until(STATES, lambda states: states == {"hall": "up", "gate": "up"})

        streams.add("roof", f"rtsp://{strange.replace(' ', '%20')}@127.0.0.1:1/cam", tmp_path / "roof.mkv")
        browser.until(STATES, lambda states: states.get("roof") == "failed")
        assert browser.value("document.querySelectorAll('article .error')[2].textContent")
        assert browser.value("document.querySelectorAll('article img').length") == 3
        browser.screenshot(tmp_path / "page.png")
        streams.close()
        browser.until("document.body.className", lambda name: name == "away")


@pytest.mark.parametrize("count", [1, 9])
def test_the_pictures_fill_the_window(count: int, streams: Streams, tmp_path: Path) -> None:
    with RtspServer(size=(192, 108), fps=2) as camera, Browser(tmp_path / "profile") as browser:
        for number in range(count):
            streams.add(f"camera-{number}", camera.url(), tmp_path / f"{number}.mkv", max_delay=20.0)
        browser.open(streams.serve(":0"))
        browser.until(PICTURES, lambda found: found == count)
        assert browser.value("document.documentElement.scrollWidth") <= 1280
        widths = browser.value("[...document.querySelectorAll('article')].map((card) => card.offsetWidth)")
        assert len(set(widths)) == 1 and 300 <= widths[0] <= 960
        browser.screenshot(tmp_path / "page.png")
