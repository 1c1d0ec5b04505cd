"""A frame's way, in this order: decode, preprocess, inference, masks, postprocess, encode."""
