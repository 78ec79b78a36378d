"""Running the emitted kernel source on the CPU."""
