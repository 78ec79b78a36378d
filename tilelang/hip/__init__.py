"""Code for AMD's GPUs, with or without ROCm."""
