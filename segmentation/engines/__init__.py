"""Engines: the only folder that imports TensorRT."""
