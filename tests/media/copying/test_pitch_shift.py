"""Sound of another pitch: its tone moves, its length and place stay, and other streams are copied."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from videos import Synthetic, packets, same_packets

from segmentation import Config, ConfigError, segment
from segmentation.media import muxer

RATE, SECONDS = 48000, 4
TONES = 440.0, 1000.0  # Hz, of the two streams
SHIFT = 4.0  # semitones
BEEP = 2.0  # seconds from the beginning, when the tone becomes louder
PLACE = {"region": ("0,0,16,16",), "mode": "baseline"}  # needs no network


def made(path: Path, codec: str, hole: float = 0.0, subtitle: bool = False) -> Path:
    """A video with two tones, whose sound lacks `hole` seconds from the first second on."""
    with av.open(str(path), "w") as out:
        video = out.add_stream("libx264", rate=25)
        video.width, video.height, video.pix_fmt = 64, 48, "yuv420p"
        sounds = [out.add_stream(codec, rate=RATE, layout=layout) for layout in ("stereo", "mono")]
        for tone, stream in zip(TONES, sounds, strict=True):
            times = np.arange(RATE * SECONDS) / RATE
            wave = (np.sin(2 * np.pi * tone * times) * np.where(times < BEEP, 0.1, 0.5)).astype(np.float32)
            for at in range(0, len(wave), 1000):
                if 1 <= at / RATE < 1 + hole:
                    continue
                channels = stream.layout.nb_channels
                part = np.tile(wave[at : at + 1000], (channels, 1))
                frame = av.AudioFrame.from_ndarray(part, format="fltp", layout=stream.layout.name)
                frame.sample_rate, frame.pts, frame.time_base = RATE, at, Fraction(1, RATE)
                out.mux(stream.encode(frame))
            out.mux(stream.encode(None))
        for number in range(25 * SECONDS):
            picture = av.VideoFrame.from_ndarray(np.full((48, 64, 3), number, np.uint8), "rgb24")
            picture.pts = number
            out.mux(video.encode(picture))
        out.mux(video.encode(None))
    return path


def heard(path: Path, number: int) -> tuple[float, NDArray[np.float32]]:
    """Returns when a stream of sound begins, in seconds after the first picture, and its samples, of gaps silence."""
    with av.open(str(path)) as container:
        picture = next(container.decode(video=0))
        container.seek(0)
        frames = list(container.decode(audio=number))
    first = float(picture.pts * picture.time_base)
    begin = float(frames[0].pts * frames[0].time_base) - first
    rate = frames[0].sample_rate
    end = float(frames[-1].pts * frames[-1].time_base) - first + frames[-1].samples / rate
    samples = np.zeros(round((end - begin) * rate) + rate // 100, np.float32)
    for frame in frames:
        at = round((float(frame.pts * frame.time_base) - first - begin) * rate)
        data = frame.to_ndarray()
        data = data[0, :: frame.layout.nb_channels] if not frame.format.is_planar else data[0]
        scale = np.iinfo(data.dtype).max if data.dtype.kind == "i" else 1.0
        samples[at : at + len(data)] = data / scale
    return begin, samples[: round((end - begin) * rate)]


def tone(samples: NDArray[np.float32], rate: int = RATE) -> float:
    """Returns the frequency of the strongest tone, in Hz."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples)), 8 * len(samples)))
    return float(np.argmax(spectrum) * rate / (8 * len(samples)))


@pytest.mark.parametrize(
    "name, codec", [("a.mp4", "aac"), ("a.mkv", "libopus"), ("a.mov", "pcm_s16le"), ("a.mkv", "flac"), ("a.ts", "aac")]
)
def test_the_tone_moves_and_its_time_stays(name: str, codec: str, tmp_path: Path) -> None:
    source, target = made(tmp_path / name, codec), tmp_path / f"out-{name}"
    report = segment(source, target, pitch_shift=SHIFT, verify=True, **PLACE)
    assert report.complete
    for number, frequency in enumerate(TONES):
        (was, before), (now, after) = heard(source, number), heard(target, number)
        assert abs(now - was) < 0.03 and abs(len(after) - len(before)) < 0.05 * RATE
        assert tone(before[RATE : 2 * RATE]) == pytest.approx(frequency, rel=0.005)
        assert tone(after[RATE // 4 :]) == pytest.approx(frequency * 2 ** (SHIFT / 12), rel=0.005)
        louder = [begin + np.argmax(np.abs(samples) > 0.3) / RATE for begin, samples in ((was, before), (now, after))]
        assert louder[1] == pytest.approx(louder[0], abs=0.05)
    with av.open(str(target)) as container:
        assert [stream.codec_context.name for stream in container.streams.audio] == [codec.replace("lib", "")] * 2
        assert container.streams.video[0].frames in (0, 25 * SECONDS)


@pytest.mark.parametrize("codec", ["eac3", "flac"])
def test_avi_gets_a_codec_whose_packets_have_a_length_there(codec: str, tmp_path: Path) -> None:
    """Two seconds of E-AC-3 and FLAC were heard for minutes."""
    source = Synthetic(codec="libx264", pts=range(50), audio=codec).write(tmp_path / "a.mkv")
    segment(source, tmp_path / "b.avi", pitch_shift=SHIFT, **PLACE)  # type: ignore[arg-type]
    assert len(heard(tmp_path / "b.avi", 0)[1]) == pytest.approx(2 * RATE, abs=RATE / 10)


def test_a_gap_stays_one_and_what_follows_keeps_its_time(tmp_path: Path) -> None:
    source, target = made(tmp_path / "a.mkv", "flac", hole=0.5), tmp_path / "out.mkv"
    segment(source, target, pitch_shift=-5, **PLACE)
    begin, after = heard(target, 0)
    assert np.abs(after[round(1.1 * RATE) : round(1.4 * RATE)]).max() < 0.01
    assert begin + np.argmax(np.abs(after) > 0.3) / RATE == pytest.approx(BEEP, abs=0.05)
    assert len(after) / RATE == pytest.approx(SECONDS, abs=0.02)


def test_a_stretch_has_its_sound_alone(tmp_path: Path) -> None:
    source, target = made(tmp_path / "a.mp4", "aac"), tmp_path / "out.mp4"
    segment(source, target, pitch_shift=SHIFT, start=1.0, duration=2.0, **PLACE)
    begin, after = heard(target, 0)
    assert begin + np.argmax(np.abs(after) > 0.3) / RATE == pytest.approx(BEEP - 1, abs=0.05)
    assert len(after) / RATE == pytest.approx(2, abs=0.1)


def test_other_streams_are_copied(tmp_path: Path) -> None:
    subtitles = [(0.2, 0.6, "one"), (0.8, 1.2, "two")]
    source = Synthetic(pts=range(50), audio="aac", subtitles=subtitles, chapters=[(0, 1, "first")])
    path, target = source.write(tmp_path / "in.mkv"), tmp_path / "out.mkv"
    segment(path, target, pitch_shift=SHIFT, keep_metadata=True, **PLACE)
    assert same_packets(packets(target, "subtitle"), packets(path, "subtitle"), Fraction(1, 1000))
    assert len(packets(target, "audio")) >= len(packets(path, "audio"))


def test_sound_that_cannot_be_decoded_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would show the voices."""
    source, target = made(tmp_path / "a.mkv", "flac"), tmp_path / "out.mkv"

    def fail(*given: object) -> None:
        raise ValueError

    monkeypatch.setattr(muxer, "PitchShift", fail)
    segment(source, target, pitch_shift=SHIFT, **PLACE)
    with av.open(str(target)) as container:
        assert not container.streams.audio


@pytest.mark.parametrize(
    "options, message",
    [({"pitch_shift": 3, "mute": True}, "--mute leaves the sound out"), ({"pitch_shift": 13}, "-12 to 12")],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config(**options)


def test_sound_whose_times_hardly_go_on_is_kept(corpus: Path, tmp_path: Path) -> None:
    """Packets of this AVI hold 100 ticks of sound, and begin a tick apart."""
    source, target = corpus / "sample-with-large-length.avi", tmp_path / "out.mp4"
    segment(source, target, pitch_shift=SHIFT, **PLACE)
    counted = []
    for path in (source, target):
        with av.open(str(path)) as container:
            counted.append(sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0)))
    assert counted[0] > 2 and counted[1] == pytest.approx(counted[0], abs=0.05)
