"""Makes the picture of the effects: one frame of a video with each of them, three side by side.

python tools/lab/report/effects_picture.py samples/astronaut.mp4 --image SKY.webp --video FLOWER.mp4 --start 3 \\
    -o docs/effects.png
"""

import argparse
import tempfile
from pathlib import Path

import av
import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation import Config, segment

SIZE = (400, 225)  # of a picture: width and height, pixels
CHECKS = 12  # pixels of a square, behind a cut-out
DARK = (44, 38, 38)


def shown(path: Path) -> NDArray[np.uint8]:
    """Returns the first frame as BGR (H, W, 3) of `SIZE`, before a chessboard where it is transparent."""
    with av.open(str(path)) as container:
        frame = next(container.decode(video=0)).to_ndarray(format="bgra")
    picture = cv2.resize(frame, SIZE, interpolation=cv2.INTER_AREA).astype(np.float32)
    down, across = np.indices(picture.shape[:2]) // CHECKS
    board = np.where((down + across) % 2, 200, 245)[..., None]
    alpha = picture[..., 3:] / 255
    return (picture[..., :3] * alpha + board * (1 - alpha)).round().astype(np.uint8)


def labelled(picture: NDArray[np.uint8], label: str) -> NDArray[np.uint8]:
    """Returns the picture in a dark frame, below its label."""
    framed = cv2.copyMakeBorder(picture, 28, 3, 3, 3, cv2.BORDER_CONSTANT, value=DARK)
    return cv2.putText(framed, label, (6, 19), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (255,) * 3, 1, cv2.LINE_AA)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", type=Path)
    parser.add_argument("--image", type=Path, required=True, help="behind the person in one of the pictures")
    parser.add_argument("--video", type=Path, required=True, help="likewise")
    parser.add_argument("--start", type=float, default=0.0, help="seconds to the frame")
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    behind = {"image:photo.jpg": f"image:{given.image}", "video:clip.mp4": f"video:{given.video}"}
    effects = ["blur", "pixelate", "color:#00b140", *behind, "cutout", "mask", "overlay", "blur --invert"]
    cells = []
    with tempfile.TemporaryDirectory() as folder:
        for number, label in enumerate(effects):
            effect, _, invert = label.partition(" ")
            target = Path(folder) / f"{number}.mkv"
            config = Config(effect=behind.get(effect, effect), invert=bool(invert), start=given.start, max_frames=1)
            segment(given.input, target, config, codec=None if effect == "cutout" else "ffv1")
            cells.append(labelled(shown(target), f"--effect {label}"))
    rows = [np.hstack(cells[i : i + 3]) for i in range(0, len(cells), 3)]
    cv2.imwrite(str(given.output), np.vstack(rows))


if __name__ == "__main__":
    main()
