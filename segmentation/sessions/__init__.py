"""Sessions, and all that callers make of them: files, frames, pictures, streams, processes."""
