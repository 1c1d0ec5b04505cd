"""What is sent to an address."""

from io import BytesIO

import av
import pytest
from videos import video_info

from segmentation.live.push_muxer import PushMuxer
from segmentation.media.output_stream import OutputAddress
from segmentation.options.config import Config


@pytest.mark.parametrize(
    ("codec", "rate", "channels", "taken"),
    [
        ("aac", 32000, "stereo", True),
        ("libmp3lame", 44100, "stereo", True),
        ("libmp3lame", 32000, "stereo", False),  # FLV's muxer fails at the first packet
        ("pcm_alaw", 8000, "mono", True),
        ("pcm_alaw", 16000, "mono", False),  # a player would take it for 8000 Hz
        ("pcm_mulaw", 8000, "3.0", False),  # FLV's muxer ends the process
        ("libopus", 48000, "stereo", False),
    ],
)
def test_rtmp_takes_what_its_players_know(codec: str, rate: int, channels: str, *, taken: bool) -> None:
    sound = av.open(BytesIO(), "w", format="nut")
    stream = sound.add_stream(codec, rate=rate, layout=channels)
    sound.start_encoding()
    muxer = PushMuxer(OutputAddress("rtmp://127.0.0.1:1/live/cam"), video_info(), Config())
    assert muxer._can_hold(stream) is taken
