"""A source's other streams, tags and chapters in an output."""
