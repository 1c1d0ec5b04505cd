"""Networks on disk: what their tensors mean, and their graphs."""
