"""Covers that hold: boxes linked over time, masks that grow, places."""
