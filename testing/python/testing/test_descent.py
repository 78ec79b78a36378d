"""Steps from something that fails to something smaller."""

import time

from tilelang.testing.descent import descend


def below(number):
    return iter(range(number - 1, 0, -1))


def test_the_smallest_that_fails_is_found():
    def fails(numbers):
        assert len(numbers) <= 4
        assert all(n % 2 for n in numbers)
        return [n % 7 == 0 for n in numbers]

    assert descend(98, below, lambda n: (n,), fails, 60, lambda n: n % 2 == 1) == 7


def test_steps_go_on_where_the_last_one_succeeded():
    tried = []

    def fails(texts):
        tried.extend(texts)
        return ["a" in text and "d" in text for text in texts]

    def without_one(text):
        return (text[:i] + text[i + 1 :] for i in range(len(text)))

    assert descend("abcd", without_one, lambda text: (len(text),), fails, 60, batch=1) == "ad"
    # "cd" is left out: without "a" it was not to be. At the end all is tried once more.
    assert tried == ["bcd", "acd", "ad", "a", "d", "a"]


def test_it_ends_with_its_time():
    def fails(numbers):
        time.sleep(0.05)
        return [True] * len(numbers)

    start = time.monotonic()
    found = descend(10**6, below, lambda n: (n,), fails, 0.3)
    assert 1 < found < 10**6
    assert time.monotonic() - start < 3
