"""Options: what each means, its range and default, and what does not go together."""
