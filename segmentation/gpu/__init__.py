"""Drives the GPU: device, streams, memory and kernel launches. Imports no stage."""
