"""Outputs that are video devices: FFmpeg writes them, here to a file that stands in for the device."""

import os
import shutil
import subprocess
from pathlib import Path
from pipes import COMMAND

import numpy as np
import pytest
from paths import ROOT, SAMPLE
from program import TIMEOUT, cli

from segmentation.media.output_stream import OutputDevice, as_target
from segmentation.options.config import Config

SOURCE = ROOT / "tests" / "support" / "video_device" / "device.c"
SIZE = 640 * 360


def test_a_file_needs_its_own_speed() -> None:
    done = cli(SAMPLE, "-o", "/dev/video77")
    assert done.returncode == 2 and "add --pace" in done.stderr


@pytest.mark.parametrize(("name", "device"), [("/dev/video0", True), ("/dev/video", False), ("video0", False)])
def test_devices_are_known_by_their_names(name: str, device: bool) -> None:
    assert isinstance(as_target(name, Config()), OutputDevice) == device


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_a_device_gets_whole_frames_of_420(tmp_path: Path) -> None:
    library, written = tmp_path / "device.so", tmp_path / "written.yuv"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    done = subprocess.run(
        [*COMMAND, "--pace", SAMPLE, "-o", "/dev/video77", "--effect", "mask", "--duration", "1", "-q"],
        env={**os.environ, "LD_PRELOAD": str(library), "VIDEO_DEVICE": str(written)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert (done.returncode, done.stderr) == (0, "")
    frames = np.fromfile(written, np.uint8).reshape(-1, SIZE * 3 // 2)
    assert len(frames) > 3 and (frames[:, SIZE:] == 128).all()  # a mask has no colors
    assert (((frames[:, :SIZE] > 125).mean(axis=1) > 0.3) & (frames[:, :SIZE].min(axis=1) == 16)).all()
