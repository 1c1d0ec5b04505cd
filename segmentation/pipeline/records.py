"""The files of a run besides its videos, and its counts: results, saved masks, the audit, the frames with a find."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction

from segmentation.frames.sinks import Sink
from segmentation.pipeline.found import FoundSink
from segmentation.pipeline.opened_run import OpenedRun
from segmentation.pipeline.report import Report
from segmentation.pipeline.result_files.audit import Audit
from segmentation.pipeline.result_files.results import make_results
from segmentation.stages.masks.saved import MaskWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The sinks of a run besides its videos, of which some count for the report."""

    sinks: list[Sink]
    counted: FoundSink | None = None
    audit: Audit | None = None

    @property
    def found(self) -> int:
        """The frames in which something was found."""
        return 0 if self.counted is None else self.counted.frames

    @property
    def unknown(self) -> int:
        """The frames for which the network returned no numbers."""
        return 0 if self.counted is None else self.counted.unknown

    @property
    def doubtful(self) -> int:
        """The spans that a person should look at."""
        return 0 if self.audit is None else self.audit.doubtful

    def complete_audit(self, report: Report) -> None:
        """Writes the file of `--audit`, once the outputs are closed. Raises `OutputError`."""
        if self.audit is not None:
            self.audit.complete(report)


def open_records(opened: OpenedRun, label: str, seconds: Callable[[int], Fraction], exits: ExitStack) -> Records:
    """Opens the records that the options ask for, which `exits` closes.

    `label` is the input's name in messages, and `seconds` returns when the outputs show the frame of a pts.
    """
    info, config, choices = opened.info, opened.config, opened.choices
    counted = FoundSink(label, choices.classes, config)
    audit = Audit(seconds, info, config) if config.covers_boxes else None
    sinks: list[Sink] = [sink for sink in (counted, choices.counts, audit) if sink is not None]
    if config.results is not None:
        labels = choices.classes if config.results_format == "lines" else choices.labels
        sinks.append(exits.enter_context(make_results(seconds, info, labels, config, choices.counts)))
    if config.save_masks is not None and choices.model is not None:
        name, overwrite = choices.model.name, config.overwrite
        sinks.append(exits.enter_context(MaskWriter(config.save_masks, info, name, choices.kept, overwrite=overwrite)))
    return Records(sinks=sinks, counted=counted, audit=audit)
