"""Clips of videos for training: exact frames, in batches of arrays, in an order that a seed decides.

    from segmentation.clips import ClipDataset, ClipLoader, Output

    dataset = ClipDataset("videos/", length=16)
    loader = ClipLoader(dataset, 8, outputs={"input": Output(size=(224, 224), crop="random", flip=True)})
    for batch in loader:
        batch["input"]  # (N, T, C, H, W)

FFmpeg decodes on the CPU into NumPy arrays, or with `device="cuda"` NVDEC into CUDA tensors.
"""

from segmentation.clips.dataset import Clip, ClipDataset
from segmentation.clips.loader import Batch, ClipLoader
from segmentation.clips.output import Output, Window

__all__ = ["Batch", "Clip", "ClipDataset", "ClipLoader", "Output", "Window"]
