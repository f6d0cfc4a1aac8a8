"""Traces of PyTorch's profiler: Kineto's JSON, plain or compressed, of NVIDIA's and AMD's devices."""
