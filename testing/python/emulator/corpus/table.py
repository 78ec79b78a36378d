"""All of the corpus."""

from . import (
    asynchronous,
    blocks,
    compiled,
    hopper,
    maps_of_ranks,
    roles_of_ranks,
    several_ranks,
    shared,
    together,
    waves,
)
from .kit import Corpus

OF_RANKS = (several_ranks, maps_of_ranks, roles_of_ranks)
PARTS = (shared, asynchronous, hopper, blocks, compiled, together, *OF_RANKS)
CORPORA = (
    *(Corpus(part.BASES, part.DEFECTS) for part in PARTS),
    Corpus(waves.BASES, waves.DEFECTS, warp_threads=64),
)
