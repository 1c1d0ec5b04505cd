"""`segmentation doctor`: what this machine has, each part tried. Each check runs in a process of its own."""
