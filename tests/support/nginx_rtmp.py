"""An RTMP server that others wrote: nginx with its module of RTMP, as Debian's libnginx-mod-rtmp has it."""

import shutil
import socket
import subprocess
import time
from pathlib import Path
from pipes import has_port
from types import TracebackType

MODULE = Path("/usr/lib/nginx/modules/ngx_rtmp_module.so")
MISSING = shutil.which("nginx") is None or not MODULE.exists()

_SETTINGS = """
load_module {module};
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/log info;
events {{ }}
rtmp {{ server {{ listen 127.0.0.1:{port}; application live {{ live on; }} }} }}
"""


class NginxRtmp:
    """Passes on what is published, while the context lasts. `down` kills it, `up` starts it again on the same port."""

    def __init__(self, folder: Path) -> None:
        """`folder` gets its settings and its log."""
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self._settings, self._log = folder / "settings", folder / "log"
        self._settings.write_text(_SETTINGS.format(module=MODULE, folder=folder, port=self.port))

    def url(self, key: str) -> str:
        return f"rtmp://127.0.0.1:{self.port}/live/{key}"

    def up(self) -> None:
        self._process = subprocess.Popen(["nginx", "-e", self._log, "-c", self._settings])
        while not has_port(self.port):
            assert self._process.poll() is None, self._log.read_text()
            time.sleep(0.01)

    def down(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> "NginxRtmp":
        self.up()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.down()
