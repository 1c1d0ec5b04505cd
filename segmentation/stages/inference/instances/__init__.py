"""Networks of instances: boxes and masks of single objects."""
