"""All of the corpus."""

from . import asynchronous, blocks, compiled, hopper, shared
from .kit import Corpus

PARTS = (shared, asynchronous, hopper, blocks, compiled)
CORPORA = tuple(Corpus(part.BASES, part.DEFECTS) for part in PARTS)
