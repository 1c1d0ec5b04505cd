"""NVENC's options: its quality by default, presets, and what only newer GPUs have."""

from segmentation.options.config import Config
from segmentation.options.rate_factor import RateFactor

# NVENC's own scale, near that of x264 and x265: a guess, since no measurement leads from one to the other.
QUALITY = {"h264": RateFactor(26, 19), "hevc": RateFactor(30, 23), "av1": RateFactor(32, 22)}
ALWAYS = {"tune": "hq", "rc": "vbr", "rc-lookahead": "20", "spatial-aq": "1", "forced-idr": "1"}
# In place of others: no frame waits for later ones.
LOW_DELAY = {"tune": "ull", "rc-lookahead": "0", "bf": "0", "delay": "0", "zerolatency": "1"}
_PRESET = "p5"
_GOP = "250"  # frames, as with x264: without it the driver's preset decides, and may choose one keyframe alone
# Options that only newer GPUs support, best first. The first that open an encoder are used.
EXTRAS = ({"bf": "3", "b_ref_mode": "middle", "temporal-aq": "1"}, {"bf": "3"}, {"bf": "0"})


def options(codec: str, config: Config, extra: dict[str, str]) -> dict[str, str]:
    """Returns FFmpeg's options of the encoder. `extra` are those of `nvenc_support.extras`."""
    chosen = {"preset": config.preset or _PRESET, "g": _GOP}
    if config.quality == 0 and codec != "av1":
        return {**chosen, "tune": "lossless", "bf": "0"}
    quality = QUALITY[codec].of(config.quality)
    chosen |= {**ALWAYS, **extra, "cq": str(max(1, quality))}  # 0 lets NVENC choose
    if config.low_delay:
        chosen |= LOW_DELAY
    return {**chosen, "profile": "high"} if codec == "h264" else chosen  # of the others: main
