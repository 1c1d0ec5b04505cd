"""The machine: files, memory, processes, processor cores."""
