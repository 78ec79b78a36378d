"""All of the corpus."""

from . import asynchronous, blocks, compiled, hopper, shared, together
from .kit import Corpus

PARTS = (shared, asynchronous, hopper, blocks, compiled, together)
CORPORA = tuple(Corpus(part.BASES, part.DEFECTS) for part in PARTS)
