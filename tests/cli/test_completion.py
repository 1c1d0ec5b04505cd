"""Completion in shells: the scripts are read by the shells themselves, which are asked for proposals."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

pytest.importorskip("shtab", reason="shtab, which writes the scripts, is not installed")

from segmentation.cli.arguments import make_parser
from segmentation.cli.build_engine import make_parser as make_build_parser
from segmentation.cli.completion import SHELLS, script
from segmentation.options.effect import KINDS

# What is typed, and the words that are proposed for its end, in a folder with two files.
TYPED = [
    ("--eff", {"--effect"}),
    ("--codec h", {"h264", "hevc"}),
    ("--effect bl", {"blur"}),
    ("--effect blur --infer t", {"torch", "torch-fp16", "torch-instances", "tensorrt"}),
    ("--preset ultra", {"ultrafast"}),
    ("--device c", {"cpu", "cuda:0", "coreml"}),
    ("-o be", {"beach.jpg"}),
    ("-q --effect blur cl", {"clip.mp4"}),
    ("clip.mp4 cl", {"clip.mp4"}),
]
ASK = {
    # In place of readline, which has no terminal here.
    "bash": """source {script}; COMP_WORDS=(segmentation {typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_shtab_segmentation 2>&1; printf '%s\\n' "${{COMPREPLY[@]}}" """,
    "fish": "source {script}; complete -C 'segmentation {typed}'",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two files, and in another one the scripts and a program of the name, without which fish is mute."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "files").mkdir()
    for name in ("beach.jpg", "clip.mp4"):
        (tmp_path / "files" / name).touch()
    for shell in SHELLS:
        (tmp_path / "bin" / shell).write_text(script(make_parser(), shell))
    (tmp_path / "bin" / "segmentation").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "segmentation").chmod(0o755)
    return tmp_path / "files"


def asked(shell: str, folder: Path, typed: str) -> list[str]:
    """Returns the words that a shell proposes, without their descriptions."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    scripts = folder.parent / "bin"
    done = subprocess.run(
        [shell, "-c", ASK[shell].format(script=scripts / shell, typed=typed)],
        cwd=folder,
        env={"PATH": f"{scripts}:/usr/bin:/bin", "HOME": str(scripts)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0 and done.stderr == ""
    return [line.partition("\t")[0] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("shell", ASK)
@pytest.mark.parametrize(("typed", "proposed"), TYPED, ids=[typed for typed, _ in TYPED])
def test_proposals(shell: str, typed: str, proposed: set[str], folder: Path) -> None:
    assert set(asked(shell, folder, typed)) == proposed


def test_effects_with_files(folder: Path) -> None:
    assert set(asked("bash", folder, "--effect ''")) == {k + ":" * (k in ("image", "video")) for k in KINDS}
    # More than one proposal, so that bash puts no space behind the colon. Behind it, bash begins a new word.
    assert asked("bash", folder, "--effect ima") == ["image:", "image:beach.jpg", "image:clip.mp4"]
    assert asked("bash", folder, "--effect image : be") == ["beach.jpg"]
    assert asked("bash", folder, "--also mas") == ["mask:", "mask:beach.jpg", "mask:clip.mp4"]


def test_effects_with_files_in_fish(folder: Path) -> None:
    assert asked("fish", folder, "--effect ima") == ["image:"]
    assert asked("fish", folder, "--also mask:cl") == ["mask:clip.mp4"]


def test_zsh_reads_the_script(folder: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    read = 'autoload -Uz compinit; compinit -D -u; eval "$(cat $1)"; print ${(j: :)_comps[segmentation]}'
    done = subprocess.run(
        ["zsh", "-f", "-c", read, "zsh", folder.parent / "bin" / "zsh"], capture_output=True, text=True, timeout=240
    )
    assert (done.stdout.strip(), done.stderr) == ("_shtab_segmentation", "")


@pytest.mark.parametrize("module", ["segmentation.cli.main", "segmentation.cli.build_engine"])
def test_both_commands_print_a_script(module: str) -> None:
    program = f"import sys; from {module} import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "--print-completion", "bash"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and done.stderr == ""
    assert "--print-completion" in done.stdout and "SUPPRESS" not in done.stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_every_option_is_in_the_scripts(shell: str) -> None:
    for parser in (make_parser(), make_build_parser()):
        text = script(parser, shell)
        for action in parser._actions:
            for option in action.option_strings:
                assert (option if shell != "fish" else f" {option.lstrip('-')} ") in text
