"""The steps between masks and composite that find out who is who, where a run asks for that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from segmentation.frames import Transfer, VideoInfo
from segmentation.options.anonymize import BODIES, LOOK_AHEAD, REGIONS
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
    begin, covers = _anonymizing(config, info, pix_fmt, transfer, gpu)
    if config.tracker is None:
        return covers
    # Most runs do without these, and a start should not wait for them.
    from segmentation.tracking.mask_tracker import Ids
    from segmentation.tracking.secondary_steps import SecondaryInference
    from segmentation.tracking.tracking_steps import Keeping, Tracking

    ids = Ids()
    steps = begin
    steps.append(Tracking(config, info, pix_fmt, classes, transfer, ids, trackers, gpu))
    steps += [SecondaryInference(network, info, pix_fmt, config, ids, gpu, on_gpu) for network, on_gpu in secondary]
    if config.keep is not None:
        steps.append(Keeping(Keep.parse(config.keep), info))
    return steps + covers


def _anonymizing(
    config: Config, info: VideoInfo, pix_fmt: str, transfer: Transfer, gpu: Gpu | None
) -> tuple[list[MaskStep], list[MaskStep]]:
    """Returns the steps of `--anonymize` before tracking, and those behind it."""
    if config.anonymize in (None, REGIONS):
        return [], []
    from segmentation.tracking.anonymize.corrections import Corrections
    from segmentation.tracking.anonymize.cover import CoverBoxes, CoverMasks
    from segmentation.tracking.anonymize.several import BareHeads, CoverPeople, JoinBoxes
    from segmentation.tracking.anonymize.shots import Shots

    if not config.covers_boxes:
        return [], [CoverMasks(info, transfer)]
    kinds = {one.kind for one in config.further}
    masks = {"people"} if any(one.kind == "heads" for one in config.covered) else {"people", BODIES}
    before: list[MaskStep] = [JoinBoxes(config, transfer)] if kinds - masks else []
    if info.live is None:  # what is wrongly torn live is not to be mended
        before.append(Shots(info, pix_fmt, transfer, gpu))
    ahead = LOOK_AHEAD if info.live is None else config.live_look_ahead
    behind: list[MaskStep] = [CoverBoxes(info, transfer, Corrections(config, info).covers, ahead, gpu)]
    if "people" in kinds:
        behind.append(CoverPeople(config, info, transfer))
    if BODIES in kinds and config.audit is not None:
        behind.append(BareHeads(config, transfer))
    return before, behind
