"""All of the corpus."""

from . import asynchronous, blocks, compiled, hopper, several_ranks, shared, together, waves
from .kit import Corpus

PARTS = (shared, asynchronous, hopper, blocks, compiled, together, several_ranks)
CORPORA = (
    *(Corpus(part.BASES, part.DEFECTS) for part in PARTS),
    Corpus(waves.BASES, waves.DEFECTS, warp_threads=64),
)
