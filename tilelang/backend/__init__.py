"""Where programs also look for what targets are: `tilelang.utils.target` has it."""
