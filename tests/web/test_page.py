"""The page in Chromium: a file is dropped, looked at with other options, and rendered."""

import shutil
import signal
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from paths import SAMPLE
from program import cli
from served import Served

PIXELS = """() => { const image = document.getElementById('result'), canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
  const context = canvas.getContext('2d'); context.drawImage(image, 0, 0);
  return canvas.toDataURL('image/png').split(',')[1]; }"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A video of two people side by side."""
    path = tmp_path_factory.mktemp("pair") / "pair.mp4"
    with av.open(str(SAMPLE)) as source, av.open(str(path), "w") as target:
        stream: Any = target.add_stream("libx264", rate=30)
        stream.width, stream.height, stream.pix_fmt = 960, 360, "yuv420p"
        for frame, _ in zip(source.decode(video=0), range(20), strict=False):
            half = frame.to_ndarray(format="rgb24")[:, 80:560]
            target.mux(stream.encode(av.VideoFrame.from_ndarray(np.hstack([half, half[:, ::-1]]), "rgb24")))
        target.mux(stream.encode(None))
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("Chromium is not installed")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def shared(pair: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that has the video, for tests that don't look at other tests' renders."""
    with Served(tmp_path_factory.mktemp("shared"), "--files", pair.parent) as served:
        yield served


def shown(page: Any, before: str = "") -> NDArray[np.uint8]:
    """Waits until the stage has been drawn again after `before`; returns its pixels."""
    page.wait_for_selector(f"#stage[data-shown]:not([data-shown='{before}'])", timeout=120_000)
    picture = cv2.imdecode(np.frombuffer(b64decode(page.evaluate(PIXELS)), np.uint8), cv2.IMREAD_COLOR_RGB)
    return np.asarray(picture, np.uint8)


def state(page: Any) -> str:
    return str(page.get_attribute("#stage", "data-shown"))


def sharp(picture: NDArray[np.uint8]) -> tuple[float, float]:
    """Returns how much detail the left half and the right half have."""
    halves = np.array_split(cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY), 2, axis=1)
    left, right = (float(cv2.Laplacian(half, cv2.CV_64F).var()) for half in halves)
    return left, right


def test_a_video_is_looked_at_and_rendered(pair: Path, browser: Any, tmp_path: Path) -> None:
    with Served(tmp_path / "work") as served:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        other: list[str] = []
        page.on(
            "request",
            lambda asked: other.append(asked.url) if not asked.url.startswith((served.url, "blob:")) else None,
        )
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(served.url)
        page.set_input_files("#file", pair)
        first = shown(page)
        assert first.shape == (360, 960, 3)

        before = state(page)
        page.fill("#strength", "90")
        stronger = shown(page, before)
        assert np.abs(stronger.astype(int) - first).mean() > 1

        before = state(page)
        page.focus("#time")
        page.keyboard.press("ArrowRight")  # the keyboard alone reaches the next frame
        assert np.any(shown(page, before) != stronger)
        assert page.text_content("#clock") == "0.03 s"

        both = sharp(shown(page, before))
        before = state(page)
        page.click("#pick")
        box = page.locator("#result").bounding_box()
        page.mouse.click(box["x"] + box["width"] * 0.25, box["y"] + box["height"] * 0.5)
        left, right = sharp(shown(page, before))
        assert left > 0.9 * both[0] and right < 0.5 * both[1]  # the other one is blurred

        before = state(page)
        page.fill("#compare", "50")  # the input lies over the left half
        shown(page, before)
        assert page.evaluate("getComputedStyle(document.getElementById('before')).clipPath") == "inset(0px 50% 0px 0px)"
        assert page.evaluate("document.getElementById('before').naturalWidth") == 960

        page.click("#render")
        page.wait_for_selector("li.done", timeout=120_000)
        with page.expect_download() as download:
            page.click("li.done a")
        download.value.save_as(tmp_path / "out.mp4")
        with av.open(str(tmp_path / "out.mp4")) as made:
            frames = [frame.to_ndarray(format="rgb24") for frame in made.decode(video=0)]
        assert len(frames) == 20
        for frame in (frames[0], frames[-1]):
            left, right = sharp(np.asarray(frame, np.uint8))
            assert left > 2 * right
        page.reload()
        page.wait_for_selector("li.done")
        assert not errors and not other
        page.close()


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_narrow_windows_and_has_no_unnamed_controls(dark: bool, shared: Served, browser: Any) -> None:
    page = browser.new_page(viewport={"width": 360, "height": 800}, color_scheme="dark" if dark else "light")
    page.goto(shared.url)
    page.select_option("#inputs", "files/pair.mp4")
    shown(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert back == ("rgb(20, 22, 26)" if dark else "rgb(244, 245, 247)")
    unnamed = """[...document.querySelectorAll('button, input, select, a')].filter((one) => one.offsetParent &&
        !(one.labels?.length || one.ariaLabel || one.textContent.trim())).map((one) => one.outerHTML)"""
    assert page.evaluate(unnamed) == []
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for cover in ("", "faces"):
        before = state(page)
        page.select_option("#cover", cover)
        shown(page, before)
        found = axe.run(page)
        assert found.violations_count == 0, found.generate_report()
    before = state(page)
    page.select_option("#cover", "")
    before = (shown(page, before), state(page))[1]
    page.focus("#add")
    for key in ["Enter", "Space", "ArrowRight", "ArrowDown", "Space"]:  # a stroke by the keyboard alone
        page.keyboard.press(key)
    before = (shown(page, before), state(page))[1]
    assert page.text_content("#corrections button") == "0.00 s"
    found = axe.run(page)
    assert found.violations_count == 0, found.generate_report()
    page.keyboard.press("Control+z")
    shown(page, before)
    assert page.locator("#corrections li").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.close()


def drag(page: Any, *shares: tuple[float, float]) -> None:
    """Moves the pressed pointer over the picture, from share to share of its sides."""
    box = page.locator("#result").bounding_box()
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in shares]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=4)
    page.mouse.up()


def test_the_brush_corrects_the_frames_around(shared: Served, pair: Path, browser: Any, tmp_path: Path) -> None:
    def removed(picture: NDArray[np.uint8]) -> bool:
        """Returns whether the left face is as green as the background, and the right one is there."""
        green = picture[..., 1].astype(int) - picture[..., 0] > 90
        assert not green[150:200, 680:760].any()
        return bool(green[150:200, 225:275].mean() > 0.9)

    page = browser.new_page(viewport={"width": 1280, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(shared.url)
    page.select_option("#inputs", "files/pair.mp4")
    before = (shown(page), state(page))[1]
    page.select_option("#effect", "color")
    before = (shown(page, before), state(page))[1]
    page.fill("#time", "10")
    assert not removed(shown(page, before))

    before = state(page)
    page.fill("#brush", "30")
    before = (shown(page, before), state(page))[1]
    page.click("#remove")
    drag(page, (0.24, 0.45), (0.28, 0.5))
    assert removed(shown(page, before))
    before = state(page)
    page.keyboard.press("Control+z")
    assert not removed(shown(page, before)) and page.locator("#corrections li").count() == 0
    before = state(page)
    drag(page, (0.24, 0.45), (0.28, 0.5))
    before = (shown(page, before), state(page))[1]
    page.fill("#time", "14")  # it has gone along
    assert removed(shown(page, before)) and page.locator("#marks i").count() == 1

    with page.expect_download() as saved:
        page.click("#save")
    saved.value.save_as(tmp_path / saved.value.suggested_filename)
    assert saved.value.suggested_filename == "pair.project.json"
    page.click("#render")
    page.wait_for_selector("li.done", timeout=120_000)
    with page.expect_download() as download:
        page.click("li.done a")
    download.value.save_as(tmp_path / "page.mp4")

    page.reload()
    page.select_option("#inputs", "files/pair.mp4")
    before = (shown(page), state(page))[1]
    page.set_input_files("#opened", tmp_path / "pair.project.json")
    before = (shown(page, before), state(page))[1]
    assert page.text_content("#corrections button") == "0.33 s" and page.input_value("#effect") == "color"
    page.click("#corrections button")
    assert removed(shown(page, before))
    (tmp_path / "none.json").write_text("{}")
    page.set_input_files("#opened", tmp_path / "none.json")
    page.wait_for_selector("#message:text('none.json: This is no project file.')")
    assert not errors
    page.close()
    made = cli(pair, "-o", tmp_path / "command.mp4", "--project", tmp_path / "pair.project.json")
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "command.mp4").read_bytes() == (tmp_path / "page.mp4").read_bytes()
    with av.open(str(tmp_path / "page.mp4")) as video:
        frames = [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]
    assert len(frames) == 20 and all(removed(np.asarray(frames[number], np.uint8)) for number in range(4, 17))


def test_a_face_is_chosen_and_taken_back(shared: Served, browser: Any) -> None:
    def covered(picture: NDArray[np.uint8]) -> tuple[bool, bool]:
        """Returns whether the left face and the right one are black."""
        return bool(picture[150:200, 225:255].max() < 60), bool(picture[150:200, 705:735].max() < 60)

    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(shared.url)
    page.select_option("#cover", "faces")
    page.select_option("#inputs", "files/pair.mp4")
    before = (shown(page), state(page))[1]
    page.fill("#time", "10")
    assert covered(shown(page, before)) == (True, True)
    before = state(page)
    page.click("#face")
    drag(page, (0.25, 0.48))
    assert covered(shown(page, before)) == (False, True)
    before = state(page)
    page.select_option("#whose", "only")
    assert covered(shown(page, before)) == (True, False)
    assert page.text_content("#command").endswith("--anonymize faces --only 'at 240,173@0.333'")
    before = state(page)
    page.click("#faces button:text('Remove')")
    before = (shown(page, before), state(page))[1]
    assert covered(shown(page)) == (True, True) and page.locator("#faces li").count() == 0

    page.click("#face")
    drag(page, (0.02, 0.02))  # nobody is there: that is said, and the choice is as before
    page.wait_for_selector("#message:text('nobody is at 19,7 at 0.333 s; choose a point on someone')")
    assert page.locator("#faces li").count() == 0 and state(page) == before
    page.select_option("#cover", "")
    before = (shown(page, before), state(page))[1]
    page.click("#pick")
    drag(page, (0.02, 0.02))
    page.wait_for_selector("#message:not(:empty)")
    assert page.text_content("#picked") == "" and state(page) == before
    page.close()


def test_the_token_is_asked_for_once(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a token of some length")
    with Served(tmp_path / "work", "--token-file", tmp_path / "token", "--files", SAMPLE.parent) as served:
        context = browser.new_context()
        page = context.new_page()
        page.goto(served.url)
        assert page.url == f"{served.url}login"
        page.fill("#token", "another")
        page.click("text=Log in")
        page.wait_for_selector("#message:text-is('the token is another')")
        page.fill("#token", "a token of some length")
        page.keyboard.press("Enter")
        page.wait_for_url(served.url)
        page.select_option("#inputs", f"files/{SAMPLE.name}")
        shown(page)
        context.close()
        plain = browser.new_context(java_script_enabled=False)
        page = plain.new_page()
        page.goto(served.url)
        page.fill("#token", "a token of some length")
        page.keyboard.press("Enter")
        page.wait_for_url(served.url)
        plain.close()


@pytest.mark.slow
def test_regions_are_drawn_timed_and_removed(pair: Path, browser: Any, tmp_path: Path) -> None:
    with Served(tmp_path / "work", "--files", pair.parent) as served:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(served.url)
        page.select_option("#inputs", "files/pair.mp4")
        before = (shown(page), state(page))[1]
        page.select_option("#cover", "regions")  # of which there is none yet
        before = (shown(page, before), state(page))[1]
        assert page.is_visible("#undrawn") and page.is_disabled("#render")
        assert page.text_content("#message") == "" and not page.is_visible("#told")
        page.click("#region")
        drag(page, (0.1, 0.1), (0.2, 0.3))
        picture = shown(page, before)  # only the region is covered
        assert picture[50:100, 110:180].max() < 30 < picture[150:].mean()
        assert not page.is_visible("#undrawn") and page.is_enabled("#render")
        before = state(page)
        page.select_option("#cover", "faces")
        assert shown(page, before)[150:200, 200:260].mean() < 60

        before = state(page)
        page.focus("#draw")  # a second one by the keyboard alone, from where the pointer was
        for key in ["Space", *["Shift+ArrowRight"] * 4, "Shift+ArrowDown", "Space"]:
            page.keyboard.press(key)
        covered = shown(page, before)
        assert covered[112:150, 200:380].max() < 30
        page.keyboard.press("Escape")
        assert page.evaluate("document.activeElement.id") == "region"
        before = state(page)
        page.fill("#regions li:nth-child(2) input[name=from]", "0.5")
        assert shown(page, before)[112:150, 200:380].max() > 60  # at 0 s it is not there yet
        before = state(page)
        page.focus("#regions li:first-child button")
        page.keyboard.press("Enter")
        assert shown(page, before)[50:100, 110:180].max() > 60
        command = page.text_content("#command")
        assert "--anonymize faces --region 192,108," in command and command.endswith("@0.5-")
        page.click("#render")
        page.wait_for_selector("li.done", timeout=120_000)
        assert page.text_content("li.done p") == "faces covered, 20 frames"
        page.close()


@pytest.mark.slow
def test_a_render_is_cancelled_and_goes_on_after_a_killed_server(browser: Any, tmp_path: Path) -> None:
    work = tmp_path / "work"
    with Served(work, "--files", SAMPLE.parent) as served:
        page = browser.new_page()
        page.goto(served.url)
        page.select_option("#inputs", f"files/{SAMPLE.name}")
        shown(page)
        page.click("#render")
        page.click("li.running button")
        page.wait_for_selector("li.cancelled", timeout=120_000)
        page.click("#render")
        page.wait_for_selector("li.running", timeout=120_000)
        served.process.send_signal(signal.SIGKILL)
        served.process.wait()
        page.click("#forward")
        page.wait_for_selector("#message:text-is('The server does not answer.')", timeout=120_000)
        page.close()
    with Served(work) as served:
        ids = [job["id"] for job in served.json("api/jobs")]
        assert len(ids) == 2
        assert served.until(ids[0], "done", "failed")["frames"] == 150
        assert served.until(ids[1], "cancelled")["output"] is None


@pytest.mark.slow
def test_the_result_is_played_until_it_is_stopped(pair: Path, browser: Any, tmp_path: Path) -> None:
    with Served(tmp_path / "work") as served:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(served.url)
        page.set_input_files("#file", pair)
        first = shown(page)
        before = state(page)
        page.click("#play")
        page.wait_for_selector("#clock:has-text('0.63 s')", timeout=120_000)  # of the last frame
        page.wait_for_selector("#play[aria-label=Play]", timeout=120_000)
        assert not np.array_equal(first, shown(page, before))
        page.click("#play")
        page.wait_for_selector("#play[aria-label=Pause]")
        page.click("#play")
        page.wait_for_selector("#play[aria-label=Play]")
        assert not page.text_content("#message")
