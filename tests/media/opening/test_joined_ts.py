"""Recordings joined to one MPEG-TS are read as one, whatever PIDs they have and however their bytes come."""

import io
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from pipes import Once

import av
import pytest
from marks import first
from server import serving
from videos import Synthetic

from segmentation.frames.source import Source, source_of
from segmentation.media.opening.joined_ts import JoinedTs
from segmentation.media.opening.open_input import open_input

# Each a recording with other PIDs, in another order, with those of the other kind, or with other tables.
OTHERS: dict[str, tuple[str, dict[str, str]]] = {
    "pids": ("va", {"mpegts_start_pid": "0x200"}),
    "order": ("av", {"mpegts_start_pid": "0x200"}),
    "swapped": ("av", {}),
    "program": ("va", {"mpegts_service_id": "7", "mpegts_start_pid": "0x300"}),
    "map": ("av", {"mpegts_pmt_start_pid": "0x100", "mpegts_start_pid": "0x200"}),
    "clash": ("va", {"mpegts_pmt_start_pid": "0x20", "mpegts_start_pid": "0x1000"}),
    "same": ("va", {}),
}


def remuxed(source: Path, order: str, options: dict[str, str], language: str = "") -> bytes:
    """Returns the streams of a file, by the first letters of their kinds, as MPEG-TS with these options."""
    target = io.BytesIO()
    with av.open(str(source)) as read, av.open(target, "w", format="mpegts", container_options=options) as out:
        streams = {s.index: s for letter in order for s in read.streams if s.type.startswith(letter)}
        to = {index: out.add_stream_from_template(stream) for index, stream in streams.items()}  # type: ignore[type-var]
        for stream in to.values():
            stream.metadata["language"] = language
        for packet in read.demux(*streams.values()):
            if packet.dts is not None:
                packet.stream = to[packet.stream_index]
                out.mux(packet)
    return target.getvalue()


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Synthetic(codec="libx264", pts=range(20), audio="aac").write(tmp_path_factory.mktemp("ts") / "a.ts")


def read(source: str | Source) -> dict[str, list[bytes]]:
    """Returns the packets of an input by the kind of their stream; each kind has one stream."""
    found: dict[str, list[bytes]] = {}
    with open_input(source) as container:
        assert Counter(s.type for s in container.streams).most_common(1)[0][1] == 1
        for packet in container.demux():
            if packet.size:
                found.setdefault(packet.stream.type, []).append(bytes(packet))
    return found


def sources(data: bytes, folder: Path) -> Iterator[str | Source]:
    """Yields the same bytes as a file, a pipe, in memory, and at an address."""
    path = folder / "joined.ts"
    path.write_bytes(data)
    yield str(path)
    yield source_of(Once(io.BytesIO(data)), threading.Event())  # type: ignore[arg-type]
    yield source_of(data, threading.Event())
    with serving(folder) as server:
        yield f"{server.address}/joined.ts"


@pytest.mark.parametrize("names", [[name] for name in OTHERS] + [["order", "same"], ["program", "swapped", "map"]])
def test_parts_are_read_as_one(names: Sequence[str], recording: Path, tmp_path: Path) -> None:
    joined = recording.read_bytes() + b"".join(remuxed(recording, *OTHERS[name]) for name in names)
    once = read(str(recording))
    for source in sources(joined, tmp_path):
        assert read(source) == {kind: packets * (1 + len(names)) for kind, packets in once.items()}


@pytest.mark.parametrize("orders", [("va", "av"), ("va", "va"), ("av", "va")])
def test_a_stream_that_the_first_part_lacks_is_one_of_its_own(
    orders: tuple[str, str], recording: Path, tmp_path: Path
) -> None:
    video = Synthetic(codec="mpeg2video", pts=range(20), audio="aac").write(tmp_path / "b.ts")
    path = tmp_path / "joined.ts"
    path.write_bytes(remuxed(recording, orders[0], {}) + remuxed(video, orders[1], {}))
    with open_input(str(path)) as container:
        counts = Counter(packet.stream.name for packet in container.demux() if packet.size)
    assert counts == {"h264": 20, "aac": 2 * len(read(str(recording))["audio"]), "mpeg2video": 20}


def test_sound_of_another_language_goes_on(tmp_path: Path) -> None:
    """Opus is private data in MPEG-TS: descriptors name the codec, and beside it the language."""
    part = Synthetic(codec="libx264", pts=range(20), audio="libopus").write(tmp_path / "a.mkv")
    first, second = (remuxed(part, "va", {}, language) for language in ("deu", "eng"))
    path = tmp_path / "joined.ts"
    path.write_bytes(first)
    once = read(str(path))
    path.write_bytes(first + second)
    assert read(str(path)) == {kind: 2 * packets for kind, packets in once.items()}


@pytest.mark.parametrize("cut", first(1, [1, 187, 189, 5000]))
def test_a_part_may_be_cut_anywhere(cut: int, recording: Path, tmp_path: Path) -> None:
    data = recording.read_bytes()
    counts: Counter[str] = Counter()
    joined = b""
    for part in (data[:-cut], remuxed(recording, *OTHERS["order"]), data[cut:]):
        path = tmp_path / "part.ts"
        path.write_bytes(part)
        counts.update({kind: len(packets) for kind, packets in read(str(path)).items()})
        joined += part
    path.write_bytes(joined)
    found = read(str(path))
    assert all(abs(len(found[kind]) - counts[kind]) <= 2 for kind in ("video", "audio"))


@pytest.mark.parametrize("size", [1, 7, 188, 1000, 40_000, 1 << 20])
def test_bytes_come_in_any_number_and_places_stay(size: int, recording: Path) -> None:
    data = recording.read_bytes() + remuxed(recording, *OTHERS["order"])
    wanted = JoinedTs(io.BytesIO(data)).read(1 << 20)
    file = JoinedTs(io.BytesIO(data))
    found = b""
    while more := file.read(size):
        assert len(more) <= size and file.tell() == len(found) + len(more)
        found += more
    assert found[: len(wanted)] == wanted and len(found) == len(data)
    assert found[: recording.stat().st_size] == recording.read_bytes()
    assert file.seek(len(data) - 376) == file.seek(0, io.SEEK_CUR) == len(data) - 376
    assert file.read(1000) == found[-376:]
    assert file.seek(-1, io.SEEK_END) == len(data) - 1


def test_a_damaged_map_changes_nothing(recording: Path) -> None:
    data = bytearray(remuxed(recording, *OTHERS["order"]))
    for at in range(0, len(data), 188):
        if (data[at + 1] & 0x1F) << 8 | data[at + 2] == 0x1000:
            data[at + 10] ^= 1
    file = JoinedTs(io.BytesIO(recording.read_bytes() + data))
    found = b"".join(iter(lambda: file.read(1 << 16), b""))
    assert found[recording.stat().st_size + 564 :] == data[564:]  # but for tables


def test_other_files_are_read_as_they_are(tmp_path: Path) -> None:
    data = Synthetic(codec="libx264", pts=range(20)).write(tmp_path / "a.mp4").read_bytes()
    for content in (data, b"", b"G", b"GIF89a" + bytes(range(256)) * 20, b"G" * 376):
        file = JoinedTs(io.BytesIO(content))
        assert b"".join(iter(lambda read=file.read: read(1000), b"")) == content  # type: ignore[misc]
        assert file.seek(0) == 0 and file.read(100) == content[:100]
