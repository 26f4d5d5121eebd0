# Every target makes its own virtual environment from the constraints file. Needs python3, its venv module, and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One more process than there are cores: most tests wait for disks and other processes.
WORKERS ?= $(shell $(PYTHON) -c "import os; print((os.cpu_count() or 1) + 1)")
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export XDG_RUNTIME_DIR ?= $(CURDIR)/$(VENV)

.PHONY: demo test check bench eval eval-all clean format

$(VENV)/dev: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

$(VENV)/demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[langchain,cli]"
	touch $@

demo: $(VENV)/demo  ## the move-in planner in the terminal, on SQLite, with no key and no network
	$(BIN)/python -m examples.movein

test: $(VENV)/dev  ## all tests, on SQLite and on PostgreSQL servers that they start themselves, one for each process
	$(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile

check: $(VENV)/dev  ## the whole gate
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/abreast doctor examples.01_minimal:agent
	$(BIN)/abreast doctor examples.04_tools:assistant
	$(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile

bench: $(VENV)/dev  ## ratios against the plain operation; writes benchmarks/results.json
	$(BIN)/python -m benchmarks

$(VENV)/eval: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[eval]"
	touch $@

# Without the kind `busy`, whose long requests would take a third of the time.
QUICK := plain,distance,several,unrecorded,deleted,other_field,other_row,nothing,long,told_earlier,summarised,many,follow_up,planted,after_tool

eval: $(VENV)/eval  ## a small real model answers 300 cases in five arms; builds llama.cpp once; writes evals/results.json
	$(BIN)/abreast eval --number 20 --kinds $(QUICK) --output evals/results.json --chart evals/fresh-answers.svg --table evals/tables.md

eval-all: $(VENV)/eval  ## all named arms and all cases; answers of `make eval` are used again
	$(BIN)/abreast eval --arms all --output evals/results.json --chart evals/fresh-answers.svg --table evals/tables.md

format: $(VENV)/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
