"""Drawn figures, in place of photographs of people."""

import cv2
import numpy as np

GREEN, RED = (40, 200, 60), (200, 60, 40)  # a figure's color, and what is around


def drawn(height: int, width: int, *, person: bool = True, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A picture (H, W, 3) of a green figure before red, and where that is, (h, w) bool."""
    random = np.random.default_rng(seed)
    rgb = np.empty((height, width, 3), np.uint8)
    rgb[:] = RED
    mask = np.zeros((height, width), np.uint8)
    if person:
        x = int(width * random.uniform(0.4, 0.6))
        cv2.ellipse(mask, (x, height // 2), (width // 7, height // 3), 0, 0, 360, 1, -1)
        rgb[mask > 0] = GREEN
    noise = cv2.GaussianBlur(random.normal(0, 30, rgb.shape), (5, 5), 0)
    return np.clip(rgb + noise, 0, 255).astype(np.uint8), mask > 0
