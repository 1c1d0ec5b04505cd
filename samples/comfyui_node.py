"""A node for ComfyUI that masks people: copy this file to ComfyUI's folder `custom_nodes`.

ComfyUI's Python needs this package: `pip install PATH_OF_THE_CHECKOUT` in its environment.
"""

from functools import cache

import torch

from segmentation import Segmenter


@cache
def session(model: str) -> Segmenter:
    """Returns the session of a network, which is loaded once and then kept."""
    return Segmenter(model=model)


class SegmentPeople:
    """Returns the mask of the people in pictures, and the pictures with the rest in black."""

    CATEGORY = "mask"
    FUNCTION = "segment"
    RETURN_TYPES = ("MASK", "IMAGE")

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, object]:
        threshold = {"default": 0.5, "min": 0.05, "max": 0.95, "step": 0.05}
        return {
            "required": {
                "image": ("IMAGE",),
                "model": (["person", "person-hq", "person-best"],),
                "threshold": ("FLOAT", threshold),
            }
        }

    def segment(self, image: torch.Tensor, model: str, threshold: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Takes pictures (N, H, W, 3) float32 RGB in 0..1; returns masks (N, H, W) in 0..1, and pictures."""
        pictures = (image * 255).round().clamp(0, 255).to(torch.uint8).cpu().numpy()
        masks = torch.from_numpy(session(model).masks(pictures))
        soft = ((masks - threshold) * 8 + 0.5).clamp(0, 1)  # the edge lies at the threshold
        return soft, image.cpu() * soft[..., None]


NODE_CLASS_MAPPINGS = {"SegmentPeople": SegmentPeople}
NODE_DISPLAY_NAME_MAPPINGS = {"SegmentPeople": "Segment people"}
