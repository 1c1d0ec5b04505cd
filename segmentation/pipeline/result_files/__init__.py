"""Results of each frame as files and posted lines: `--results`."""
