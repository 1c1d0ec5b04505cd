"""Masks between key frames: which frames are keys, and masks that are propagated from them."""
