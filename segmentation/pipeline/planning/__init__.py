"""The plan of a run: which implementation each stage has, and why."""
