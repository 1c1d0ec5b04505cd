"""A page for one's own videos, and jobs over HTTP: `segmentation serve`."""
