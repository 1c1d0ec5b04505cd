"""The steps between masks and composite that find out who is who, where a run asks for that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from segmentation.frames import Transfer, VideoInfo
from segmentation.options.anonymize import REGIONS
from segmentation.options.config import Config
from segmentation.options.instances import Keep
from segmentation.stages.mask_source import MaskStep

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu
    from segmentation.models.secondary import SecondaryNetwork
    from segmentation.stages.inference.crop_network import CropNetwork
    from segmentation.tracking.process.tracker_processes import TrackerProcesses


def make_instance_steps(
    config: Config,
    info: VideoInfo,
    pix_fmt: str,
    classes: Sequence[str],
    transfer: Transfer,
    secondary: Sequence[tuple[SecondaryNetwork, CropNetwork | None]],
    trackers: TrackerProcesses | None,
    gpu: Gpu | None,
) -> Sequence[MaskStep]:
    """Returns the steps in their order, none where no option asks for instances. `classes` are those of the mask.

    A step sees all batches of the run in presentation order, on one thread. Masks are as large as the network makes
    them, before refinement, and may lie on `gpu`: `transfer.rows` brings them to the host. With `trackers` who is
    in the masks is found in other processes. `secondary` are the networks of `--then`, with those that run on `gpu`.
    """
    covers: list[MaskStep] = []
    if config.anonymize not in (None, REGIONS):
        from segmentation.tracking.anonymize.corrections import Corrections
        from segmentation.tracking.anonymize.cover import CoverBoxes, CoverMasks

        boxes = config.covers_boxes
        covers = [CoverBoxes(info, transfer, Corrections(config, info).covers) if boxes else CoverMasks(info, transfer)]
    if config.tracker is None:
        return covers
    # Most runs do without these, and a start should not wait for them.
    from segmentation.tracking.mask_tracker import Ids
    from segmentation.tracking.secondary_steps import SecondaryInference
    from segmentation.tracking.tracking_steps import Keeping, Tracking

    ids = Ids()
    steps: list[MaskStep] = []
    if config.covers_boxes and info.live is None:  # a cut shows by the frames behind it, for which nothing live waits
        from segmentation.tracking.anonymize.shots import Shots

        steps.append(Shots(info, pix_fmt, transfer, gpu))
    steps.append(Tracking(config, info, pix_fmt, classes, transfer, ids, trackers, gpu))
    steps += [SecondaryInference(network, info, pix_fmt, config, ids, gpu, on_gpu) for network, on_gpu in secondary]
    if config.keep is not None:
        steps.append(Keeping(Keep.parse(config.keep), info))
    return steps + covers
