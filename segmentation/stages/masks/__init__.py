"""Works on masks between inference and postprocess: smooths, refines, saves and reads them."""
