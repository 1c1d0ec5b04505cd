"""Draws held-out pictures with the masks that were found in them."""

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from evaluation_tables import shown
from held_out import PORTRAIT, Candidates, Item, Mask, Picture, score
from truth import KINDS, PERSON, UNSURE

CELL = (240, 180)  # width and height of a picture on the sheet, pixels


def evenly(items: Sequence[Item], count: int) -> list[Item]:
    """Up to `count` pictures, in turn of each kind and spread over the pictures of that kind."""
    queues = [[item for item in items if kind in item.kinds] for kind in KINDS]
    golden = (5**0.5 - 1) / 2  # its multiples spread over 0..1, however many are taken
    queues = [[queue[i] for i in sorted(range(len(queue)), key=lambda i: i * golden % 1)] for queue in queues]
    chosen: dict[str, Item] = {}
    while any(queues) and len(chosen) < count:
        for queue in queues:
            while queue and queue[0].name in chosen:
                queue.pop(0)
            if queue and len(chosen) < count:
                item = queue.pop(0)
                chosen[item.name] = item
    return sorted(chosen.values(), key=lambda item: KINDS.index(item.kinds[0]))


def masked(rgb: Picture, person: Mask, doubt: Mask | None = None) -> Picture:
    """A picture, darkened where no person is, with a green outline around people; doubt is tinted."""
    inside = cv2.resize(person.astype(np.uint8), rgb.shape[1::-1], interpolation=cv2.INTER_NEAREST)
    view = np.where(inside[..., None] > 0, rgb, rgb // 3)
    if doubt is not None:
        tinted = cv2.resize(doubt.astype(np.uint8), rgb.shape[1::-1], interpolation=cv2.INTER_NEAREST) > 0
        view[tinted] = view[tinted] // 2 + np.array([120, 90, 0], np.uint8)
    outlines = cv2.findContours(inside, cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)[0]
    return cv2.drawContours(view, outlines, -1, (0, 255, 0), 1)


def framed(view: Picture, label: str) -> Picture:
    """A picture in the upper left of a grey cell, below its label."""
    width, height = CELL
    page = np.full((height + 22, width + 4, 3), 40, np.uint8)
    page[18 : 18 + view.shape[0], : view.shape[1]] = view
    return cv2.putText(page, label, (3, 13), cv2.FONT_HERSHEY_SIMPLEX, 0.4, (255, 255, 255), 1, cv2.LINE_AA)


def strip(item: Item, candidates: Candidates) -> Picture:
    """One picture, its truth, and the masks of the networks and the vote, side by side with their figures."""
    rgb = candidates.picture(item)
    found = candidates.masks(item, rgb)
    scale = min(CELL[0] / rgb.shape[1], CELL[1] / rgb.shape[0])
    small = cv2.resize(rgb, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    truth = masked(small, item.truth == PERSON, item.truth == UNSURE)
    cells = [
        framed(small, shown(item.name)[:34]),
        framed(truth, f"truth: {', '.join(item.kinds) or 'no kind yet'}"),
    ]
    for name in [*candidates.networks, "vote"]:
        if name in found and name != Path(PORTRAIT).stem:
            key, value = next(iter(score(found[name], item).items()))
            text = f"IoU {value:.2f}" if key == "iou" else f"{value:.1%} called person"
            cells.append(framed(masked(small, found[name]), f"{name}: {text}"))
    return np.hstack(cells)


def sheet(items: Sequence[Item], candidates: Candidates) -> Picture:
    """The strips of the pictures, two in a row."""
    strips = [strip(item, candidates) for item in items]
    strips += [np.full_like(strips[0], 40)] * (len(strips) % 2)
    return np.vstack([np.hstack(strips[i : i + 2]) for i in range(0, len(strips), 2)])
