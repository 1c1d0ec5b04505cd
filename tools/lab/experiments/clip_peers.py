"""How others load a clip of consecutive frames at a place: libraries for videos, and pictures in files."""

import importlib
import os
import threading
from collections.abc import Callable
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from numpy.typing import NDArray

LENGTH, SIDE = 16, 224
Pictures = NDArray[np.uint8]  # (T, 224, 224, 3)
Load = Callable[[str, int, int], Pictures]  # of a path, the number of the first frame and its pts
_open = threading.local()  # the decoders of each thread, which stay open


def by_pyav(path: str, first: int, pts: int) -> Pictures:
    """Seeks to the time of the first frame, and decodes on."""
    with av.open(path) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        container.seek(pts, stream=stream)
        shown = islice((frame for frame in container.decode(stream) if (frame.pts or 0) >= pts), LENGTH)
        return np.stack([scaled(frame) for frame in shown])


def scaled(frame: av.VideoFrame) -> Pictures:
    """Returns a frame (224, 224, 3) as swscale makes it."""
    return frame.reformat(SIDE, SIDE, "rgb24", interpolation="AREA").to_ndarray()  # type: ignore[return-value]


def by_opencv(path: str, first: int, pts: int) -> Pictures:
    """Goes to the number of the first frame, and reads on."""
    capture = cv2.VideoCapture(path, cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, 1])
    capture.set(cv2.CAP_PROP_POS_FRAMES, first)
    shown = [capture.read()[1] for _ in range(LENGTH)]
    capture.release()
    return np.stack([_shrunk(frame) for frame in shown])


def by_decord(path: str, first: int, pts: int) -> Pictures:
    """Asks a reader that stays open, and scales by itself, for the frames' numbers."""
    decord: Any = importlib.import_module("decord")
    reader = _kept(path, lambda: decord.VideoReader(path, num_threads=1, width=SIDE, height=SIDE))
    return reader.get_batch(range(first, first + LENGTH)).asnumpy()  # type: ignore[no-any-return]


def by_torchcodec(path: str, first: int, pts: int) -> Pictures:
    """Asks a decoder that stays open, and scales by itself, for the frames' numbers."""
    decoders: Any = importlib.import_module("torchcodec.decoders")
    transforms: Any = importlib.import_module("torchcodec.transforms")
    options = {"transforms": [transforms.Resize((SIDE, SIDE))], "dimension_order": "NHWC"}
    decoder = _kept(path, lambda: decoders.VideoDecoder(path, num_ffmpeg_threads=1, **options))
    return decoder.get_frames_in_range(first, first + LENGTH).data.numpy()  # type: ignore[no-any-return]


def by_pictures(path: str, first: int, pts: int) -> Pictures:
    """Reads numbered files of a folder."""
    names = sorted(os.listdir(path))[first : first + LENGTH]
    return np.stack([_shrunk(cv2.imread(f"{path}/{name}")) for name in names])


def by_burst(path: str, first: int, pts: int) -> Pictures:
    """Reads pictures that follow each other in one file, with one call; `PATH.npy` has their places."""
    places = np.load(f"{path}.npy")
    with Path(path).open("rb") as file:
        data = np.frombuffer(os.pread(file.fileno(), places[first + LENGTH] - places[first], places[first]), np.uint8)
    cuts = places[first : first + LENGTH + 1] - places[first]
    parts = (data[begin:end] for begin, end in pairwise(cuts))
    return np.stack([_shrunk(cv2.imdecode(part, cv2.IMREAD_COLOR)) for part in parts])


def of_videos() -> dict[str, Load]:
    """Returns the libraries for videos that are installed."""
    found: dict[str, Load] = {"PyAV": by_pyav, "OpenCV": by_opencv}
    for name, module, load in (("decord", "decord", by_decord), ("torchcodec", "torchcodec.decoders", by_torchcodec)):
        try:
            importlib.import_module(module)
        except (ImportError, OSError, RuntimeError) as exc:
            print(f"{name} is left out: {str(exc).splitlines()[0]}")
        else:
            found[name] = load
    return found


def pictures_of(video: Path) -> dict[str, tuple[Path, Load]]:
    """Makes a video's frames into pictures beside it: two folders, and one file of all."""
    jpeg, png, burst = (video.with_suffix(f".{kind}") for kind in ("jpeg", "png", "burst"))
    jpeg.mkdir()
    png.mkdir()
    places = [0]
    with av.open(str(video)) as container, burst.open("wb") as file:
        for number, frame in enumerate(container.decode(video=0)):
            picture = frame.to_ndarray(format="bgr24")
            data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 90])[1].tobytes()
            (jpeg / f"{number:05d}.jpg").write_bytes(data)
            places.append(places[-1] + file.write(data))
            cv2.imwrite(str(png / f"{number:05d}.png"), picture)
    np.save(f"{burst}.npy", np.array(places))
    return {"JPEG folder": (jpeg, by_pictures), "JPEG burst": (burst, by_burst), "PNG folder": (png, by_pictures)}


def _kept(path: str, make: Callable[[], Any]) -> Any:
    decoders = _open.__dict__
    if path not in decoders:
        decoders[path] = make()
    return decoders[path]


def _shrunk(picture: Any) -> Any:
    return cv2.resize(picture, (SIDE, SIDE), interpolation=cv2.INTER_AREA)[..., ::-1]
