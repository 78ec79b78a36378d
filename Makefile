# Two commands: `make quickstart` and `make test`. What they install goes into $(VENV), where stamp files say
# what has been done, so that a second make does nothing. Another interpreter lives beside the first:
#   make PYTHON=python3.12 VENV=.venv312 test
# Paths here are relative: make takes a space in the checkout's own path for the end of a name.

PYTHON ?= python3
VENV ?= .venv

PY := $(VENV)/bin/python
# Python compiles what is imported, when it is: torch alone has 2500 modules, 20 seconds of a core.
PIP := $(PY) -m pip install --quiet --disable-pip-version-check --no-compile
# Where the programs of $(VENV) are, as an absolute path, for who does not run in this folder.
SCRIPTS = "$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("scripts"))')"
SOURCES := CMakeLists.txt VERSION README.md LICENSE \
  $(shell find cmake src tilelang -type f -not -name '*.so' -not -name '*.pyc')
CPP_SOURCES = $(shell find src -name '*.cc' -o -name '*.h')
FFI_RANGE := 0.1.14.post0 0.1.15.post2

# Everything here is about the package in $(VENV), whatever the shell's path says.
unexport PYTHONPATH
# Bytecode is kept: without it each of the tests' processes compiles torch, TVM and the package, which are
# 9 seconds of a core instead of 3, and each worker rewrites the assertions of all tests.
unexport PYTHONDONTWRITEBYTECODE

# Tools keep nothing in a folder that cannot be written to.
ifneq ($(shell test -w . && echo yes),yes)
export RUFF_NO_CACHE := true
export MYPY_CACHE_DIR := /dev/null
export PYTEST_ADDOPTS += -p no:cacheprovider
endif

# Of the language's tests those that know warps and matrix instructions, for AMD, too: less than a
# minute. All of them run in `make sweep`.
AMD_TESTS := $(addprefix testing/python/language/test_,warps.py atomics.py gemms.py copies.py \
  reductions.py synchronisation.py)

.PHONY: quickstart test quick sweep docs lint format dev wheel test-ffi-range benchmark clean

quickstart: $(VENV)/installed
	$(PY) examples/quickstart.py

test: $(VENV)/installed lint
	$(VENV)/bin/pytest -n 2 --durations 30
	$(VENV)/bin/pytest -n 2 --target "hip -mcpu=gfx942" $(AMD_TESTS)

# Some tests of each layer, on the source tree: less than a minute after the build.
quick: dev
	PYTHONPATH=. $(VENV)/bin/pytest -m quick -n 2

# All tests, those of testing/sweep/tests.txt too, the language's for AMD, every operator over types and sizes, the pages.
sweep: $(VENV)/installed docs
	$(VENV)/bin/pytest -n auto --long
	$(VENV)/bin/pytest -n auto --target "hip -mcpu=gfx942" testing/python/language
	$(VENV)/bin/python testing/sweep

# The pages as HTML, in build/docs. Warnings are errors; the pages' pictures are drawn by their code.
docs: $(VENV)/installed $(VENV)/docs-tools
	$(VENV)/bin/sphinx-build -W --keep-going --quiet docs build/docs

benchmark: $(VENV)/installed
	$(PY) benchmark/quickstart.py

lint: $(VENV)/dev-tools
	$(VENV)/bin/ruff check --quiet
	$(VENV)/bin/ruff format --check --quiet
	$(VENV)/bin/clang-format --dry-run -Werror $(CPP_SOURCES)
	$(VENV)/bin/mypy

format: $(VENV)/dev-tools
	$(VENV)/bin/ruff check --fix
	$(VENV)/bin/ruff format
	$(VENV)/bin/clang-format -i $(CPP_SOURCES)

# Builds into the source tree; then: PYTHONPATH=. .venv/bin/pytest
dev: $(VENV)/dev-tools
	$(VENV)/bin/cmake -S . -B build -G Ninja -DPython_EXECUTABLE=$(SCRIPTS)/python \
	  -DCMAKE_MAKE_PROGRAM=$(SCRIPTS)/ninja
	$(VENV)/bin/cmake --build build

wheel: $(VENV)/dependencies
	$(PY) -m pip wheel --no-deps --wheel-dir dist --config-settings=build-dir=build/wheel .

# The wheel as it is shipped, run with the oldest and with the newest tvm-ffi.
test-ffi-range: wheel $(VENV)/dev-tools
	for version in $(FFI_RANGE); do \
	  site="$$PWD/build/ffi-$$version" && rm -rf "$$site" && \
	  $(PIP) --no-deps --target "$$site" apache-tvm-ffi==$$version dist/tilelang-$$(cat VERSION)-*.whl && \
	  PYTHONPATH="$$site" $(VENV)/bin/pytest -n 2 || exit 1; done

clean:
	rm -rf $(VENV) build dist tilelang/lib tilelang/runtime/adapter/cython/_adapter*.so

$(VENV)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' || { \
	  echo "$(PYTHON) is not Python 3.10, 3.11 or 3.12; repair: make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	touch $@

# What the compiler is built with: with two jobs, all else is installed while it is built.
$(VENV)/build-tools: $(VENV)/python pyproject.toml cmake/requirements.py
	$(PIP) scikit-build-core cython cmake ninja
	$(PY) cmake/requirements.py >$(VENV)/requirements.txt
	$(PIP) "$$(grep ^apache-tvm-ffi $(VENV)/requirements.txt)"
	touch $@

# torch goes first: a package that depends on it would choose its own.
$(VENV)/dependencies: $(VENV)/build-tools
	$(PY) -c 'import torch' 2>/dev/null || $(PIP) torch==2.13.0
	$(PIP) -r $(VENV)/requirements.txt
	touch $@

$(VENV)/dev-tools: $(VENV)/dependencies
	$(PY) cmake/requirements.py dev >$(VENV)/requirements-dev.txt
	$(PIP) -r $(VENV)/requirements-dev.txt
	touch $@

$(VENV)/docs-tools: $(VENV)/dependencies
	$(PY) cmake/requirements.py docs >$(VENV)/requirements-docs.txt
	$(PIP) -r $(VENV)/requirements-docs.txt
	touch $@

# Not isolated, so that the compiler's objects in build/ stay valid from one run to the next.
$(VENV)/package: $(VENV)/build-tools $(SOURCES)
	$(PIP) --no-build-isolation --no-deps .
	touch $@

$(VENV)/installed: $(VENV)/package $(VENV)/dependencies
	touch $@
