"""HEIF pictures of tiles, as phones write them."""

import struct
from fractions import Fraction
from io import BytesIO
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from segmentation.system.cores import kept_scheduling

CODECS = {"hevc": ("libx265", b"heic", b"hvc1", b"hvcC"), "av1": ("libsvtav1", b"avif", b"av01", b"av1C")}


def box(kind: bytes, *content: bytes) -> bytes:
    data = b"".join(content)
    return struct.pack(">I4s", 8 + len(data), kind) + data


def full(kind: bytes, *content: bytes, version: int = 0, flags: int = 0) -> bytes:
    return box(kind, struct.pack(">I", version << 24 | flags), *content)


def write_tiled(path: Path, pixels: NDArray[np.uint8], codec: str, tile: int = 64) -> Path:
    """Writes RGB pixels (H, W, 3) as tiles of `tile` pixels, HEVC or AV1, whose sides divide the picture's."""
    height, width = pixels.shape[:2]
    rows, columns = height // tile, width // tile
    parts = [pixels[y : y + tile, x : x + tile] for y in range(0, height, tile) for x in range(0, width, tile)]
    coded = [_coded(part, codec) for part in parts]
    _, brand, item, configuration = CODECS[codec]
    count = len(parts)
    grid = struct.pack(">BBBBHH", 0, 0, rows - 1, columns - 1, width, height)
    kinds = [b"grid"] + [item] * count
    entries = [full(b"infe", struct.pack(">HH4sx", i, 0, kind), version=2) for i, kind in enumerate(kinds, 1)]
    ids = struct.pack(f">HH{count}H", 1, count, *range(2, count + 2))
    colors = box(b"colr", b"nclx", struct.pack(">HHHB", 1, 13, 6, 0x80))
    sizes = [full(b"ispe", struct.pack(">II", *size)) for size in ((width, height), (tile, tile))]
    depth = full(b"pixi", bytes([3, 8, 8, 8]))
    properties = box(b"ipco", sizes[0], sizes[1], box(configuration, coded[0][0]), colors, depth)
    of_whole, of_tile = (1, 4, 5), (2, 0x83, 4, 5)
    links = b"".join(
        struct.pack(">HB", i, len(uses)) + bytes(uses) for i, uses in enumerate([of_whole] + [of_tile] * count, 1)
    )
    associations = full(b"ipma", struct.pack(">I", count + 1), links)

    def meta(begin: int) -> bytes:
        places, at = [(0, len(grid))], begin
        places[0] = (at, len(grid))
        at += len(grid)
        for _, data in coded:
            places.append((at, len(data)))
            at += len(data)
        located = b"".join(struct.pack(">HHHII", i, 0, 1, *place) for i, place in enumerate(places, 1))
        return full(
            b"meta",
            full(b"hdlr", struct.pack(">I4s13x", 0, b"pict")),
            full(b"pitm", struct.pack(">H", 1)),
            full(b"iloc", struct.pack(">BBH", 0x44, 0, count + 1), located),
            full(b"iinf", struct.pack(">H", count + 1), *entries),
            full(b"iref", box(b"dimg", ids)),
            box(b"iprp", properties, associations),
        )

    head = box(b"ftyp", brand, bytes(4), b"mif1", brand, b"miaf")
    begin = len(head) + len(meta(0)) + 8
    path.write_bytes(head + meta(begin) + box(b"mdat", grid, *(data for _, data in coded)))
    return path


def _coded(pixels: NDArray[np.uint8], codec: str) -> tuple[bytes, bytes]:
    """Returns a tile's configuration record and its data."""
    file = BytesIO()
    with kept_scheduling(), av.open(file, "w", format="mp4") as container:
        options = {"crf": "5"} | ({"x265-params": "log-level=none:bframes=0"} if codec == "hevc" else {"preset": "8"})
        stream = container.add_stream(CODECS[codec][0], rate=25, options=options)
        context = stream.codec_context
        context.height, context.width, context.pix_fmt = *pixels.shape[:2], "yuv420p"
        context.color_range, context.colorspace, context.time_base = 2, 6, Fraction(1, 25)
        picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), "rgb24")
        picture = picture.reformat(format="yuv420p", dst_color_range=2)
        picture.pts, picture.time_base = 0, Fraction(1, 25)
        container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
    file.seek(0)
    with av.open(file) as read:
        data = bytes(next(read.demux(video=0)))
        return bytes(read.streams.video[0].codec_context.extradata or b""), data
