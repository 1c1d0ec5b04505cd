"""The inputs of a command: found, made to jobs, and run."""
