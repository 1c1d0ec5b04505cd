"""Media files: inputs, outputs and containers."""
