"""Live sources and addresses: cameras in, pushed streams and parts out."""
