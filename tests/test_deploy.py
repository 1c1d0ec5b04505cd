"""The files in `deploy/` name options and figures that the program has."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import ROOT

from segmentation.cli.arguments import config_from, parse
from segmentation.cli.serve import make_serve_parser
from segmentation.sessions import status_server, workers_status
from segmentation.sessions.workers_status import WorkersStatus

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").iterdir())
DASHBOARD = DEPLOY / "grafana" / "dashboard.json"


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yields the arguments of the program in each file, which YAML has as lists of JSON's. Variables are filled in."""

    def filled(word: str) -> str:
        word = re.sub(r"\$[({](CAMERA|ADDRESS)[^)}]*[)}]", "rtsp://camera/stream", word.replace("%%", "%"))
        return word.replace("${STATUS}", ":9100").replace("%i", "hall")

    for path in [DEPLOY / "compose.yaml", *sorted((DEPLOY / "kubernetes").iterdir())]:
        for found in re.findall(r"^ *(?:command|args):\s*(\[.*?\])$", path.read_text(), flags=re.M | re.S):
            yield path.name, [filled(word) for word in json.loads(found)]
    for path in UNITS:
        (line,) = re.findall(r"^ExecStart=\S+/segmentation (.*)$", path.read_text(), flags=re.M)
        yield path.name, [filled(word) for word in shlex.split(line)]


def exported(folder: Path) -> set[str]:
    """Returns the names of all figures, with those that a histogram has."""
    app = pytest.importorskip("segmentation.web.app")
    from segmentation.web.store import Store

    workers = WorkersStatus(workers=(), videos=(), alive=0, frames=0, done=0, left=0, redone=0)
    lines = [*status_server.metrics([]), *workers_status.metrics(workers)]
    store = Store(folder)
    lines += app.metrics(store.counts(), 0)
    store.close()
    found = dict(line.split()[2:4] for line in lines if line.startswith("# TYPE"))
    return {f"{name}_bucket" if kind == "histogram" else name for name, kind in found.items()}


def named(text: str) -> set[str]:
    """Returns the names of figures in expressions."""
    return set(re.findall(r"\bsegmentation_[a-z_]+\b", text))


def test_each_command_is_one_of_the_program() -> None:
    found = list(commands())
    assert len(found) == 2 + 3 + 2
    for name, arguments in found:
        if arguments[0] == "serve":
            options = make_serve_parser().parse_args(arguments[1:])
            assert options.host == "0.0.0.0" and options.token_file and options.work, name
        else:
            options = parse(arguments)
            config = config_from(options)
            (source,) = options.inputs
            live = source.startswith("hall=rtsp://camera")
            assert live == (config.cut_every is not None) == (options.status is not None), name


def test_the_dashboard_shows_all_figures_and_no_others(tmp_path: Path) -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert named(" ".join(expressions)) == exported(tmp_path)
    places = [tuple(panel["gridPos"][side] for side in "xy") for panel in dashboard["panels"]]
    assert len(set(places)) == len(places) and len({panel["id"] for panel in dashboard["panels"]}) == len(places)


def test_alerts_are_about_figures_that_are_there(tmp_path: Path) -> None:
    rules = re.sub(r"name: segmentation$", "", (DEPLOY / "alerts.yml").read_text(), flags=re.M)
    found = named(rules)
    assert found and found <= exported(tmp_path)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_prometheus_reads_its_files(tmp_path: Path) -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    expressions = [one.replace("$__rate_interval", "1m").replace("$stream", ".*") for one in expressions]
    rules = [{"record": f"panel:{number}", "expr": one} for number, one in enumerate(expressions)]
    (tmp_path / "panels.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    for what in (("config", "--syntax-only", DEPLOY / "prometheus.yml"), ("rules", tmp_path / "panels.yml")):
        done = subprocess.run(["promtool", "check", *what], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    done = subprocess.run(["promtool", "check", "rules", DEPLOY / "alerts.yml"], capture_output=True, text=True)
    assert done.returncode == 0 and "7 rules" in done.stdout, done.stderr


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_wait_for_ready(path: Path) -> None:
    assert "\nType=notify\n" in path.read_text()
