"""One video, or many, on several workers: processes of this machine, or of several."""
