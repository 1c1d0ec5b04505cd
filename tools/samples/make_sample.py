"""Makes samples/astronaut.mp4: a slow camera move over a photograph, with sound.

    pip install scikit-image && python tools/samples/make_sample.py

The photograph is NASA's public-domain portrait of the astronaut Eileen Collins, which scikit-image carries. Everything
else is computed, without randomness: the same versions of the libraries give the same file.
"""

import argparse
import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
from av.video.reformatter import ColorRange, Colorspace
from numpy.typing import NDArray

TARGET = Path(__file__).resolve().parents[2] / "samples" / "astronaut.mp4"
WIDTH, HEIGHT = 640, 360  # pixels; the photograph is 512 wide, so more would add no detail
RATE = 30  # frames a second
SECONDS = 5
SAMPLE_RATE = 48_000
BT709 = 1  # the code point of matrix, primaries and transfer alike, ITU-T H.273

# What the camera sees at the begin and at the end, in pixels of the photograph: centre x, y, width; degrees of roll.
BEGIN = np.array([206.0, 118.0, 392.0, -1.2])
END = np.array([258.0, 142.0, 484.0, 0.9])
# The rising notes of the sound in Hz, one at each full second: C4 E4 G4 B4 C5.
NOTES = (261.63, 329.63, 392.00, 493.88, 523.25)


def photograph() -> NDArray[np.uint8]:
    """The portrait, (512, 512, 3) uint8 RGB."""
    from skimage import data  # needed here only, and by nobody who just uses the clip

    return np.asarray(data.astronaut(), np.uint8)


def frames(photo: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
    """The camera move over `photo` (h, w, 3): `SECONDS` * `RATE` pictures (HEIGHT, WIDTH, 3) uint8 RGB."""
    # OpenCV places samples on a grid of 1/32 pixel, which a slow move would show as trembling. On a picture four times
    # as large that is 1/128, and drawing at twice the size and averaging smooths the rest.
    fine = 4
    large = cv2.resize(photo, None, fx=fine, fy=fine, interpolation=cv2.INTER_LANCZOS4)
    count = SECONDS * RATE
    for i in range(count):
        x, y, width, roll = BEGIN + (END - BEGIN) * ease(i / (count - 1))
        scale = fine * width / (2 * WIDTH)  # pixels of `large` for each pixel drawn
        cos, sin = scale * math.cos(math.radians(roll)), scale * math.sin(math.radians(roll))
        # Pixel centres lie at whole numbers, the middle of a picture of n pixels at (n - 1) / 2.
        middle = np.array([2 * WIDTH - 1, 2 * HEIGHT - 1]) / 2
        turn = np.array([[cos, -sin], [sin, cos]])
        centre = np.array([x + 0.5, y + 0.5]) * fine - 0.5
        matrix = np.column_stack([turn, centre - turn @ middle])  # from the drawn picture to `large`
        drawn = cv2.warpAffine(large, matrix, (2 * WIDTH, 2 * HEIGHT), flags=cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP)
        yield cv2.resize(drawn, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA)


def ease(t: float) -> float:
    """From 0 to 1 as t does, beginning and ending at rest: Perlin's quintic, 6 t^5 - 15 t^4 + 10 t^3."""
    return t * t * t * (t * (6 * t - 15) + 10)


def sound() -> NDArray[np.float32]:
    """A soft bell at each full second, so that sound and picture can be checked to be in step: (1, n) float32."""
    mix = np.zeros(SECONDS * SAMPLE_RATE)
    for second, pitch in enumerate(NOTES):
        t = np.arange(len(mix) - second * SAMPLE_RATE) / SAMPLE_RATE
        attack = np.minimum(t / 0.004, 1)  # seconds: no click
        partials = ((1, 1.0, 1.1), (2, 0.35, 0.7), (3, 0.12, 0.4))  # multiple of the pitch, loudness, decay in seconds
        bell = sum(gain * np.exp(-t / decay) * np.sin(2 * np.pi * pitch * n * t) for n, gain, decay in partials)
        mix[second * SAMPLE_RATE :] += attack * bell
    fade = np.minimum((SECONDS - np.arange(len(mix)) / SAMPLE_RATE) / 0.5, 1)  # out, over the last half second
    return (0.2 * mix * fade).astype(np.float32)[np.newaxis]


def write(target: Path) -> None:
    """Writes the clip: H.264 in BT.709, limited range, and AAC."""
    with av.open(str(target), "w", options={"movflags": "+faststart"}) as container:
        video = container.add_stream("libx264", rate=RATE, options={"crf": "20", "preset": "veryslow"})
        context = video.codec_context
        context.width, context.height, context.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        context.colorspace = context.color_primaries = context.color_trc = BT709
        context.color_range = ColorRange.MPEG  # limited
        context.thread_count = 1  # x264's result depends on how many threads it has
        audio = container.add_stream("aac", rate=SAMPLE_RATE, layout="mono")
        audio.codec_context.bit_rate = 64_000

        heard = av.AudioFrame.from_ndarray(sound(), format="fltp", layout="mono")
        heard.sample_rate, heard.pts, heard.time_base = SAMPLE_RATE, 0, Fraction(1, SAMPLE_RATE)
        container.mux(audio.encode(heard) + audio.encode())
        for i, rgb in enumerate(frames(photograph())):
            picture = av.VideoFrame.from_ndarray(rgb, format="rgb24").reformat(
                format="yuv420p", dst_colorspace=Colorspace.ITU709, dst_color_range=ColorRange.MPEG
            )
            picture.pts, picture.time_base = i, Fraction(1, RATE)
            container.mux(video.encode(picture))
        container.mux(video.encode())


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes the sample clip; needs scikit-image.")
    parser.add_argument("-o", "--output", type=Path, default=TARGET, help="default: samples/astronaut.mp4")
    options = parser.parse_args()
    write(options.output)
    print(f"{options.output}: {options.output.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
