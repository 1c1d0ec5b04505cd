"""The API: what requests get, who may ask, and what is left after failures."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import av
import cv2
import numpy as np
import pytest
from barcode import read
from child_processes import children
from documents import command_lines, fenced, words
from numbered import numbered
from numpy.typing import NDArray
from paths import ROOT, SAMPLE
from program import cli, file_limit
from projects import project
from served import Served, multipart

from segmentation import Segmenter
from segmentation.options.config import Config

SMALL = {"max_frames": 3, "smooth": 0}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    numbered(folder / "numbered.mp4", 60, options={"g": "25"}, size=(320, 192))
    (folder / "notes.txt").write_text("no video")
    (folder / "out.mp4").symlink_to(SAMPLE)  # leads out of the folder
    with Served(folder / "work", "--files", folder, "--max-upload", "1M") as made:
        made.files = folder
        yield made


def detail(answer: tuple[int, bytes, dict[str, str]]) -> tuple[int, str]:
    status, body, headers = answer
    assert headers["content-type"] == "application/problem+json"
    text = json.loads(body)["detail"]
    assert "\n" not in text and "/served" not in text
    return status, text


def test_a_job_makes_what_the_command_makes(served: Served, tmp_path: Path) -> None:
    id = served.job({"file": SAMPLE, "options": {"effect": "blur:40", **SMALL}})
    job = served.until(id, "done", "failed")
    assert job["state"] == "done" and job["frames"] == 3 and job["complete"] and job["error"] is None
    status, body, headers = served.ask(f"api/jobs/{id}/output")
    assert status == 200 and headers["content-disposition"] == f'attachment; filename="{job["output"]}"'
    assert headers["content-type"] == "video/mp4" and headers["x-content-type-options"] == "nosniff"
    words = job["command"].split()
    assert cli(SAMPLE, "-o", tmp_path / "out.mp4", *words[2:]).returncode == 0
    assert body == (tmp_path / "out.mp4").read_bytes()
    status, part, _ = served.ask(f"api/jobs/{id}/output", headers={"Range": "bytes=100-199"})
    assert status == 206 and part == body[100:200]
    events = served.ask(f"api/jobs/{id}/events")[1].decode()
    assert json.loads(events.removeprefix("data: "))["state"] == "done"
    assert served.ask(f"api/jobs/{id}", method="DELETE")[0] == 204
    assert detail(served.ask(f"api/jobs/{id}"))[0] == 404


def test_names_of_any_length_have_an_output(served: Served, tmp_path: Path) -> None:
    long = tmp_path / f"{'é' * 122}.mp4"
    shutil.copy(SAMPLE, long)
    job = served.until(served.job({"file": long, "options": SMALL}), "done", "failed")
    assert job["error"] is None and job["name"] == long.name and job["output"] == f"{'é' * 100}.mp4"
    assert served.ask(f"api/jobs/{job['id']}/output")[0] == 200


@pytest.mark.slow
def test_jobs_have_workers(tmp_path: Path) -> None:
    with Served(tmp_path / "work", "--workers", "local:2") as served:
        job = served.until(served.job({"file": SAMPLE, "options": SMALL}), "done", "failed")
        assert job["state"] == "done" and job["frames"] == 3
    done = cli("serve", "--work", tmp_path / "work", "--workers", "two")
    assert done.returncode == 2 and "'two': write local:N, auto or ray[:ADDRESS]" in done.stderr


def test_the_manuals_requests(served: Served, tmp_path: Path) -> None:
    program = shutil.which("curl")
    if program is None:
        pytest.skip("curl is not installed")
    (tmp_path / "input.mp4").write_bytes((served.files / "numbered.mp4").read_bytes())
    cv2.imwrite(str(tmp_path / "photo.jpg"), np.zeros((64, 64, 3), np.uint8))
    (block,) = (block for block in fenced(ROOT / "docs" / "serve.md", "sh") if "curl" in block)
    id, ran = "", []
    for line in command_lines(block):
        if "example.com" in line:
            continue
        line = (
            line.replace("localhost:8400/", served.url)
            .replace("/ID", f"/{id}")
            .replace("files/input", "files/numbered")
        )
        done = subprocess.run([program, "-sSf", *words(line)[1:]], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, (line, done.stderr)
        ran.append(done.stdout)
        id = json.loads(done.stdout)["id"] if line.endswith('# {"id": "..."}') else id
        if "/events" in line:  # they end with the job
            assert json.loads(done.stdout.rpartition("data: ")[2])["state"] == "done"
    assert len(ran) == 7 and json.loads(ran[1])["id"] == id
    assert {"input.segmented.mp4", "mask.png", "frame.jpg"} < {path.name for path in tmp_path.iterdir()}
    assert served.ask(f"api/jobs/{id}")[0] == 404


def test_a_crash_takes_nothing_along(served: Served, tmp_path: Path) -> None:
    broken = tmp_path / "<b>broken.mp4"
    broken.write_bytes(SAMPLE.read_bytes()[:1000])
    job = served.until(served.job({"file": broken, "options": {}}), "done", "failed")
    assert job["state"] == "failed" and "\n" not in job["error"] and "<b>broken.mp4" in job["error"]
    assert str(served.process.pid) and served.ask("healthz")[0] == 200


def test_a_job_whose_process_is_killed_fails_alone(served: Served) -> None:
    id = served.job({"file": SAMPLE, "options": {"smooth": 0}})
    served.until(id, "running")
    while not (processes := children(served.process.pid, "job_process")):
        time.sleep(0.01)
    os.kill(processes[0], signal.SIGKILL)
    job = served.until(id, "failed", "done")
    assert job["state"] == "failed" and job["error"].startswith(f"{SAMPLE.name}: its process was ended by signal 9")
    assert served.until(served.job({"file": SAMPLE, "options": SMALL}), "failed", "done")["state"] == "done"


def rendered(served: Served) -> int:
    return int(served.ask("metrics")[1].decode().split()[-1])


def test_frames_that_nobody_waits_for_are_not_rendered(served: Served) -> None:
    wanted = {"source": "files/numbered.mp4", "view": "input"}
    assert served.ask("api/frames", wanted)[0] == 200
    before = rendered(served)
    (previews,) = children(served.process.pid, "preview_process")
    data, kind = multipart(wanted)
    head = (
        f"POST /api/frames HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    address = urlsplit(served.url)
    os.kill(previews, signal.SIGSTOP)
    try:
        gone = [socket.create_connection((str(address.hostname), address.port or 0)) for _ in range(6)]
        for connection in gone:
            connection.sendall(head.encode() + data)
            connection.close()
            assert served.ask("healthz")[0] == 200  # the server has seen the end of the connection
    finally:
        os.kill(previews, signal.SIGCONT)
    assert served.ask("api/frames", wanted)[0] == 200
    assert rendered(served) - before in (1, 2)  # the first one may have begun


def test_a_crash_of_a_preview_takes_nothing_along(served: Served) -> None:
    wanted = {"source": "files/numbered.mp4", "view": "input"}
    assert served.ask("api/frames", wanted)[0] == 200
    (previews,) = children(served.process.pid, "preview_process")
    os.kill(previews, signal.SIGSTOP)
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(served.ask, "api/frames", wanted)
        os.kill(previews, signal.SIGKILL)
        if answer.result()[0] != 200:  # the request was first
            assert detail(answer.result())[1].startswith(
                "numbered.mp4: the process that reads it was ended by signal 9"
            )
    assert served.ask("api/frames", wanted)[0] == 200
    assert children(served.process.pid, "preview_process") != [previews]


@pytest.mark.parametrize("time, number", [(0.0, 0), (1.0, 30), (1.3667, 41), (1.9667, 59), (2.0, 59)])
def test_frames_are_exact(served: Served, time: float, number: int) -> None:
    fields = {"source": "files/numbered.mp4", "time": str(time), "view": "input", "width": "320"}
    status, body, headers = served.ask("api/frames", fields)
    assert status == 200 and headers["content-type"] == "image/jpeg"
    picture = cv2.imdecode(np.frombuffer(body, np.uint8), cv2.IMREAD_GRAYSCALE)
    assert read(np.asarray(picture, np.uint8))[0] == number


def test_a_time_behind_the_end_has_no_frame(served: Served) -> None:
    answer = detail(served.ask("api/frames", {"source": "files/numbered.mp4", "time": "2.1"}))
    assert answer == (422, "time 2.1: the video ends at 2 s")


def test_frames_show_regions_in_their_time(served: Served) -> None:
    options = {"effect": "color:#ff0000", "region": ["40,60,100,80@0.5-1", "0%,0%,10%,10%"]}
    for at, covered in ((0.4, False), (0.5, True), (1.0, False)):
        fields = {"source": "files/numbered.mp4", "time": str(at), "width": "320", "options": options}
        picture = cv2.imdecode(np.frombuffer(served.ask("api/frames", fields)[1], np.uint8), cv2.IMREAD_COLOR_RGB)
        red = np.asarray(picture, int)[..., 0] - np.asarray(picture, int)[..., 1] > 200
        assert red[2:16, 2:28].all() and red[64:136, 44:136].all() == covered and red[64:136, 44:136].any() == covered
        assert not red[160:, 160:].any()
    made = served.json("api/command", {"name": "a.mp4", "options": options})["command"]
    assert made.endswith("--region 40,60,100,80@0.5-1 --region 0%,0%,10%,10%")


@pytest.mark.parametrize("kinds", ["faces", "heads", "faces,people"])
def test_faces_are_covered_in_pictures_and_frames(kinds: str, served: Served, tmp_path: Path) -> None:
    with av.open(str(SAMPLE)) as container:
        picture = next(container.decode(video=0)).to_ndarray(format="rgb24")
    cv2.imwrite(str(tmp_path / "a.png"), cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
    for file in (tmp_path / "a.png", SAMPLE):
        fields = {"file": file, "view": "mask", "width": "640", "options": {"anonymize": kinds}}
        mask = cv2.imdecode(np.frombuffer(served.ask("api/frames", fields)[1], np.uint8), cv2.IMREAD_GRAYSCALE)
        assert mask is not None and mask[180, 350] < 50
        assert kinds != "faces" or (mask[:, :200].min() > 200 and mask[:30].min() > 200)


def test_a_file_that_changes_is_shown_as_it_is_now(served: Served, tmp_path: Path) -> None:
    wanted = {"source": "files/changing.mp4", "time": "0.5", "view": "input", "width": "320"}
    for size in ((320, 192), (160, 96)):
        new = numbered(tmp_path / "new.mp4", 20, size=size)
        new.rename(served.files / "changing.mp4")
        picture = cv2.imdecode(np.frombuffer(served.ask("api/frames", wanted)[1], np.uint8), cv2.IMREAD_GRAYSCALE)
        assert picture is not None and picture.shape == (size[1], size[0])


@pytest.mark.slow
def test_corrections_are_shown_and_rendered(served: Served, tmp_path: Path) -> None:
    drawn = np.zeros((90, 160), np.float32)
    drawn[30:60, 72:104] = -1  # the face
    options = {"effect": "color:#ff0000", "smooth": 0, "max_frames": 5}
    source = served.json("api/inputs", {"file": SAMPLE})["id"]
    fields = {"source": source, "options": options, "project": project((640, 360), {0.1: drawn})}

    def covered(picture: NDArray[np.uint8]) -> bool:
        red = picture[..., 0].astype(int) - picture[..., 1] > 150
        assert not red[70:100, 300:400].all()  # the hair stays
        return bool(red[140:220, 310:390].mean() > 0.95)

    for seconds in (0.1, 0.2):
        shown = served.ask("api/frames", {**fields, "time": str(seconds), "width": "640"})[1]
        assert covered(np.asarray(cv2.imdecode(np.frombuffer(shown, np.uint8), cv2.IMREAD_COLOR_RGB), np.uint8))
    _, body, headers = served.ask("api/frames", {**fields, "time": "0.1", "view": "correction"})
    levels = cv2.imdecode(np.frombuffer(body, np.uint8), cv2.IMREAD_GRAYSCALE)
    assert headers["content-type"] == "image/png" and levels is not None and set(np.unique(levels)) == {0, 128}

    job = served.until(served.job(fields), "done", "failed")
    assert job["state"] == "done" and job["options"]["project"] == "project.json"
    assert f"--project {SAMPLE.stem}.project.json" in job["command"]
    (tmp_path / "out.mp4").write_bytes(served.ask(f"api/jobs/{job['id']}/output")[1])
    with av.open(str(tmp_path / "out.mp4")) as made:
        assert all(covered(frame.to_ndarray(format="rgb24")) for frame in made.decode(video=0))

    wrong = {**fields, "project": project((64, 64), {0.1: drawn})}
    assert detail(served.ask("api/frames", wrong)) == (415, "project: is for a.mp4, 64x64; this video is 640x360")
    broken = {**fields, "project": fields["project"].replace('"add": [', '"add": [1, ')}
    assert "the runs must have" in detail(served.ask("api/jobs", broken))[1]


def test_masks_are_those_of_the_session(served: Served, tmp_path: Path) -> None:
    with av.open(str(SAMPLE)) as container:
        picture = next(container.decode(video=0)).to_ndarray(format="rgb24")
    cv2.imwrite(str(tmp_path / "a.png"), cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
    status, body, headers = served.ask("api/masks", {"file": tmp_path / "a.png"})
    assert status == 200 and headers["content-type"] == "image/png"
    mask = cv2.imdecode(np.frombuffer(body, np.uint8), cv2.IMREAD_GRAYSCALE)
    with Segmenter() as segmenter:
        assert np.array_equal(mask, np.rint(255 * segmenter.masks(picture)))
    status, text = detail(served.ask("api/masks", {"file": SAMPLE}))
    assert status == 415 and text.startswith(f"{SAMPLE.name}: is no single picture")
    (tmp_path / "junk.jpg").write_bytes(bytes(range(7, 256)) * 9)
    assert detail(served.ask("api/masks", {"file": tmp_path / "junk.jpg"})) == (
        415,
        "junk.jpg: is no picture that can be read",
    )


def test_a_video_named_as_a_picture_becomes_a_video(served: Served, tmp_path: Path) -> None:
    shutil.copy(SAMPLE, tmp_path / "a.jpg")
    id = served.job({"file": tmp_path / "a.jpg", "options": SMALL})
    job = served.until(id, "done", "failed")
    assert job["state"] == "done" and job["frames"] == 3 and job["output"] == "a.segmented.mp4"


REFUSED = [
    ({"options": {"threshold": 2}}, 422, "threshold 2.0: must be between 0 and 1, both excluded"),
    ({"options": {"results": "/tmp/x"}}, 422, "options: 'results' is none of these"),
    ({"options": {"effect": "image:/etc/passwd"}}, 422, "names a file, which is refused here"),
    ({"options": {"model": "/tmp/x.onnx"}}, 422, "choose person, person-hq, person-best"),
    (
        {"options": {"anonymize": "plates=/tmp/x.onnx"}},
        422,
        "names a file, which is refused here; choose faces, heads or people",
    ),
    ({"options": {"anonymize": "people,faces=/tmp/x.onnx"}}, 422, "names a file, which is refused here"),
    ({"options": {"region": ["1,2"]}}, 422, "region '1,2': write X,Y,WIDTH,HEIGHT"),
    ({"options": "{"}, 422, "options: are no JSON"),
    ({"options": f'{{"quality": {"1" * 5000}}}'}, 422, "options: are no JSON (Exceeds the limit (4300 digits)"),
    ({"options": []}, 422, "options: must be a JSON object"),
    ({"webhook": "http://127.0.0.1/done"}, 422, "is private, which the server refuses"),
    ({"source": "files/../notes.txt"}, 404, "no such input"),
    ({"source": "files/notes.txt"}, 404, "no such input"),
    ({"source": "files/out.mp4"}, 404, "no such input"),
    ({"source": "rtsp://127.0.0.1/x"}, 404, "no such input"),
    ({"source": "files/\0.mp4"}, 404, r"'files/\x00.mp4': no such input"),
    ({"source": f"files/{'x' * 5000}.mp4"}, 404, "xxx...: no such input"),
    ({"source": ""}, 422, "file, source: both are missing"),
    ({"source": "file:///etc/passwd"}, 404, "no such input"),
]


@pytest.mark.parametrize("fields, status, text", REFUSED)
def test_bad_requests_get_one_line(served: Served, fields: dict[str, Any], status: int, text: str) -> None:
    answer = detail(served.ask("api/jobs", {"source": "files/numbered.mp4", **fields}))
    assert answer[0] == status and text in answer[1]


def test_methods_and_files_of_the_folder(served: Served) -> None:
    status, _, headers = served.ask("api/jobs", method="TRACE")
    assert (status, headers["allow"]) == (405, "GET, HEAD, POST")
    assert detail(served.ask("api/inputs/files/numbered.mp4", method="DELETE"))[0] == 403
    assert served.ask("api/inputs/files/numbered.mp4")[0] == 200


def test_uploads_have_a_limit(served: Served, tmp_path: Path) -> None:
    (tmp_path / "long.mp4").write_bytes(bytes((1 << 20) + 1))
    assert detail(served.ask("api/jobs", {"file": tmp_path / "long.mp4"}))[0] == 413
    (tmp_path / "long.mp4").write_bytes(bytes(50 << 20))  # the answer comes although the connection ends with it
    assert detail(served.ask("api/jobs", {"file": tmp_path / "long.mp4"}))[0] == 413
    assert detail(served.ask("api/jobs", {"file": SAMPLE, "options": "x" * 70_000}))[0] == 413


def test_a_private_address_is_refused_from_the_first(served: Served) -> None:
    with socket.create_server(("127.0.0.1", 0)) as private:
        address = f"http://127.0.0.1:{private.getsockname()[1]}/a.mp4"
        job = served.until(served.job({"source": address}), "failed", "done")
        assert job["state"] == "failed" and job["error"].endswith("private address 127.0.0.1, which is refused")


def test_other_sites_and_other_names_are_refused(served: Served) -> None:
    fields = {"source": "files/numbered.mp4", "options": SMALL}
    before = len(served.json("api/jobs"))
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        assert detail(served.ask("api/jobs", fields, headers))[0] == 403
    assert detail(served.ask("", headers={"Host": "evil.example"}))[0] == 403
    for headers in ({"Host": "[::1"}, {"Host": "[zz]"}, {"Origin": "http://["}):
        assert detail(served.ask("api/jobs", fields, headers)) == (
            400,
            "the header Host or Origin has no address that can be read",
        )
    assert len(served.json("api/jobs")) == before
    page = served.ask("")
    assert page[0] == 200 and "default-src 'self'" in page[2]["content-security-policy"]


def test_elsewhere_a_token_is_needed(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    wrong = cli("serve", "--port", "99999", "--work", tmp_path / "work")
    assert wrong.returncode == 2 and "give 0 to 65535" in wrong.stderr
    refused = cli("serve", "--host", "0.0.0.0", "--work", tmp_path / "work")
    assert refused.returncode == 2 and "--token-file FILE" in refused.stderr
    (tmp_path / "token").write_text("a token of some length\n")
    with Served(tmp_path / "work", "--token-file", tmp_path / "token") as served:
        assert detail(served.ask("api/jobs"))[0] == 401
        assert detail(served.ask("api/jobs", headers={"Authorization": "Bearer a token"}))[0] == 401
        assert served.ask("api/jobs", headers={"Authorization": "Bearer a token of some length"})[0] == 200
        assert detail(served.ask("login", {"token": "another"}))[0] == 403
        connection = socket.create_connection(("127.0.0.1", int(served.url.rsplit(":", 1)[1].strip("/"))))
        with connection:
            body = b'--b\r\nContent-Disposition: form-data; name="token"\r\n\r\na token of some length\r\n--b--\r\n'
            head = "POST /login HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\n"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
            answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        cookie = answer.partition("set-cookie: ")[2].partition("\r\n")[0]
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "a token" not in cookie
        assert served.ask("api/jobs", headers={"Cookie": cookie.partition(";")[0]})[0] == 200
        assert served.ask("healthz")[0] == 200


def test_two_servers_in_one_folder(served: Served, tmp_path: Path) -> None:
    with Served(tmp_path / "work") as first:
        second = cli("serve", "--port", "0", "--work", tmp_path / "work")
    assert second.returncode == 2 and "another server works in this folder" in second.stderr
    assert first.process.returncode == 0  # by SIGTERM


def test_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "long.mp4").write_bytes(bytes(50 << 20))
    with Served(tmp_path / "work", "--files", SAMPLE.parent, before=file_limit(150_000)) as served:
        assert detail(served.ask("api/inputs", {"file": tmp_path / "long.mp4"}))[0] == 507
        status, text = detail(served.ask("api/inputs", {"file": SAMPLE}))
        assert status == 507 and "can't be written" in text
        assert list((tmp_path / "work" / "inputs").iterdir()) == []
        assert served.json("api/jobs") == []
        fields = {"source": f"files/{SAMPLE.name}", "options": {"codec": "ffv1", **SMALL}}
        job = served.until(served.job(fields), "failed", "done")
        assert job["state"] == "failed" and job["error"].startswith(f"{SAMPLE.stem}.segmented.mkv: cannot be written")


def test_the_description_has_the_options_of_config(served: Served) -> None:
    described = served.json("api/openapi.json")
    options = described["components"]["schemas"]["Options"]["properties"]
    assert options["threshold"].items() >= {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}.items()
    assert options["codec"]["anyOf"][0]["enum"] == ["h264", "hevc", "av1", "ffv1", "mjpeg"]
    for name, schema in options.items():
        assert schema["default"] == json.loads(json.dumps(getattr(Config(), name)))


def test_the_description_has_all_of_the_api(served: Served) -> None:
    routes = re.findall(r'Route\("(/api/[^"]+)"', (ROOT / "segmentation" / "web" / "app.py").read_text())
    described = served.json("api/openapi.json")["paths"]
    assert {*described} == {route.replace(":path", "") for route in routes} - {"/api/openapi.json"}


def test_figures_for_machines(served: Served) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    families = list(parser.text_string_to_metric_families(served.ask("metrics")[1].decode()))
    states = {sample.labels["state"] for sample in families[0].samples}
    assert [family.name for family in families] == ["segmentation_jobs", "segmentation_previews"]
    assert states == {"queued", "running", "done", "failed", "cancelled"}
    assert served.ask("readyz")[0] == 200
