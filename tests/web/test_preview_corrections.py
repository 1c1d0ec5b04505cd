"""Corrections of the page are there in each frame around a corrected one, in whatever order frames are asked for."""

import numpy as np
from paths import SAMPLE
from projects import project

from segmentation.media.opening.probe import probe
from segmentation.options.project import parse_project
from segmentation.system.access import Access
from segmentation.web.preview_corrections import PreviewCorrections


def test_each_frame_around_a_correction_gets_it() -> None:
    drawn = np.zeros((90, 160), np.float32)
    drawn[20:80, 60:110] = 1
    read = parse_project(project((640, 360), {0.2: drawn}), "a.json")
    corrections, info = PreviewCorrections(), probe(str(SAMPLE), Access())
    areas = []
    for number in (6, 7, 14, 15):  # the stretch that is carried for the second ends between the last two
        found = corrections.at(info, "state", read, number / 30)
        assert found is not None, number
        areas.append(np.maximum(found.values, 0).mean() / drawn.mean())
    assert all(0.7 < area < 1.3 for area in areas), areas
