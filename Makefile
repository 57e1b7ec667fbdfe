# PageMesh: the two commands are `make demo` and `make test`.
# Both work on a bare Debian 12 or Ubuntu 24.04 with nothing but Rust and make.

# Where rustup puts it, for shells that were open before.
export PATH := $(PATH):$(HOME)/.cargo/bin

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
TARGET := $(abspath $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target))
COMPLETIONS := $(DESTDIR)$(PREFIX)/share/bash-completion/completions

PYTHON ?= python3
VENV := $(TARGET)/venv
# What the tests of the Python package need beside it.
PYTHON_TESTS := pytest numpy pandas numba cloudpickle mypy

# What a user installs. Built by themselves: the laboratory turns features on that it has not.
PRODUCT := $(addprefix --package pagemesh-,cli capi sysv borrow python)

.PHONY: all build etcd demo test test-beside test-many python-env test-python test-wheel wheel lint format lint-product install uninstall deny clean help

all: build

help:
	@echo 'make demo     bring up four nodes on this machine and have them compute on its packages'
	@echo 'make test     format, lint and every test'
	@echo 'make test-beside  make test ten times (RUNS=N) beside a program that takes a third of all processors'
	@echo 'make test-many  64 nodes with real memory, and 500 lives of daemons, which make test leaves out'
	@echo 'make build    everything, optimized; the programs of lab/apps/ in lab/apps/build'
	@echo 'make wheel    the Python package, optimized, into $(TARGET)/wheels, and tried'
	@echo 'make etcd     pagemesh-etcd, for clusters whose coordinator etcd elects'
	@echo 'make lint     format and lint only'
	@echo 'make install  into PREFIX=$(PREFIX)'
	@echo 'make deny     licences and sources of the libraries (installs cargo-deny)'
	@echo 'make clean    remove what was built'

build:
	@scripts/setup
	$(CARGO) build --release --locked $(PRODUCT)
	$(CARGO) build --release --locked --package pagemesh-bench
	$(MAKE) etcd
	$(MAKE) -s -C lab/apps TARGET=$(TARGET)/release

# The program that speaks to etcd, a workspace of its own: its libraries need protoc.
etcd:
	@scripts/setup --etcd
	CARGO_TARGET_DIR=$(TARGET) $(CARGO) build --release --locked --manifest-path crates/etcd/Cargo.toml

demo:
	@scripts/setup --lists
	$(CARGO) build --release --package pagemesh-cli --locked
	@$(TARGET)/release/pagemesh demo

# What a second build would start from takes ten times the room of the rest. Who edits and
# tests in turn sets it to 1, or calls cargo.
test: export CARGO_INCREMENTAL ?= 0
# scripts/test lints and tests; it ends with the tests that did not run, and a line that counts all.
test:
	@CARGO="$(CARGO)" TARGET="$(TARGET)" scripts/test

RUNS ?= 10
test-beside:
	@CARGO="$(CARGO)" TARGET="$(TARGET)" scripts/test-beside $(RUNS)

test-many:
	$(CARGO) test --locked --package pagemesh-tests --test cluster -- --ignored many_nodes numbers

# The environment of the Python package's tests. Most of it is waiting for the network.
python-env:
	@scripts/setup --python
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --no-compile $(PYTHON_TESTS)

# The wheel in an environment of its own, as users have it, but for the profile. All targets are
# built: without the tests, libraries would get other features, and be compiled twice.
test-python: python-env
	$(CARGO) build --workspace --all-targets --locked
	$(MAKE) test-wheel

# The same with what has been built, in an environment that is there.
test-wheel:
	PAGEMESH_WHEEL_PROFILE=dev PAGEMESH_WHEEL_BUILT=1 CARGO_TARGET_DIR=$(TARGET) \
		$(VENV)/bin/pip wheel --quiet --no-deps --wheel-dir $(VENV)/wheel .
	$(VENV)/bin/pip install --quiet $(VENV)/wheel/*.whl
	PAGEMESH_WHEEL=$$(echo $(VENV)/wheel/*.whl) $(VENV)/bin/python -m pytest -rfEs

wheel:
	@scripts/setup --python
	rm -f $(TARGET)/wheels/pagemesh-*.whl
	PAGEMESH_WHEEL_PROFILE=release CARGO_TARGET_DIR=$(TARGET) $(PYTHON) -m pip wheel --no-deps --wheel-dir $(TARGET)/wheels .
	$(PYTHON) python/build/try_wheel.py $(TARGET)/wheels/pagemesh-*.whl

lint: format lint-product
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

format:
	@scripts/setup --lint
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path crates/etcd/Cargo.toml --check

# The product without the features that the laboratory turns on.
lint-product:
	@scripts/setup --lint
	$(CARGO) clippy --package pagemesh-cli --locked -- -D warnings

install: build
	install -D -m 755 $(TARGET)/release/pagemesh $(DESTDIR)$(PREFIX)/bin/pagemesh
	install -D -m 755 $(TARGET)/release/pagemesh-bench $(DESTDIR)$(PREFIX)/bin/pagemesh-bench
	install -D -m 755 $(TARGET)/release/pagemesh-etcd $(DESTDIR)$(PREFIX)/bin/pagemesh-etcd
	install -d $(COMPLETIONS)
	$(TARGET)/release/pagemesh completions bash > $(COMPLETIONS)/pagemesh
	$(MAKE) -C crates/capi install TARGET=$(TARGET)/release
	install -D -m 755 $(TARGET)/release/libpagemesh_sysv.so $(DESTDIR)$(PREFIX)/lib/libpagemesh-sysv.so
	install -D -m 755 $(TARGET)/release/libpagemesh_borrow.so $(DESTDIR)$(PREFIX)/lib/libpagemesh-borrow.so

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/pagemesh $(DESTDIR)$(PREFIX)/bin/pagemesh-bench $(DESTDIR)$(PREFIX)/bin/pagemesh-etcd $(COMPLETIONS)/pagemesh $(DESTDIR)$(PREFIX)/lib/libpagemesh-sysv.so $(DESTDIR)$(PREFIX)/lib/libpagemesh-borrow.so
	$(MAKE) -C crates/capi uninstall

deny:
	command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny
	$(CARGO) fetch --quiet --locked
	$(CARGO) deny --offline check bans licenses sources
	$(CARGO) fetch --quiet --locked --manifest-path crates/etcd/Cargo.toml
	$(CARGO) deny --offline --manifest-path crates/etcd/Cargo.toml --config deny.toml check bans licenses sources

clean:
	$(CARGO) clean
	$(MAKE) -s -C lab/apps clean
