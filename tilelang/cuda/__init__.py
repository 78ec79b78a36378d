"""What is particular to NVIDIA GPUs on the host."""
