"""Streams beside the video, and what containers make of them: timecodes, unknown ones, coarse clocks, Windows' own."""

from fractions import Fraction
from pathlib import Path
from pipes import Once

import av
import numpy as np
import pytest
from marks import first
from program import cli, report
from quick import NETWORK
from videos import Synthetic, packets, same_packets

from segmentation import OutputError, segment
from segmentation.media.copying.format_limits import Ticks
from segmentation.options.keywords import RunOptions


@pytest.mark.slow
def test_a_timecode_is_written_anew(tmp_path: Path) -> None:
    """FFmpeg makes its track of the video's metadata, and refuses a copy of it, but only when all is done."""
    clip = Synthetic(codec="libx264", video_tags={"timecode": "01:00:00:00"}).write(tmp_path / "clip.mov")
    for name, effect in (("a.mov", "blur"), ("a.mp4", "blur"), ("cut.mov", "cutout")):
        segment(clip, tmp_path / name, mode="baseline", effect=effect)
        with av.open(str(tmp_path / name)) as container:
            codes = [(stream.type, stream.metadata.get("timecode")) for stream in container.streams]
        assert codes == [("video", "01:00:00:00"), ("data", "01:00:00:00")]


def test_a_stream_of_an_unknown_kind_is_left_out_with_a_line(tmp_path: Path) -> None:
    clip = Synthetic(codec="mpeg2video", audio="mp2").write(tmp_path / "clip.ts")
    clip.write_bytes(with_another_stream(clip.read_bytes()))
    done = cli(clip, "-o", tmp_path / "a.mp4")
    assert done.returncode == 0 and "(unknown) is left out" in done.stderr
    assert len(packets(tmp_path / "a.mp4", "audio")) == len(packets(clip, "audio")) > 0


def with_another_stream(data: bytes) -> bytes:
    """A transport stream whose program has one more stream, of DSM-CC sections (ISO/IEC 13818-1, table 2-34)."""
    made, program = bytearray(data), None
    for at in range(0, len(made), 188):
        number = int.from_bytes(made[at + 1 : at + 3], "big") & 0x1FFF
        table = at + 4 + (1 + made[at + 4] if made[at + 3] & 0x20 else 0)
        table += 1 + made[table]
        if number == 0:
            program = int.from_bytes(made[table + 10 : table + 12], "big") & 0x1FFF
        elif number == program and made[at + 1] & 0x40:
            length = (int.from_bytes(made[table + 1 : table + 3], "big") & 0xFFF) + 5
            section = made[table : table + length - 6] + bytes((0x0B, 0xE1, 0x55, 0xF0, 0))
            section[1:3] = (0xB000 | length).to_bytes(2, "big")
            made[table : table + length + 3] = section + crc(section)
    return bytes(made)


def crc(data: bytes) -> bytes:
    """CRC-32/MPEG-2."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte << 24
        for _ in range(8):
            value = (value << 1 ^ (0x04C11DB7 if value & 0x80000000 else 0)) & 0xFFFFFFFF
    return value.to_bytes(4, "big")


def test_a_stream_of_data_is_copied_where_the_format_holds_it(tmp_path: Path) -> None:
    """As cameras record their place and movement: FFmpeg has no codec for it."""
    silent, clip = Synthetic(codec="libx264").write(tmp_path / "silent.mkv"), tmp_path / "clip.ts"
    with av.open(str(silent)) as source, av.open(str(clip), "w") as container:
        video, data = container.add_stream_from_template(source.streams.video[0]), container.add_data_stream("klv")
        for packet in source.demux(source.streams.video[0]):
            if packet.size:
                packet.stream = video
                container.mux(packet)
        for number in range(25):
            place = av.Packet(bytes([number] * 24))
            place.stream, place.pts, place.dts = data, number, number
            place.time_base = Fraction(1, 25)
            container.mux(place)
    segment(clip, tmp_path / "a.mov", mode="baseline", verify=True)
    copied = [packet.data for packet in packets(tmp_path / "a.mov", "data")]
    assert copied == [packet.data for packet in packets(clip, "data")][:24]  # the last one has no length


@pytest.mark.parametrize("frames", [0, 3])
def test_a_gap_that_an_mp4_cannot_state_is_refused_and_others_hold_it(frames: int, tmp_path: Path) -> None:
    """As a gap of the pictures in decoding order, or of one from when it is shown."""
    shown = [0, 1, *(60 * 3600 * 25 + number for number in range(1 + frames))]
    source = Synthetic(codec="libx264", pts=shown, options={"bf": "0"}).write(tmp_path / "a.mkv")
    with pytest.raises(OutputError, match=r"has a gap of 60\.0 h at \S+ s, longer than \.mp4 files can state; name a"):
        segment(source, tmp_path / "b.mp4", effect="mask", encode="x264")
    assert segment(source, tmp_path / "b.mkv", effect="mask", encode="x264").frames == len(shown)


@pytest.mark.parametrize("options", [{}, {"anonymize": "faces"}])
def test_an_output_does_not_claim_the_alpha_of_its_source(
    options: RunOptions, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clip, target = tmp_path / "clip.webm", tmp_path / "a.mkv"
    segment(Synthetic(pts=range(3)).write(tmp_path / "in.mkv"), clip, effect="cutout")
    caplog.clear()
    segment(clip, target, mode="baseline", **options)
    with av.open(str(target)) as container:
        assert "alpha_mode" not in {name.lower() for name in container.streams.video[0].metadata}
    assert "its alpha is not read" in caplog.text and "alpha_mode" not in caplog.text


def test_subtitles_may_begin_together(tmp_path: Path) -> None:
    lines = [(0.1, 0.5, "one"), (0.1, 0.5, "another"), (0.1, 0.8, "a sign"), (0.6, 0.9, "later")]
    clip = Synthetic(codec="libx264", subtitles=lines).write(tmp_path / "clip.mkv")
    segment(clip, tmp_path / "a.mkv", mode="baseline")
    assert packets(tmp_path / "a.mkv", "subtitle") == packets(clip, "subtitle")
    assert len(packets(clip, "subtitle")) == 4


def test_packets_of_sound_may_be_shorter_than_a_tick(tmp_path: Path) -> None:
    """In Matroska times are whole milliseconds, and 40 samples are less."""
    silent = Synthetic(codec="libx264").write(tmp_path / "silent.mkv")
    clip = tmp_path / "clip.mkv"
    with av.open(str(silent)) as source, av.open(str(clip), "w") as container:
        video = container.add_stream_from_template(source.streams.video[0])
        sound = container.add_stream("pcm_s16le", rate=48_000, layout="mono")
        for packet in source.demux(source.streams.video[0]):
            if packet.size:
                packet.stream = video
                container.mux(packet)
        for number in range(600):
            frame = av.AudioFrame.from_ndarray(np.full((1, 40), number, np.int16), "s16", "mono")
            frame.sample_rate, frame.pts, frame.time_base = 48_000, 40 * number, Fraction(1, 48_000)
            container.mux(sound.encode(frame))
    segment(clip, tmp_path / "a.mkv", mode="baseline")
    assert len(packets(clip, "audio")) == 600
    assert packets(tmp_path / "a.mkv", "audio") == packets(clip, "audio")


@pytest.mark.slow
def test_a_stretch_that_is_longer_than_the_video_keeps_the_sound_after_it(tmp_path: Path) -> None:
    clip = Synthetic(codec="libx264", audio="aac", pts=range(50)).write(tmp_path / "long.mkv")
    short = tmp_path / "short.mkv"  # the sound of two seconds, the picture of one
    with av.open(str(clip)) as source, av.open(str(short), "w") as container:
        copies = {stream.index: container.add_stream_from_template(stream) for stream in source.streams}
        for packet in source.demux():
            if packet.size and (packet.stream.type == "audio" or packet.pts * packet.time_base < 1):
                packet.stream = copies[packet.stream_index]
                container.mux(packet)
    segment(short, tmp_path / "all.mp4", mode="baseline", duration=100, verify=True)
    assert [c.data for c in packets(tmp_path / "all.mp4", "audio")] == [c.data for c in packets(short, "audio")]
    segment(short, tmp_path / "some.mp4", mode="baseline", duration=0.5, verify=True)
    assert 20 < len(packets(tmp_path / "some.mp4", "audio")) < 30  # packets of 1024 samples at 48 kHz, in half a second
    silent = segment(short, tmp_path / "late.mkv", mode="baseline", start=0.5, duration=0.4, verify=True)
    assert silent.verified is not None


@pytest.mark.parametrize("number", [10, 25])
def test_what_begins_when_the_video_ends_is_not_copied(tmp_path: Path, number: int) -> None:
    lines = [(0.1, 0.2, "one"), (0.4, 0.5, "two"), (0.8, 0.9, "three")]
    clip = Synthetic(codec="libx264", subtitles=lines).write(tmp_path / "clip.mkv")
    segment(clip, tmp_path / "a.mkv", mode="baseline", max_frames=number)
    assert len(packets(tmp_path / "a.mkv", "subtitle")) == (1 if number == 10 else 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "video", "audio", "rate"),
    first(
        1,
        [
            ("a.wmv", "wmv2", "wmav2", 128_000),
            ("a.asf", "wmv1", "wmav1", 128_000),
            ("a.avi", "mpeg4", "adpcm_ms", None),
        ],
    ),
)
def test_sound_of_windows_goes_where_it_is_held(
    name: str, video: str, audio: str, rate: int | None, tmp_path: Path
) -> None:
    clip = Synthetic(codec=video, audio=audio, audio_bit_rate=rate).write(tmp_path / name)
    kept = cli(clip, "-o", tmp_path / "out.avi", "--json")
    assert report(kept)["frames"] == 25 and "left out" not in kept.stderr
    assert same_packets(packets(tmp_path / "out.avi", "audio"), packets(clip, "audio"), Fraction(1, 20))
    left_out = cli(clip, "-o", tmp_path / "out.mkv", "--json")
    assert report(left_out)["frames"] == 25
    assert f"(audio {audio}) is left out: .mkv files can't hold it; .avi files can\n" in left_out.stderr
    with av.open(str(tmp_path / "out.mkv")) as container:
        assert not container.streams.audio


@pytest.mark.parametrize(
    ("codec", "rate", "held"),
    [("pcm_s16le", 22050, True), ("pcm_s16le", 8000, False), ("pcm_mulaw", 8000, True), ("pcm_mulaw", 16000, False)],
)
def test_flv_gets_no_sound_whose_rate_it_does_not_state(codec: str, rate: int, held: bool, tmp_path: Path) -> None:
    clip = Synthetic(codec="mpeg4", audio=codec, audio_rate=rate).write(tmp_path / "in.avi")
    done = cli(clip, "-o", tmp_path / "out.flv")
    assert done.returncode == 0 and (f"(audio {codec}) is left out: .flv files can't hold it" in done.stderr) != held
    with av.open(str(tmp_path / "out.flv")) as container:
        assert [stream.rate for stream in container.streams.audio] == [rate] * held


@pytest.mark.parametrize("suffix", [".mp4", ".mov", ".mkv", ".avi"])
def test_sound_whose_channels_have_no_names(suffix: str, tmp_path: Path) -> None:
    """AVI does not name them, and MP4 needs names for PCM, but only when all is done."""
    clip = Synthetic(codec="mpeg4", audio="pcm_s16le").write(tmp_path / "in.avi")
    with av.open(str(clip)) as container:
        assert container.streams.audio[0].layout.name == "2 channels"
    segment(clip, tmp_path / f"out{suffix}", mode="baseline")
    sound = [b"".join(packet.data for packet in packets(path, "audio")) for path in (clip, tmp_path / f"out{suffix}")]
    assert sound[0] == sound[1] != b""


@pytest.mark.parametrize("base", [Fraction(1, 15360), Fraction(1001, 30000), Fraction(1, 44100)])
@pytest.mark.parametrize("unit", [Fraction(1, 15360), Fraction(1, 1000), Fraction(1, 90000), Fraction(2, 30720)])
def test_ticks_are_rounded_as_the_fraction_would_be(base: Fraction, unit: Fraction) -> None:
    times = [*range(-40, 40), 10**12 + 1, -(10**12) - 1]
    assert list(map(Ticks(base, unit), times)) == [round(time * base / unit) for time in times]


@pytest.mark.parametrize("codec", ["ac3", "eac3", "flac", "mp2", "pcm_s16le"])
def test_avi_gets_sound_alone_whose_packets_have_a_length(codec: str, tmp_path: Path) -> None:
    """E-AC-3 and FLAC were heard within a fraction of a second, one packet over the other."""
    clip = Synthetic(codec="libx264", audio=codec).write(tmp_path / "a.mkv")
    done = cli(clip, "-o", tmp_path / "b.avi")
    assert done.returncode == 0
    left_out = codec in ("eac3", "flac")
    assert (f"(audio {codec}) is left out: .avi files can't hold it; .mkv files can" in done.stderr) == left_out
    assert left_out or same_packets(packets(tmp_path / "b.avi", "audio"), packets(clip, "audio"), Fraction(1, 100))


@pytest.mark.parametrize("codec", ["adpcm_ms", "pcm_s16le"])
def test_avi_gets_adpcm_alone_whose_blocks_have_a_size(codec: str, tmp_path: Path) -> None:
    """NUT does not state it, and no player could decode the copy."""
    clip = Synthetic(codec="mpeg4", audio=codec).write(tmp_path / "in.nut")
    done = cli(clip, "-o", tmp_path / "out.avi", "--region", "0,0,8,8")
    assert done.returncode == 0
    assert ("(audio adpcm_ms) is left out: .avi files can't hold it" in done.stderr) == (codec == "adpcm_ms")
    with av.open(str(tmp_path / "out.avi")) as container:
        assert len(container.streams.audio) == (codec != "adpcm_ms")
        assert not container.streams.audio or next(container.decode(audio=0)).samples


@pytest.mark.parametrize("codec", ["eac3", "ac3"])
def test_mp4_gets_no_sound_under_another_name(codec: str, tmp_path: Path) -> None:
    """NUT calls E-AC-3 AC-3, with which FFmpeg's muxer of MP4 fails when all is done."""
    clip = Synthetic(codec="mpeg4", audio=codec).write(tmp_path / "in.nut")
    done = cli(clip, "-o", tmp_path / "out.mp4", "--region", "0,0,8,8", "--json")
    assert report(done)["frames"] == 25
    assert ("is left out: it is E-AC-3, and .mp4 files name it so; .mkv files" in done.stderr) == (codec == "eac3")
    with clip.open("rb") as file:
        segment(Once(file), tmp_path / "pipe.mp4", model=NETWORK, also=[("mask", tmp_path / "mask.mp4")])
    for name in ("out.mp4", "pipe.mp4", "mask.mp4"):
        with av.open(str(tmp_path / name)) as container:
            assert len(container.streams.audio) == (codec == "ac3")
            assert sum(bool(packet.size) for packet in container.demux(video=0)) == 25


def test_lines_name_codecs_not_their_decoders(tmp_path: Path) -> None:
    """FFmpeg decodes MP3 with mp3float, and AV1 with libdav1d."""
    clip = Synthetic(codec="mpeg4", audio="libmp3lame").write(tmp_path / "in.mkv")
    done = cli(clip, "-o", tmp_path / "out.mkv", "--region", "0,0,8,8", "--mute")
    assert done.returncode == 0 and "stream 1 (audio mp3) is left out: --mute" in done.stderr
