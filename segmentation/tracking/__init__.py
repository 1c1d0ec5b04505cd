"""Tracking: the instances in a run's masks, and their ids over time."""
