"""CPU time counts also in processes that nobody waits for."""

import subprocess
import sys
import time

from paths import ROOT

sys.path.insert(0, str(ROOT / "tools" / "support"))  # the tools are programs, not a package

from cpu_time import CpuTime

BUSY = "import sys, time\nwhile time.process_time() < 0.4: pass\nsys.stdin.read()"
DAEMON = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {BUSY!r}], start_new_session=True)"


def test_a_daemon_counts_and_a_stranger_does_not() -> None:
    stranger = subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE)
    with (
        CpuTime() as cpu,
        subprocess.Popen([sys.executable, "-c", DAEMON], stdin=subprocess.PIPE, env=cpu.environment) as daemon,
    ):  # whose child reads the same pipe, and ends with it
        deadline = time.monotonic() + 240
        while cpu.seconds < 0.35 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert daemon.stdin is not None
        daemon.stdin.close()
    with CpuTime() as other:
        stranger.communicate()
    assert 0.35 <= cpu.seconds < 5 and other.seconds == 0
