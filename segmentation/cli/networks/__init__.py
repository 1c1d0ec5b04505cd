"""The command `segmentation-models`: networks of others, by name."""
