# One command each, the same at home and in CI. Each builds .venv when it is missing or stale.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test soak check docs screenshots lock bench bench-kafka kafka kafka-stop clean
demo: $(READY)
	$(BIN)/lastword demo

test: $(READY)
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder

soak: $(READY)
	LASTWORD_SOAK=5 $(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder

kafka: $(READY)
	$(BIN)/python -m broker start

kafka-stop: $(READY)
	$(BIN)/python -m broker stop

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check

docs: $(READY)
	$(BIN)/python docs/generate.py

screenshots: $(READY)
	$(BIN)/python -m pytest -q tests/test_ui_browser.py -k "every_page or survivors or played"
	cp .cache/screenshots/overview.png .cache/screenshots/topic-survivors.png .cache/screenshots/scene-swept.png docs/pictures/

bench: $(READY)
	$(BIN)/python -m bench

bench-kafka: $(READY)
	$(BIN)/python -m bench kafka

lock: $(READY)
	$(BIN)/uv pip compile --quiet --upgrade --no-emit-index-url --universal --python-version 3.11 \
	    --extra dev --output-file requirements.lock pyproject.toml

$(READY): pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "lastword needs Python 3.11 or newer")'
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $(READY)

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
