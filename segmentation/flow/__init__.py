"""Threads of a run, their times, and attempts that are repeated."""
