"""NVDEC by the driver's own API: one call decodes many packets. Its library is built by tools/build_native.py."""
