"""The language by the name of AMD's platform; `tilelang.hip` compiles for it."""
