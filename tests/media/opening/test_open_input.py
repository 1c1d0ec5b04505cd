"""Inputs: what is read of them, and which are refused before any work."""

import os
import shutil
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import photos
import pytest
from hostile_server import HostileServer
from paths import SAMPLE
from server import serving
from videos import Synthetic

from segmentation import Config, InputError
from segmentation.media.opening import download
from segmentation.media.opening.open_input import open_input
from segmentation.media.opening.probe import probe
from segmentation.media.pictures.still import read_still
from segmentation.stages.decode.pyav import PyAVDecoder
from segmentation.system.access import Access

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
    with pytest.raises(InputError, match="no pictures numbered so"):
        probe(str(tmp_path / "b%d.png"))
    shutil.copy(tmp_path / "a1.png", tmp_path / "a%d.png")
    assert probe(str(tmp_path / "a%d.png")).width == 64


def playlists(folder: Path, **entries: str) -> None:
    Synthetic(codec="libx264", format="mpegts").write(folder / "other.ts")
    for name, entry in entries.items():
        (folder / f"{name}.m3u8").write_text(PLAYLIST.format(entry))


@pytest.mark.parametrize("remote", [False, True])
def test_playlists_need_leave(remote: bool, tmp_path: Path) -> None:
    playlists(tmp_path, a="other.ts")
    with serving(tmp_path) as server:
        name = f"{server.address}/a.m3u8" if remote else str(tmp_path / "a.m3u8")
        with pytest.raises(InputError, match=r"is a playlist .*, or allow it with --allow playlists$"):
            open_input(name)
        assert probe(name, Access(playlists=True)).width == 64


def test_dash_is_refused(tmp_path: Path) -> None:
    Synthetic(codec="libx264", format="dash").write(tmp_path / "a.mpd")
    with pytest.raises(InputError, match=r"is a playlist or script .*; give the video itself$"):
        open_input(str(tmp_path / "a.mpd"), Access(playlists=True))


def test_a_concat_script_joins_files(tmp_path: Path) -> None:
    shutil.copy(SAMPLE, tmp_path / "other.mp4")
    (tmp_path / "a.ffconcat").write_text("ffconcat version 1.0\nfile other.mp4\nfile other.mp4\n")
    with open_input(str(tmp_path / "a.ffconcat"), Access(playlists=True)) as container:
        assert sum(1 for _ in container.decode(video=0)) == 300


def test_a_concat_script_opens_no_address(tmp_path: Path) -> None:
    shutil.copy(SAMPLE, tmp_path / "other.mp4")
    with serving(tmp_path) as server:
        (tmp_path / "a.ffconcat").write_text(f"ffconcat version 1.0\nfile {server.address}/other.mp4\n")
        with pytest.raises(InputError):
            probe(str(tmp_path / "a.ffconcat"), Access(playlists=True))
        with pytest.raises(InputError, match="is a playlist or script"):
            probe(f"{server.address}/a.ffconcat", Access(playlists=True))
        assert [path for path, _ in server.asked] == ["/a.ffconcat"]


def test_a_playlist_from_the_net_opens_no_file(tmp_path: Path) -> None:
    playlists(tmp_path, a=f"file://{tmp_path}/other.ts", b=f"{tmp_path}/other.ts")
    with serving(tmp_path / "empty") as server:
        server.folder = tmp_path
        for name in ("a", "b"):
            with pytest.raises(InputError):
                probe(f"{server.address}/{name}.m3u8", Access(playlists=True))


def test_a_playlist_without_its_files_is_one_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path) as server:
        (tmp_path / "a.m3u8").write_text(PLAYLIST.replace("{}", "none.ts\n#EXTINF:5,\nnone2.ts"))
        with pytest.raises(InputError, match="no such file on the server"):
            probe(f"{server.address}/a.m3u8", Access(playlists=True))
        with pytest.raises(InputError, match=r"names .*none\.ts, which cannot be opened \(No such file or directory\)"):
            probe(str(tmp_path / "a.m3u8"), Access(playlists=True))
    assert capfd.readouterr().err == ""


def test_a_playlist_leads_to_public_addresses_alone(tmp_path: Path) -> None:
    with serving(tmp_path) as own, serving(tmp_path) as other:
        playlists(tmp_path, a=f"{other.address}/other.ts")
        for name in (f"{own.address}/a.m3u8", str(tmp_path / "a.m3u8")):
            with pytest.raises(InputError, match=r"private address .*--allow private$"):
                probe(name, Access(playlists=True))
            assert not other.asked
            assert probe(name, Access(playlists=True, private=True)).width == 64
            assert other.asked
            other.asked.clear()


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("names", [["a"], [f"b{number}" for number in range(300)]], ids=["itself", "many"])
def test_a_playlist_leads_to_so_many_files(names: list[str], remote: bool, tmp_path: Path) -> None:
    playlists(tmp_path, **dict.fromkeys(names, "other.ts"))
    entries = "".join(f"#EXT-X-STREAM-INF:BANDWIDTH=1000\n{name}.m3u8\n" for name in names)
    (tmp_path / "a.m3u8").write_text(f"#EXTM3U\n{entries}")
    with serving(tmp_path) as server:
        source = f"{server.address}/a.m3u8" if remote else str(tmp_path / "a.m3u8")
        with pytest.raises(InputError, match="leads to more than 256 files before the first frame"):
            probe(source, Access(playlists=True))
        assert len(server.asked) <= 256


def test_a_playlist_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_LONGEST_PLAYLIST", 1 << 20)
    refused = pytest.raises(InputError, match="is a playlist of more than 1 MiB")
    with HostileServer("hls", "endless") as server, refused:
        probe(server.url, Access(playlists=True))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("#EXTM3U\n" + 190_000 * "#EXT-X-STREAM-INF:\na\n", "is a playlist of more than 1000 variants"),
        ("#EXTM3U\n#EXT-X-TARGETDURATION:1\n" + (1 << 22) * "a", "is a playlist of more than 4 MiB"),
    ],
    ids=["variants", "one line"],
)
@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("name", ["a.m3u8", "b.m3u8"], ids=["nested", "itself"])
def test_a_playlist_is_bounded(name: str, remote: bool, content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "b.m3u8").write_text(content)
    (tmp_path / "a.m3u8").write_text("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1000\nb.m3u8\n")
    with serving(tmp_path) as server, pytest.raises(InputError, match=said):
        open_input(f"{server.address}/{name}" if remote else str(tmp_path / name), Access(playlists=True))


def test_a_playlist_on_disk_without_an_end_ends(tmp_path: Path) -> None:
    """It holds all segments: a player of live streams would begin with the last three."""
    entry = "#EXTINF:1,\n" + "\n#EXT-X-DISCONTINUITY\n#EXTINF:1,\n".join(["other.ts"] * 5)
    playlists(tmp_path)
    (tmp_path / "a.m3u8").write_text(f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n{entry}\n")
    with open_input(str(tmp_path / "other.ts")) as container:
        frames = sum(1 for _ in container.decode(video=0))
    with open_input(str(tmp_path / "a.m3u8"), Access(playlists=True)) as container:
        assert sum(1 for _ in container.decode(video=0)) == 5 * frames


def test_a_playlist_names_no_pipe(tmp_path: Path) -> None:
    """Opening one would wait for its writer."""
    playlists(tmp_path, a="pipe.ts")
    os.mkfifo(tmp_path / "pipe.ts")
    with pytest.raises(InputError, match=r"names .*pipe\.ts, which cannot be opened \(no regular file\)"):
        probe(str(tmp_path / "a.m3u8"), Access(playlists=True))


@pytest.mark.parametrize("size", ["4611686018427387904", "1" + 30 * "0"])
def test_a_size_that_lies_is_one_error(size: str, tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(SAMPLE.read_bytes())
    with serving(tmp_path) as server:
        server.claimed = size
        with pytest.raises(InputError, match=r"broke off \d+ bytes before the end"):
            probe(f"{server.address}/a.mp4")


def test_large_frames_and_long_inputs_are_refused(tmp_path: Path) -> None:
    with open_input(str(SAMPLE)) as container:
        height = container.streams.video[0].height
    pixels = 640 * height
    assert probe(str(SAMPLE), Access(max_pixels=pixels, max_duration=Fraction(5))).width == 640
    with pytest.raises(InputError, match=f"claims 640x{height} pixels; more than {pixels - 1} are refused"):
        probe(str(SAMPLE), Access(max_pixels=pixels - 1))
    with pytest.raises(InputError, match=r"lasts 5\.0 s; at most 4\.9 s are allowed \(--max-duration\)"):
        probe(str(SAMPLE), Access(max_duration=Fraction("4.9")))


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


@pytest.mark.parametrize(
    ("name", "video", "audio"),
    [
        ("a.wmv", "wmv2", "wmav2"),
        ("a.avi", "mpeg4", "mp2"),
        ("a.flv", "flv1", "aac"),
        ("a.ts", "mpeg2video", "mp2"),
        ("a.mpg", "mpeg2video", "mp2"),
        ("a.mp4", "libx264", "aac"),
        ("a.mkv", "libx264", "aac"),
        ("a.ogv", "libvpx", "libopus"),
        ("a.webm", "libvpx-vp9", "libopus"),
    ],
)
def test_a_video_that_ends_before_its_sound_lacks_no_frames(name: str, video: str, audio: str, tmp_path: Path) -> None:
    clip = Synthetic(codec=video, audio=audio, audio_bit_rate=128_000, audio_seconds=2).write(tmp_path / name)
    info = probe(str(clip))
    decoder = PyAVDecoder(info, info.pix_fmt, Config())
    assert (sum(len(batch.frames) for batch in decoder), decoder.damaged) == (25, 0)


@pytest.mark.parametrize(("codec", "format"), [("libx264", "h264"), ("libx265", "hevc")])
@pytest.mark.parametrize("rate", [25, 30, 50])
def test_streams_without_times_run_at_their_own_rate(codec: str, format: str, rate: int, tmp_path: Path) -> None:
    video = Synthetic(codec=codec, format=format, pts=range(20), time_base=Fraction(1, rate))
    info = probe(str(video.write(tmp_path / f"a.{format}")))
    assert not info.timed and info.rate == rate
    times = [f.pts * info.time_base for batch in PyAVDecoder(info, "yuv420p", Config()) for f in batch.frames]
    assert times == [Fraction(number, rate) for number in range(20)]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp"])
def test_numbered_pictures_stand_as_single_ones_do(suffix: str, orientation: int, tmp_path: Path) -> None:
    photo = photos.photo(64, 48)
    for number in (1, 2):
        photos.write(tmp_path / f"{number:03}{suffix}", photo, orientation=orientation)
    info = probe(str(tmp_path / f"%03d{suffix}"))
    with open_input(info.path) as container:
        pixels = next(container.decode(video=0)).to_ndarray(format="rgb24")
    wanted = read_still(str(tmp_path / f"001{suffix}")).rgb
    shown = info.orientation.upright(pixels)
    assert shown.shape == wanted.shape and np.abs(shown.astype(int) - wanted).mean() < 6


def test_a_folder_is_for_the_command_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r": is a folder, not a video; give its files one by one, or the folder to"):
        open_input(str(tmp_path))
