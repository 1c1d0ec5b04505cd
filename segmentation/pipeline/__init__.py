"""A run from input to output: the plan, the stages, and what is written."""
