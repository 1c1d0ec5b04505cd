"""The command line that builds engines: `segmentation-build`, `python tools/build_engine.py`."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from segmentation.cli.arguments import add_options, name_list, options_from
from segmentation.cli.console import checks_stdout, put_out
from segmentation.cli.parser import Parser, new_parser, parse_all
from segmentation.cli.program import run_program
from segmentation.engines.variant import BUILDERS, choose, installed
from segmentation.errors import BackendError, ConfigError, OutputError, one_line, printable
from segmentation.gpu.discovery import find_gpu
from segmentation.models.model import PEOPLE, load_model
from segmentation.options.config import OPTIONS, Config
from segmentation.options.table import Of
from segmentation.system.atomic_file import PendingFile
from segmentation.system.installation import install

_PROGRAM = "segmentation-build"
TORCHVISION = (
    "fcn_resnet50",
    "fcn_resnet101",
    "deeplabv3_resnet50",
    "deeplabv3_resnet101",
    "deeplabv3_mobilenet_v3_large",
    "lraspp_mobilenet_v3_large",
)


@checks_stdout
def main(arguments: Sequence[str] | None = None) -> int:
    """Builds one engine and prints its path, or with `--json` its sidecar; returns the exit code.

    0 done, 1 failed, 2 wrong usage, 3 a package or a GPU is missing, 130 or 143 stopped by a signal.
    """
    options = parse_all(make_parser(), arguments)
    return run_program(_PROGRAM, partial(_run, options), verbose=options.verbose)


def _run(options: argparse.Namespace) -> int:
    """Builds the engine; returns the exit code. Raises `SegmentationError`."""
    try:
        put_out(printable(_built(options)))
    except ModuleNotFoundError as exc:
        raise BackendError(f"the package {exc.name} is not installed; {_install(exc.name)}") from exc
    return 0


def _built(options: argparse.Namespace) -> str:
    """Builds the engine, or writes the sidecar of one; returns the text to print."""
    # Imported here, because these modules need packages of the extras, and --help does not.
    from segmentation.engines.build import obtain, trust
    from segmentation.engines.spec import EngineOptions, EngineSpec
    from segmentation.models.sample_picture import picture_inputs
    from segmentation.models.sidecar import load_plan, sidecar_of
    from segmentation.stages.inference.sample_inputs import frame_inputs

    gpu = find_gpu()
    variant = choose(gpu, installed(), options.variant, build=True)
    names = EngineOptions.__dataclass_fields__
    chosen = {name: value for name, value in vars(options).items() if name in names and value is not None}
    engine_options = EngineOptions(**chosen)
    engine_options.check(variant)
    _check_paths(options)
    model = load_model(_config(options))
    if model.path.suffix == ".engine":
        raise ConfigError(f"{model.path}: is an engine already; name the ONNX that it is to be built from")
    # The engine is named after the file, also where the model was given by the name of a built-in one.
    spec = EngineSpec(
        model=replace(model, name=model.path.stem),
        options=engine_options if "batch" in chosen else engine_options.of(model),
        variant=variant,
        gpu=gpu,
        frames=options.frames,
    )
    if options.trust is not None:
        trust(options.trust, spec)
        return str(options.trust)
    pictures = picture_inputs if options.frames is None else partial(frame_inputs, video=options.frames)
    path, _ = obtain(spec, options.output, force=options.force, pictures=pictures)
    if options.json:
        load_plan(path)
        return json.dumps(json.loads(sidecar_of(path).read_text(encoding="utf-8")))
    return str(path)


def _check_paths(options: argparse.Namespace) -> None:
    if options.frames is not None and not options.frames.is_file():
        raise ConfigError(f"--frames {options.frames}: no such file")
    target: Path | None = options.output or options.trust
    if target is None:
        return
    if target.suffix != ".engine":
        raise ConfigError(f"{target}: the name of an engine ends in .engine, since its sidecar ends in .json")
    if not target.parent.is_dir():
        raise ConfigError(f"{target}: the folder {target.parent} does not exist")


def _config(options: argparse.Namespace) -> Config:
    """Returns the model and its meaning as a `Config`; a network of torchvision is exported first."""
    values = options_from(options)
    if options.model in TORCHVISION:
        values["model"] = str(_exported(options))
    elif not options.weights:
        raise ConfigError(f"--no-weights: {options.model} has its own; that is for {', '.join(TORCHVISION)}")
    return Config(**values)


def _exported(options: argparse.Namespace) -> Path:
    """Returns the ONNX of a network of torchvision, exported into the engines' folder if it is not there yet."""
    from segmentation.models.graph.torchvision_export import export_by_name
    from segmentation.system.cache import engine_folder, locked, make_folder

    size = options.input_size
    parts = [options.model, *(["{}x{}".format(*size)] if size else []), *([] if options.weights else ["random"])]
    target = engine_folder() / f"{'-'.join(parts)}.onnx"
    try:
        make_folder(target.parent)
        with locked(target):
            if not target.is_file():
                with PendingFile(target, overwrite=True) as pending:
                    pending.create()
                    export_by_name(options.model, Path(pending.address), size, weights=options.weights)
                    pending.commit()
    except OSError as exc:
        raise OutputError(f"{target}: cannot be written ({one_line(exc)}); set SEGMENTATION_ENGINES") from exc
    return target


def _install(package: str | None) -> str:
    """Returns the advice that installs a missing package."""
    if package == "onnx":
        return f"{install('rtx')}, or {install('tensorrt')}"
    return install("gpu")


def _batch(text: str) -> tuple[int, int, int]:
    """`4` is fixed, `1,4,16` is least, best and largest."""
    numbers = [int(part) for part in text.split(",")]
    if len(numbers) not in (1, 3):
        raise argparse.ArgumentTypeError(f"{text!r}: give one number, or least,best,largest")
    least, best, largest = numbers * 3 if len(numbers) == 1 else numbers
    return least, best, largest


def _capability(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor)


def make_parser() -> Parser:
    """Returns the parser of `segmentation-build`."""
    parser = new_parser(
        "segmentation-build",
        "FILE.onnx|NAME",
        "Builds a TensorRT or TensorRT-RTX engine from a segmentation network; prints where it is.",
        (
            "segmentation-build person                               an engine for this machine's GPU",
            "segmentation-build network.onnx -o network.engine --precision fp32 --batch 16",
            "segmentation-build deeplabv3_resnet50 --input-size 512x512 --classes person,cat",
        ),
        "0 done, 1 failed, 2 wrong usage, 3 a package or a GPU is missing, 130 or 143 stopped.",
    )
    add = parser.add_argument
    names = ", ".join((*PEOPLE, *TORCHVISION))
    add("model", metavar="FILE.onnx|NAME", help=f"a network, or one of {names}")
    add(
        "-o",
        "--output",
        type=Path,
        metavar="FILE.engine",
        help="where it goes (default: engines/, or the user's cache)",
    )
    add("--force", action="store_true", help="build it even if it is there already")
    add("--json", action="store_true", help="print the sidecar instead of the path")
    add("-v", "--verbose", action="store_true", help="show each step")
    add(
        "--trust",
        type=Path,
        metavar="FILE.engine",
        help="build nothing, but write the sidecar that lets the program load FILE.engine, a plan that something else "
        "built from this model. A plan can run any code with your rights: only for files whose origin you know",
    )
    _add_engine(parser)

    network = parser.add_argument_group("network")
    network.add_argument(
        "--no-weights", dest="weights", action="store_false", help="torchvision: random ones, for timing"
    )
    network.add_argument(
        "--classes", type=name_list, metavar="NAME,...", help="compare FP16 on these (default: person)"
    )
    add_options(parser, (row for row in OPTIONS.values() if row.of & Of.MEANING))
    return parser


def _add_engine(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the engine itself."""
    what = parser.add_argument_group("engine")
    what.add_argument("--precision", choices=("fp16", "fp32"), help="default: fp16 where masks stay the same")
    what.add_argument("--frames", type=Path, metavar="VIDEO", help="compare FP16 on its frames (default: a portrait)")
    what.add_argument(
        "--batch", type=_batch, metavar="N|MIN,BEST,MAX", help="frames, fixed or a range (default: 1,16,16)"
    )
    what.add_argument("--variant", choices=tuple(BUILDERS), help="default: what serves the GPU")
    what.add_argument("--optimization-level", type=int, metavar="0-5", help="5 searches the longest (default: 3)")
    what.add_argument("--workspace", type=int, metavar="MIB", help="MiB that a layer may use (default: all)")
    what.add_argument("--aux-streams", type=int, metavar="N", help="streams beside the pipeline's (default: 0)")
    what.add_argument(
        "--hardware-compatibility",
        choices=("none", "ampere-plus", "same-compute-capability"),
        help="other GPUs that run it (default: none)",
    )
    what.add_argument("--version-compatible", action="store_true", default=None, help="later TensorRTs shall run it")
    what.add_argument(
        "--compute-capability", type=_capability, metavar="M.N", help="TensorRT-RTX: GPUs (default: all it serves)"
    )
    what.add_argument(
        "--no-timing-cache", dest="timing_cache", action="store_false", default=None, help="time all layers anew"
    )
