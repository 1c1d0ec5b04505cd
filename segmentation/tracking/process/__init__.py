"""Trackers in processes of their own."""
