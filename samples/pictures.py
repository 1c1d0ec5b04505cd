"""Masks a photograph and cuts the person out: python samples/pictures.py [PHOTO [OUTPUT.png]]"""

import sys
from pathlib import Path

import cv2
import numpy as np

import segmentation
from segmentation import Segmenter

photo = sys.argv[1] if len(sys.argv) > 1 else str(Path(segmentation.__file__).parent / "models" / "astronaut.jpg")
target = sys.argv[2] if len(sys.argv) > 2 else "cutout.png"
picture = cv2.cvtColor(cv2.imread(photo), cv2.COLOR_BGR2RGB)  # (H, W, 3) uint8
with Segmenter() as segmenter:  # the network is loaded for the first picture
    mask = segmenter.masks(picture)  # (H, W) float32 in 0..1
    cutout = segmenter.apply(picture, effect="cutout")  # (H, W, 4) uint8
cv2.imwrite(target, cv2.cvtColor(cutout, cv2.COLOR_RGBA2BGRA))
print(f"{target}: {100 * np.mean(mask > 0.5):.0f} % of the picture is kept")
