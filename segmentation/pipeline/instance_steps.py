"""The steps between masks and composite that find out who is who, where a run asks for that."""

from __future__ import annotations

from collections.abc import Sequence

from segmentation.config import Config
from segmentation.frames import Transfer, VideoInfo
from segmentation.pipeline.mask_source import MaskStep


def make_instance_steps(config: Config, info: VideoInfo, transfer: Transfer) -> Sequence[MaskStep]:
    """Returns the steps in their order, none where no option asks for instances.

    A step sees all batches of the run in presentation order, on one thread, which has entered `transfer`. Masks are as
    large as the network makes them, before refinement, and may lie on a GPU: `transfer.rows` brings them to the host.
    """
    return ()
