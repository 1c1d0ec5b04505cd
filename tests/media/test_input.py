"""Inputs that are refused before any work: they name other files, or can't be decoded without a key."""

import shutil
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import av
import pytest
from paths import SAMPLE
from videos import Synthetic

from segmentation import InputError
from segmentation.media.input import open_input, probe

PLAYLIST = "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\n{}\n#EXT-X-ENDLIST\n"
SDP = "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [("list.m3u8", PLAYLIST), ("list.ffconcat", "ffconcat version 1.0\nfile {}\n"), ("list.sdp", SDP)],
    ids=["HLS", "concat", "SDP"],
)
def test_a_file_opens_no_other(name: str, content: str, tmp_path: Path) -> None:
    shutil.copy(SAMPLE, tmp_path / "other.mp4")
    Synthetic(codec="libx264", format="mpegts").write(tmp_path / "other.ts")
    for other in ("other.mp4", "other.ts"):
        (tmp_path / name).write_text(content.format(other))
        with pytest.raises(InputError, match="is a playlist or script that names other files"):
            open_input(str(tmp_path / name))
        (tmp_path / "in.mp4").write_text(content.format(other))
        with pytest.raises(InputError):
            open_input(str(tmp_path / "in.mp4"))


def test_a_percent_sign_is_no_pattern(tmp_path: Path) -> None:
    picture = Synthetic(codec="png", pix_fmt="rgb24", pts=range(1), format="image2")
    picture.write(tmp_path / "a1.png")
    with pytest.raises(InputError):
        probe(str(tmp_path / "a%d.png"))
    shutil.copy(tmp_path / "a1.png", tmp_path / "a%d.png")
    assert probe(str(tmp_path / "a%d.png")).width == 64


@pytest.mark.parametrize("entry", ["file://{}", "other.ts"])
def test_an_address_opens_addresses_alone(entry: str, tmp_path: Path) -> None:
    Synthetic(codec="libx264", format="mpegts").write(tmp_path / "other.ts")
    (tmp_path / "list.m3u8").write_text(PLAYLIST.format(entry.format(tmp_path / "other.ts")))

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(tmp_path))  # type: ignore[arg-type]

        def log_message(self, format: str, *values: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/list.m3u8"
        try:
            if entry.startswith("file"):
                with pytest.raises(InputError):
                    probe(address)
            else:
                assert probe(address).width == 64
        finally:
            server.shutdown()


@pytest.mark.parametrize("address", ["http://h/a\r\nHost: b", "http://h/a b?token=secret"])
def test_an_address_holds_no_spaces(address: str) -> None:
    with pytest.raises(InputError, match=r"^http://h/a: .*%20$"):
        open_input(address)


@pytest.mark.parametrize("fragmented", [False, True])
def test_encrypted_streams_are_refused(fragmented: bool, tmp_path: Path) -> None:
    options = {"encryption_scheme": "cenc-aes-ctr", "encryption_key": "00" * 16, "encryption_kid": "11" * 16}
    if fragmented:
        options["movflags"] = "+frag_keyframe+empty_moov"
    with av.open(str(SAMPLE)) as source, av.open(str(tmp_path / "a.mp4"), "w", container_options=options) as target:
        copy = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.size:
                packet.stream = copy
                target.mux(packet)
    with pytest.raises(InputError, match="is encrypted"):
        probe(str(tmp_path / "a.mp4"))


def test_a_clear_beginning_hides_no_encryption(corpus: Path) -> None:
    with pytest.raises(InputError, match="is encrypted"):
        probe(str(corpus / "bear-640x360-v_frag-cbcs.mp4"))
