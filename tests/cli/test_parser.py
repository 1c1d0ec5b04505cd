"""The parsers of both commands: help, versions, and that nothing is taken for something else."""

import json
import re
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TypeAlias

import av
import photos
import pytest

import segmentation
from segmentation.cli.arguments import make_parser, parse
from segmentation.cli.build_engine import main as build
from segmentation.cli.build_engine import make_parser as make_build_parser
from segmentation.cli.main import main
from segmentation.cli.parser import Parser
from segmentation.cli.serve import main as serve
from segmentation.options.config import OPTIONS

Command: TypeAlias = Callable[[list[str]], int]

# Options without a default to name.
WITHOUT_DEFAULT = set("--print-completion --trust --baseline --optimized".split())


def refused(command: Command, *arguments: str, capfd: pytest.CaptureFixture[str]) -> str:
    """Returns the one line that argparse prints below the usage."""
    with pytest.raises(SystemExit) as caught:
        command(["clip.mp4", *arguments])
    assert caught.value.code == 2
    _, line = capfd.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("command", [main, build])
def test_help(command: Command, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        command(["--help"])
    assert caught.value.code == 0
    out = capfd.readouterr().out
    assert "exit codes: 0 done" in out and "examples:\n  segmentation" in out


def test_the_help_names_everyday_options_and_where_all_are(capfd: pytest.CaptureFixture[str]) -> None:
    texts = []
    for option in ("--help", "--help-all"):
        with pytest.raises(SystemExit) as caught:
            main([option])
        assert caught.value.code == 0
        texts.append(capfd.readouterr().out)
    short, long = texts
    assert (
        len(short.splitlines()) < 120 and "--effect" in short and "--help-all" in short and "--model-input" not in short
    )
    assert all(option in long for action in make_parser()._actions for option in action.option_strings)
    named = {option for action in make_parser()._actions for option in action.option_strings}
    assert make_parser().everyday <= named


@pytest.mark.parametrize("make", [make_parser, make_build_parser])
def test_each_value_has_its_default_in_the_help(make: Callable[[], Parser]) -> None:
    for action in make()._actions:
        assert action.help, action
        if action.option_strings and action.nargs != 0 and not WITHOUT_DEFAULT & set(action.option_strings):
            assert "default: " in action.help, action.option_strings


def test_defaults_in_the_help_are_those_of_the_options() -> None:
    given = {action.dest: action.help or "" for action in make_parser()._actions}
    numbers = {name: row.default for name, row in OPTIONS.items() if type(row.default) in (int, float)}
    assert set(numbers) == {
        "threshold",
        "feather",
        "interval",
        "start",
        "max_pixels",
        "max_delay",
        "max_interval",
        "stall",
    }
    for name, default in numbers.items():
        assert f"(default: {default:.12g})" in given[name]


@pytest.mark.parametrize("make", [make_parser, make_build_parser])
def test_examples_in_the_help_are_taken(make: Callable[[], Parser]) -> None:
    examples = re.findall(r"^  segmentation(?:-build)? (.*?)(?:   .*)?$", str(make().epilog), re.M)
    assert len(examples) >= 3
    for example in examples:
        make().parse_intermixed_args(example.split())


@pytest.mark.parametrize("command", [main, build])
def test_versions_of_the_program_and_of_its_libraries(command: Command, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        command(["--version"])
    assert caught.value.code == 0
    versions = dict(line.split(" ") for line in capfd.readouterr().out.splitlines())
    assert versions["segmentation"] == segmentation.__version__
    assert versions["FFmpeg"] == av.ffmpeg_version_info
    assert versions["onnxruntime"] == metadata.version("onnxruntime")


@pytest.mark.parametrize(
    ("command", "given", "meant"),
    [
        (main, "--efect=1", "--effect"),
        (main, "--over", "--overwrite"),
        (main, "--sing", None),
        (main, "-output=x", "--output"),  # not -o with the value utput=x
        (main, "-verify", "--verify"),
        (build, "--batc=1", "--batch"),
        (build, "-force", "--force"),
    ],
)
def test_a_misspelt_option_is_no_other_one(
    command: Command, given: str, meant: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    """Abbreviations are refused: an option of a later version could change what they mean."""
    line = refused(command, given, capfd=capfd)
    assert line.endswith(f"unrecognized arguments: {given}" + (f"; did you mean {meant}?" if meant else ""))


def test_a_file_whose_name_begins_with_a_dash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """argparse would take it for options: -v with the value ideo.mp4."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-video.mp4").touch()
    line = refused(main, "-video.mp4", capfd=capfd)
    assert line.endswith("unrecognized arguments: -video.mp4; did you mean ./-video.mp4?")


@pytest.mark.parametrize("make", [make_parser, make_build_parser])
def test_no_beginning_of_an_option_is_taken(make: Callable[[], Parser]) -> None:
    parser = make()
    known = {option for action in parser._actions for option in action.option_strings}
    for option in sorted(known):
        for end in range(3, len(option)):
            if option[:end] not in known:
                _, unknown = parser.parse_known_args(["a.onnx", option[:end]])
                assert unknown == [option[:end]]


@pytest.mark.parametrize(
    ("command", "arguments", "meant"),
    [
        (main, ["--codec", "hvec"], "hevc"),
        (main, ["--codec", "H264"], "h264"),
        (main, ["--codec", "h266"], None),  # which is no misspelt h264
        (main, ["--model-type", "pphuman-seg"], "pphumanseg"),
        (build, ["--precision", "pf16"], "fp16"),
        (build, ["--variant", "tensorrt-rtx"], "tensorrt_rtx"),
    ],
)
def test_a_misspelt_choice(
    command: Command, arguments: list[str], meant: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    line = refused(command, *arguments, capfd=capfd)
    assert "invalid choice" in line and line.endswith(f"; did you mean {meant}?" if meant else ")")


@pytest.mark.parametrize(
    ("arguments", "code", "meant"),
    [
        (["--effect", "blurr:30"], 2, "blur"),
        (["--effect", "colour:#00ff00"], 2, "color"),
        (["--effect", "blur25"], 2, "blur"),
        (["--effect", "mask:5"], 2, None),
        (["--also", "pixellate:a.mp4"], 2, "pixelate"),
        (["--preset", "ultrafst"], 2, "ultrafast"),
        (["--infer", "onnx-runtime"], 2, "onnxruntime"),
        (["--model", "persn"], 1, "person"),
        (["--classes", "perosn"], 1, "person"),
    ],
)
def test_a_misspelt_name(arguments: list[str], code: int, meant: str | None, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--plan"]) == code
    [line] = capfd.readouterr().err.splitlines()
    assert line.endswith(f"; did you mean {meant}?") if meant else "did you mean" not in line


@pytest.mark.parametrize(
    ("arguments", "here"),
    [
        (["--background", "red"], "--effect color:COLOR, image:FILE or video:FILE"),
        (["--blur-faces"], "--anonymize faces"),
        (["--crf=20"], "--quality"),
        (["--end", "3"], "--duration: the length of the stretch from --start on"),
        (["--bitrate", "4M"], "--quality"),
        (["--fps", "25"], "nothing: every frame keeps its time"),
        (["-i", "a.mp4"], "the input's name alone"),
        (["-ss", "3"], "--start"),
        (["--force"], "--overwrite"),
        (["--codec", "prores"], "--effect cutout -o NAME.mov, the one output in ProRes"),
        (["--codec", "h265"], "hevc"),
    ],
)
def test_what_other_programs_call_it(arguments: list[str], here: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert refused(main, *arguments, capfd=capfd).endswith(f"; write {here}")


def test_inputs_and_options_in_any_order() -> None:
    options = parse(["a.mp4", "-q", "b.mp4", "--effect", "mask", "c.mp4"])
    assert options.inputs == ["a.mp4", "b.mp4", "c.mp4"] and options.effect == "mask" and options.quiet
    options = parse(["a.mp4", "-q", "b.mp4", "--", "-c.mp4", "d.mp4", "--"])
    assert options.inputs == ["a.mp4", "b.mp4", "./-c.mp4", "d.mp4", "./--"] and options.quiet


@pytest.mark.parametrize("value", ["-5,0,10,10", "-.5,1,2,3", "-5"])
def test_a_value_may_be_negative(value: str) -> None:
    assert parse(["a.mp4", "--region", value]).region == [value]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("given", "meant"), [("--hots=::1", "--host"), ("-watch=in", "--watch")])
def test_serve_proposes_options_too(given: str, meant: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        serve([given])
    usage, line = capfd.readouterr().err.splitlines()
    assert usage == "usage: segmentation serve [OPTION ...]"
    assert line == f"segmentation serve: error: unrecognized arguments: {given}; did you mean {meant}?"


@pytest.mark.parametrize("form", [["--log-format", "json"], ["--log-format=json"]])
@pytest.mark.parametrize("wrong", [["--bogus"], ["--feather", "soft"], ["--jobs", "0"], ["--codec", "vp8"]])
def test_usage_errors_have_the_format_of_all_lines(
    form: list[str], wrong: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    for arguments in ([*form, *wrong], [*wrong, *form]):
        with pytest.raises(SystemExit) as caught:
            parse(["a.mp4", *arguments])
        (line,) = capfd.readouterr().err.splitlines()
        assert caught.value.code == 2 and json.loads(line)["level"] == "error"
        assert wrong[0] in json.loads(line)["message"]


@pytest.mark.parametrize("option", [["--audit", "a.html", "--anonymize", "faces"], ["--no-video", "--results", "r/"]])
def test_options_that_pictures_lack_are_said_before_anything_begins(
    option: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(2):
        photos.write(tmp_path / f"{number}.png", photos.photo(32, 32))
    assert main([".", *option]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "0.png: " in line and "(2 of 2 inputs are pictures)" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.png", "1.png"]


@pytest.mark.parametrize("hidden", [["--anonymize", "faces"], ["--region", "0,0,9,9"]])
@pytest.mark.parametrize("effect", ["blur", "blur:50", "pixelate:30"])
def test_an_effect_that_is_no_cover_is_refused(
    hidden: list[str], effect: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    name = str(tmp_path / "no.mp4")
    assert main([name, *hidden, "--effect", effect]) == 2
    assert f"of {effect} something may be computed back; choose color, image:FILE" in capfd.readouterr().err
    assert main([name, *hidden]) == 1
    assert "computed back" not in capfd.readouterr().err
