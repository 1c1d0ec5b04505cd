"""Opens an input of any kind and describes its video."""
