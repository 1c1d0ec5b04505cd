"""Still and animated pictures, and folders of numbered ones."""
