"""The network on PyTorch: operators fused, kernels of its own, and CUDA graphs."""
