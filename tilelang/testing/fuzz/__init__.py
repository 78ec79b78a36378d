"""A fuzzer of tile programs: ``python -m tilelang.testing.fuzz --seed N --minutes M``.

`program` is the grammar; `generate` makes programs, `interpret` says what they compute, `emit`
prints them, `twins` changes what may not matter, `shrink` makes what fails small.
"""
