"""Other names and forms of what tilelang has, which kernels and their scripts use: one module each.

The compiler knows none of them. Where users look for a name, a thin module imports it from here:
`tilelang.contrib.nvcc`, `tilelang.carver.arch.driver`, `tilelang.utils.device`,
`tilelang.jit.adapter.base`. `tilelang.backend`, `tilelang.tileop`, `tilelang.cuda.language`,
`tilelang.language.common` and `tilelang.rocm.language` are other names of what other modules have.
"""
