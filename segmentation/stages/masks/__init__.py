"""Masks between inference and postprocess: smoothed over time, refined along edges, saved and read again."""
