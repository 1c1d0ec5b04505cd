"""The steps between a run's masks and its composite, in their order."""

from __future__ import annotations

from collections.abc import Sequence

from segmentation.frames import Memory, Transfer
from segmentation.pipeline.corrected_masks import make_correction_steps
from segmentation.pipeline.opened_run import OpenedRun
from segmentation.pipeline.planning.plan import Plan
from segmentation.pipeline.resources import Resources
from segmentation.stages.mask_source import MaskStep
from segmentation.tracking.instance_steps import make_instance_steps


def make_mask_steps(
    resources: Resources, opened: OpenedRun, plan: Plan, classes: Sequence[str], transfer: Transfer, frames: Memory
) -> list[MaskStep]:
    """Returns corrections by hand, and whatever finds out who is who. `classes` are those of the mask.

    `plan` may be another than that of the input. The networks of `--then` take `frames` from that memory. Raises as
    `make_correction_steps`.
    """
    corrects = make_correction_steps(opened, plan.pix_fmt, transfer)
    instances = make_instance_steps(
        opened.config,
        opened.info,
        plan.pix_fmt,
        classes,
        transfer,
        resources.with_crop_networks(opened.choices.secondary, frames),
        resources.trackers(on_gpu=plan.on_gpu),
        opened.gpu,
    )
    return [*corrects, *instances]
