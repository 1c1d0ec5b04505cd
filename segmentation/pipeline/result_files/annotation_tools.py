"""Instances as files that annotation tools import: CVAT's XML and Label Studio's JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from xml.sax.saxutils import escape, quoteattr

import numpy as np
from numpy.typing import NDArray

from segmentation._version import __version__
from segmentation.frames.instances import FrameInstances
from segmentation.pipeline.result_files.run_lengths import runs
from segmentation.pipeline.result_files.shapes import Size, masks_of, outline

_TRACK_ID = (
    "<attributes><attribute><name>track_id</name><mutable>False</mutable><input_type>text</input_type>"
    "<default_value>0</default_value><values></values></attribute></attributes>"
)


class Cvat:
    """CVAT for images 1.1: an image for each frame, named as in a task of the video, with a mask for each instance.

    https://docs.cvat.ai/docs/dataset_management/formats/format-cvat/. CVAT has no tracks of masks. The id is the
    attribute `track_id`, which CVAT keeps where the task's label has an attribute of that name.
    """

    def __init__(self, size: Size, labels: Iterable[str]) -> None:
        """`labels` are all that instances can have."""
        self._size, self._labels = size, dict.fromkeys(labels)

    def frame(self, index: int, pts: float, found: FrameInstances) -> Iterator[str]:
        """Yields the text of one frame."""
        if not index:
            yield '<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n<version>1.1</version>\n'
            yield "<meta><task><labels>\n"
            yield from (f"<label><name>{escape(label)}</name>{_TRACK_ID}</label>\n" for label in self._labels)
            yield "</labels></task></meta>\n"
        width, height = self._size
        yield f'<image id="{index}" name="frame_{index:06}.png" width="{width}" height="{height}">\n'
        for one, mask in masks_of(found, self._size):
            rows, columns = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
            if len(rows):
                left, top = columns[0], rows[0]
                part = mask[top : rows[-1] + 1, left : columns[-1] + 1]
                yield (
                    f'<mask label={quoteattr(one.label)} source="auto" occluded="0" z_order="0" rle="{_listed(part)}" '
                    f'left="{left}" top="{top}" width="{part.shape[1]}" height="{part.shape[0]}">'
                    f'<attribute name="track_id">{one.id}</attribute></mask>\n'
                )
        yield "</image>\n"

    def end(self) -> Iterator[str]:
        """Yields the text behind the last frame."""
        yield "</annotations>\n"


def _listed(mask: NDArray[np.bool_]) -> str:
    """Returns the lengths of the runs of a mask, row by row, as CVAT lists them."""
    return ", ".join(map(str, runs(mask.ravel())))


class LabelStudio:
    """Tasks with predictions for Label Studio: an image for each frame, and a polygon for each instance.

    https://labelstud.io/guide/predictions. The tags of the labeling configuration are `image` and `label`. The id is
    a note of the region.
    """

    def __init__(self, size: Size) -> None:
        self._size = size

    def frame(self, index: int, pts: float, found: FrameInstances) -> Iterator[str]:
        """Yields the text of one frame."""
        yield ",\n" if index else "[\n"
        regions = []
        for number, (one, mask) in enumerate(masks_of(found, self._size), 1):
            points = outline(mask, one.box) * 100
            region = {
                "id": f"{index + 1}-{number}",
                "type": "polygonlabels",
                "from_name": "label",
                "to_name": "image",
                "original_width": self._size[0],
                "original_height": self._size[1],
                "image_rotation": 0,
                "score": round(one.score, 4),
                "value": {"points": points.round(3).tolist(), "closed": True, "polygonlabels": [one.label]},
                "meta": {"text": [f"id {one.id}"]},
            }
            regions.append(region)
        prediction = {"model_version": f"segmentation {__version__}", "result": regions}
        data = {"image": f"{index + 1:06}.png", "pts": pts}
        yield json.dumps({"data": data, "predictions": [prediction]})

    def end(self) -> Iterator[str]:
        """Yields the text behind the last frame."""
        yield "\n]\n"
