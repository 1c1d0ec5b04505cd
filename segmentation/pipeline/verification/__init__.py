"""Checks of an output against its input: `--verify`."""
