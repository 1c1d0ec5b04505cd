"""The GPU: device, streams, memory and kernel launches. Knows no stage."""
