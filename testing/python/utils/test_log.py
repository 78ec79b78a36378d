import logging
import re

import pytest

from tilelang.utils.log import logger, set_log_level, setup_logging


@pytest.fixture(autouse=True)
def restored():
    handlers, level = list(logger.handlers), logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)


def test_a_line_says_when_who_and_where(capsys):
    logger.handlers.clear()
    setup_logging()
    setup_logging()
    logger.info("a %s", "message")
    line = r"\d{4}-\d\d-\d\d [\d:,]+  \[TileLang:tilelang:INFO\] \(test_log.py:\d+\): a message\n"
    assert re.fullmatch(line, capsys.readouterr().err)


def test_levels_are_names_or_numbers():
    set_log_level("warning")
    assert logger.level == logging.WARNING
    set_log_level(logging.DEBUG)
    assert logger.level == logging.DEBUG
    with pytest.raises(ValueError, match="found 'loud', wanted a number, or DEBUG"):
        set_log_level("loud")
