"""Instances as results: parts of JSON lines, COCO's JSON and MOT's text.

Boxes are [x, y, width, height] in pixels of the upright picture at full size.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import ceil, floor

import numpy as np

from segmentation.frames.instances import Box, FrameInstances
from segmentation.pipeline.result_files.run_lengths import rle
from segmentation.pipeline.result_files.shapes import Size, masks_of


def in_line(frame: FrameInstances, size: Size, *, with_masks: bool) -> list[dict[str, object]]:
    """Returns the instances of a frame for a line of JSON; masks are as large as the network's."""
    label_map = frame.label_map if with_masks else None
    found = []
    for number, one in enumerate(frame.instances, 1):
        entry: dict[str, object] = {"id": one.id, "label": one.label, "score": round(one.score, 4)}
        entry |= {"box": pixels(one.box, size), "parent": one.parent}
        if label_map is not None:
            mask = label_map == number
            entry["rle"] = {"size": list(mask.shape), "counts": rle(mask)}
        found.append(entry)
    return found


def pixels(box: Box, size: Size) -> list[int]:
    """Returns the box of the pixels that a box touches."""
    width, height = size
    # A share of a whole pixel may come out a little beside it.
    left, top = floor(box[0] * width + 1e-6), floor(box[1] * height + 1e-6)
    return [left, top, ceil(box[2] * width - 1e-6) - left, ceil(box[3] * height - 1e-6) - top]


class Mot:
    """Lines of MOTChallenge: frame (from 1), id, box, score, and three numbers without meaning in two dimensions."""

    def __init__(self, size: Size) -> None:
        self._size = size

    def frame(self, index: int, pts: float, found: FrameInstances) -> Iterator[str]:
        """Yields the text of one frame."""
        for one in found.instances:
            if one.id:
                box = ",".join(map(str, pixels(one.box, self._size)))
                yield f"{index + 1},{one.id},{box},{one.score:.4f},-1,-1,-1\n"

    def end(self) -> Iterator[str]:
        """Yields the text behind the last frame."""
        return iter(())


class Coco:
    """One JSON object as COCO's tools read it. Each annotation has `track_id`, and its mask at the picture's size."""

    def __init__(self, size: Size) -> None:
        self._size = size
        self._times: list[float] = []
        self._categories: dict[str, int] = {}
        self._count = 0

    def frame(self, index: int, pts: float, found: FrameInstances) -> Iterator[str]:
        """Yields the text of one frame."""
        if not self._times:
            yield '{"annotations": [\n'
        self._times.append(pts)
        for one, mask in masks_of(found, self._size):
            self._count += 1
            annotation = {
                "id": self._count,
                "image_id": index + 1,
                "category_id": self._categories.setdefault(one.label, len(self._categories) + 1),
                "track_id": one.id,
                "bbox": pixels(one.box, self._size),
                "area": int(np.count_nonzero(mask)),
                "segmentation": {"size": list(mask.shape), "counts": rle(mask)},
                "score": round(one.score, 4),
                "iscrowd": 0,
            }
            yield ("" if self._count == 1 else ",\n") + json.dumps(annotation)

    def end(self) -> Iterator[str]:
        """Yields the text behind the last frame."""
        categories = [{"id": number, "name": name} for name, number in self._categories.items()]
        width, height = self._size
        yield f'\n], "categories": {json.dumps(categories)}, "images": [\n'
        for number, pts in enumerate(self._times, 1):
            image = {"id": number, "file_name": f"{number:06}.png", "width": width, "height": height, "pts": pts}
            yield ("" if number == 1 else ",\n") + json.dumps(image)
        yield "\n]}\n"
