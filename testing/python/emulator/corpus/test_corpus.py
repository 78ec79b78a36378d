"""Each planted defect is found where it is, and the kernels without it are not blamed."""

import pytest

from .kit import find, seeded
from .table import CORPORA

DEFECTS = [(corpus, name) for corpus in CORPORA for name in corpus.defects]
BASES = [(corpus, name) for corpus in CORPORA for name in corpus.bases]


@pytest.mark.parametrize(("corpus", "name"), DEFECTS, ids=[name for _, name in DEFECTS])
def test_defect_is_found(corpus, name):
    finding = find(corpus, name)
    assert finding.good, "\n".join(report.message for report in finding.reports)


@pytest.mark.parametrize(("corpus", "name"), BASES, ids=[name for _, name in BASES])
def test_base_is_silent(corpus, name):
    for seed in range(6):
        with seeded(seed):
            assert corpus.run(name) == ()
