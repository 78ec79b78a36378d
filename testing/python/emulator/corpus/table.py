"""All of the corpus."""

from . import asynchronous, blocks, compiled, hopper, shared, together, waves
from .kit import Corpus

PARTS = (shared, asynchronous, hopper, blocks, compiled, together)
CORPORA = (
    *(Corpus(part.BASES, part.DEFECTS) for part in PARTS),
    Corpus(waves.BASES, waves.DEFECTS, warp_threads=64),
)
