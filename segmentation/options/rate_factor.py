"""The quality of lossy encoders: a number of their own scale, chosen by name or given."""

from dataclasses import dataclass

from segmentation.options.keywords import Quality


@dataclass(frozen=True, slots=True)
class RateFactor:
    """An encoder's quality by default and for `quality="high"`: constant rate factors, for mjpeg JPEG's quality."""

    default: int  # makes files about as large as their inputs, see tools/quality/rates.py
    high: int  # keeps 45 dB of the people in real clips

    def of(self, quality: Quality | None) -> int:
        """Returns the encoder's number for an option."""
        if quality is None:
            return self.default
        return self.high if quality == "high" else quality
