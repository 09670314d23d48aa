# Everything runs in .venv, which make creates. Needed beforehand: make, and Python 3.11 or newer.
# Another Python:   make test PYTHON=/path/to/python3.12
# More arguments:   make test ARGS='-k logistic'      make bench ARGS='--help'

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=

PIP    := -m pip --disable-pip-version-check --no-input -qq
PYVER  := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
PYOK   := $(shell $(PYTHON) -c 'import sys; print(sys.version_info >= (3, 11))' 2>/dev/null)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-slow test-lowest lint bench constraints dist clean python

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.ready-all  ## run the demonstration; its output goes to out/demo
	$(VENV)/bin/coresetvi demo --out out/demo $(ARGS)

test: $(VENV)/.ready-test  ## run the tests, but for the slow ones
	$(VENV)/bin/python -m pytest -n 2 --dist loadfile -m 'not slow' $(ARGS)

test-slow: $(VENV)/.ready-test  ## run the tests that take minutes: the paper's experiments in miniature, and long fits
	$(VENV)/bin/python -m pytest -n 2 --dist load -m slow $(ARGS)

test-lowest: python  ## run the tests with the lowest versions that pyproject.toml allows (Python 3.11), in .venv-lowest
	$(PYTHON) -m venv .venv-lowest
	$(PYTHON) .ci/lowest.py > .venv-lowest/lowest.txt
	.venv-lowest/bin/python $(PIP) install -c .venv-lowest/lowest.txt -e '.[test]' -e paper
	.venv-lowest/bin/python -m pytest -n 2 --dist loadfile -m 'not slow' $(ARGS)

lint: $(VENV)/.ready-dev  ## check style, formatting, layers and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff check --preview --select PLC2701 src
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports --cache-dir build/import-linter
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(VENV)/bin/pyright --pythonpath $(VENV)/bin/python

bench: $(VENV)/.ready-test  ## run the benchmarks
	$(VENV)/bin/python -m benchmarks $(ARGS)

constraints: python  ## resolve .[dev] afresh and rewrite constraints.txt (use Python 3.11)
	$(PYTHON) -m venv --clear build/constraints
	build/constraints/bin/python $(PIP) install '.[dev]' ./paper
	build/constraints/bin/python -m pip freeze --exclude coresetvi --exclude coresetvi-paper > build/constraints.txt
	{ echo '# The exact versions that .[dev] resolved to on Python $(PYVER). Rewrite: make constraints'; \
	  cat build/constraints.txt; } > constraints.txt
	rm -rf build/constraints build/constraints.txt

dist: $(VENV)/.ready-dev  ## build the wheel and the source distribution into dist
	rm -rf dist
	$(VENV)/bin/python -m build

clean:  ## remove .venv, the caches, build products and out/demo
	rm -rf $(VENV) .venv-lowest build dist out/demo .pytest_cache .ruff_cache
	find src tests benchmarks paper -name __pycache__ -type d -prune -exec rm -rf {} +

# Is $(PYTHON) there, and new enough?
python:
	@test -n '$(PYVER)' || { echo "coresetvi: '$(PYTHON)' does not run; name a Python 3.11 or newer with PYTHON=/path/to/python3." >&2; exit 1; }
	@test '$(PYOK)' = True || { echo "coresetvi: '$(PYTHON)' is Python $(PYVER), but 3.11 or newer is needed; name one with PYTHON=/path/to/python3." >&2; exit 1; }

# The environment, once per Python version: one that make built for another version is cleared.
$(VENV)/.python-$(PYVER): | python
	@echo "creating $(VENV) with Python $(PYVER)"
	@if ls $(VENV)/.python-* >/dev/null 2>&1; then $(PYTHON) -m venv --clear $(VENV); else $(PYTHON) -m venv $(VENV); fi
	@touch $@

# The package with one of its extras and the paper beside it, both editable; again only if a pyproject.toml or
# constraints.txt changed.
# dev includes test, and test includes all, so a larger extra marks the smaller ones as ready too.
covers-all  := all
covers-test := all test
covers-dev  := all test dev

$(VENV)/.ready-%: $(VENV)/.python-$(PYVER) pyproject.toml paper/pyproject.toml constraints.txt
	@echo "installing coresetvi[$*] into $(VENV) (a minute or two)"
	@$(VENV)/bin/python $(PIP) install -c constraints.txt -e '.[$*]' -e paper
	@touch $(foreach extra,$(covers-$*),$(VENV)/.ready-$(extra))
