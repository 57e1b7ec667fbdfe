# PageMesh: the two commands are `make demo` and `make test`.
# Both work on a bare Debian 12 or Ubuntu 24.04 with nothing but Rust and make.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)

.PHONY: all build demo test lint setup install uninstall deny clean help

all: build

help:
	@echo 'make demo     build, bring up four nodes on this machine, run PageRank on them'
	@echo 'make test     format, lint and every test'
	@echo 'make build    everything, optimized'
	@echo 'make lint     format and lint only'
	@echo 'make install  into PREFIX=$(PREFIX)'
	@echo 'make deny     licences and sources of the libraries (installs cargo-deny)'
	@echo 'make clean    remove what was built'

setup:
	@scripts/setup

build: setup
	$(CARGO) build --release --workspace --locked

demo: build
	$(TARGET)/release/pagemesh demo

# cargo test comes last, so that its own counts close the output.
test: lint
	$(CARGO) test --workspace --locked

lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

install: build
	scripts/install "$(TARGET)/release" "$(DESTDIR)" "$(PREFIX)"

uninstall:
	scripts/install --remove "$(DESTDIR)" "$(PREFIX)"

deny:
	command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny
	$(CARGO) deny --offline check bans licenses sources

clean:
	$(CARGO) clean
