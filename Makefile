# `make demo` and `make test` need only Python and make. Finished set-up is skipped.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -q -c constraints.txt

.PHONY: demo quick test checked lint bench format clean fuzz chaos
.DELETE_ON_ERROR: # make an incomplete virtual environment again

demo: $(VENV)/.demo
	$(BIN)/arbora demo

# Fits of every estimator beside known results, and the command line. The first run compiles the kernels.
quick: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto --dist loadgroup --no-loadscope-reorder -m quick $$(grep -rl --include='*.py' 'mark\.quick' tests) $(PYTEST)

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder tests src $(PYTEST)

# The kernels with bounds checks.
checked: $(VENV)/.dev
	ARBORA_CHECK=1 $(BIN)/python -m pytest -n auto tests/kernels $(PYTEST)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev
	for name in structure kernels close_calls text flat thresholds recursive recursive_speed recursive_scale recursive_why hblr hblr_curve hblr_speed hblr_scale hblr_why special multinomial cluster vmf vmf_speed vmf_structure max_margin max_margin_topics expand_ncd expand_thesis expand_speed expand_scale expand_calibration discriminative bottleneck first_contact first_contact_classify explore wild classify_study classify_growth search_cost many_classes dense_rows latency low_rank; do $(BIN)/python -m benchmarks.$$name || exit 1; done

# Hostile input, in child processes; findings go to build/findings.jsonl.
fuzz: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -m fuzz --minutes $(or $(MINUTES),5) --count $(or $(COUNT),100000) --keep

# Kill, fill the disk, turn back the clock; see tests/chaos.
chaos: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -m chaos --minutes $(or $(MINUTES),10) --trials $(or $(TRIALS),10) --keep

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# `demo` needs the library, and plotly for its page.
$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e ".[explore]"
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e ".[dev]"
	@touch $@ $(VENV)/.demo
