"""The verdict on an engine after its trial on this machine, kept as JSON beside the engine.

A trial compares an engine with the FP32 network and with `torch-fp16`; see `engines/trial.py`. The verdict
holds for one GPU, driver, plan and batch size, and for one version of each library and of this program.
"""

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from datetime import date
from glob import escape
from pathlib import Path

from segmentation._version import __version__
from segmentation.engines.spec import EngineSpec
from segmentation.errors import EngineError, NotProven
from segmentation.gpu.discovery import driver_version, installed_version
from segmentation.models.metadata import load_json
from segmentation.models.sidecar import FORMAT as ENGINE_FORMAT
from segmentation.models.sidecar import load_plan
from segmentation.system.atomic_file import write_atomically
from segmentation.system.cache import engine_folder

log = logging.getLogger(__name__)

FORMAT = 1
PROVEN = "proven"
DECLINED = "declined"  # its masks may be right, but another implementation is the better choice
FAILED = "failed"
BEGUN = "begun"  # the engine runs for the first time, or the process has died of that
_SUFFIX = ".verdict.json"
LONGEST = 1000  # characters of a reason
_NUMBERS = ("pictures", "iou", "largest_difference", "covered", "tensorrt_ms", "torch_fp16_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of a trial. The names of the fields are the JSON's keys."""

    outcome: str
    reason: str = ""  # why it is not proven, in one line
    pictures: int | None = None  # this and the next three are a `Comparison` with FP32
    iou: float | None = None
    largest_difference: float | None = None
    covered: float | None = None
    tensorrt_ms: float | None = None  # for a batch
    torch_fp16_ms: float | None = None  # likewise; None where torch-fp16 can't run the network
    date: str = field(default_factory=lambda: date.today().isoformat())

    def __str__(self) -> str:
        if self.outcome != PROVEN:
            return f"{self.outcome} on {self.date}: {self.reason}"
        rival = f"{self.torch_fp16_ms:.2f} ms" if self.torch_fp16_ms is not None else "can't run it"
        return (
            f"{self.outcome} on {self.date}: mask IoU {self.iou:.4f} with FP32, {self.tensorrt_ms:.2f} ms for a batch "
            f"(torch-fp16: {rival})"
        )


class VerdictFile:
    """The file with the verdict on one engine, for one GPU and batch size."""

    def __init__(self, spec: EngineSpec, batch: int) -> None:
        gpu = re.sub(r"[^a-z0-9]+", "-", spec.at_hand.name.lower())
        self.engine = engine_folder() / spec.file_name
        self.path = self.engine.with_suffix(f".{gpu}-b{batch}{_SUFFIX}")
        self._spec, self._batch = spec, batch

    def read(self) -> Verdict | None:
        """Returns the verdict; `None` if there is none, or one on something else, or a file that is none."""
        if not self.path.is_file():
            return None
        try:
            content = load_json(self.path)
        except (OSError, ValueError):
            return None
        if not isinstance(content, dict) or content.pop("about", None) != self._about():
            return None
        return Verdict(**content) if _is_whole(content) else None

    def write(self, verdict: Verdict) -> None:
        """Keeps a verdict on the engine as it is now. Without the file, the next start makes a trial again."""
        content = {**asdict(verdict), "about": self._about()}
        try:
            write_atomically(self.path, (json.dumps(content, indent=2) + "\n").encode())
        except OSError as exc:
            log.warning("%s: the verdict on the engine cannot be written (%s)", self.path, exc.strerror)

    @contextmanager
    def first_run(self) -> Iterator[None]:
        """Keeps `BEGUN` while the engine runs: that stays if the process dies, and the next one finds it."""
        self.write(Verdict(outcome=BEGUN))
        try:
            yield
        finally:
            self.path.unlink(missing_ok=True)

    def refusal(self, verdict: Verdict) -> NotProven:
        """Returns the error that says why the engine does not serve, and how it gets another trial."""
        again = f"; delete {self.path} to try it again" if self.path.exists() else ""
        error = NotProven(f"engine {verdict}{again}")
        error.failed = verdict.outcome in (FAILED, BEGUN)  # begun: its process died
        return error

    def _about(self) -> dict[str, object]:
        """Returns all that a verdict depends on. A damaged engine counts as none: it is built again."""
        try:
            plan = load_plan(self.engine)[1].plan_sha256
        except EngineError:
            plan = ""
        return {
            "verdict_format": FORMAT,
            "engine_format": ENGINE_FORMAT,
            "program": __version__,
            "fingerprint": self._spec.fingerprint,
            "plan_sha256": plan,
            "variant": str(self._spec.variant),
            "gpu": str(self._spec.gpu),
            "driver": driver_version(),
            "torch": installed_version("torch"),
            "batch": self._batch,
        }


def forget(engine: Path) -> None:
    """Removes all verdicts on an engine, which is built again. Raises `OSError`."""
    for path in engine.parent.glob(f"{escape(engine.stem)}.*{_SUFFIX}"):
        path.unlink(missing_ok=True)


def _is_whole(content: dict[str, object]) -> bool:
    """Returns whether a JSON object has the fields of a verdict, with values that they can have."""
    if content.keys() != {field.name for field in fields(Verdict)}:
        return False
    outcome, reason, day = content["outcome"], content["reason"], content["date"]
    if outcome not in (PROVEN, DECLINED, FAILED, BEGUN):
        return False
    for text in (reason, day):
        if not isinstance(text, str) or len(text) > LONGEST or len(text.splitlines()) > 1:
            return False
    numbers = {name: content[name] for name in _NUMBERS}
    if not all(number is None or _is_sound(number) for number in numbers.values()):
        return False
    return outcome != PROVEN or None not in (numbers["iou"], numbers["tensorrt_ms"])


def _is_sound(number: object) -> bool:
    """Returns whether a value is a number that can be printed. NaN fails the comparison."""
    return type(number) in (int, float) and 0 <= number <= 1e9  # type: ignore[operator]
