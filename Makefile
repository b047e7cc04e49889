# The targets people use; Meson and Ninja do the work behind them.
#
#   make            build/box                       make run     the first box, in one command
#   make test       everything CI runs              make check   warnings, units, includes, format
#   make e2e        end-to-end tests                make asan    the same with the sanitizers
#   make attack     get out of a box, by every way
#   make lint       clang-tidy, gcc's analyzer      make fuzz    fuzzers, FUZZ_SECONDS each
#   make soak       thousands of cycles             make bench   measure this machine
#   make soak-real  real programs, random operations
#   make clients    apt and npm, for real           make install to PREFIX (/usr/local)
#   make restart    a machine in QEMU that restarts
#   make criu       what hibernates and forks processes; part of run and test
#   make vm-kernel  the kernel of boxes that have their own; part of run and test
#   make clean      remove what was built
#
# BOX_HOME, BOX_RUN and BOX_LISTEN are passed on to whatever runs.

SHELL  := /bin/sh
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
JOBS   ?= $(shell nproc)

BINDIR  := $(PREFIX)/bin
UNITDIR := $(PREFIX)/lib/systemd/system
COMPDIR := $(PREFIX)/share/bash-completion/completions
ZSHDIR  := $(PREFIX)/share/zsh/site-functions
FISHDIR := $(PREFIX)/share/fish/vendor_completions.d
MANDIR  := $(PREFIX)/share/man/man1
DOCDIR  := $(PREFIX)/share/doc/boxyard

.PHONY: all criu vm-kernel deps run test test-vm check asan lint fuzz bench e2e attack soak soak-real clients restart format install uninstall clean
.DEFAULT_GOAL := all

all: deps build/build.ninja
	@JOBS=$(JOBS) scripts/build box

deps:
	@scripts/deps build

# Where it cannot be had everything else works: it says so, and so does 'box doctor'. An edit of its
# source that does not
# apply (2) is a bug of ours, and fails.
criu:
	@scripts/deps criu && scripts/criu || [ $$? != 2 ]

# As criu: without it, boxes share the machine's kernel.
vm-kernel:
	@scripts/deps vm && scripts/vm-kernel || :

build/build.ninja: | deps
	@meson setup build >build-setup.log 2>&1 || { cat build-setup.log; exit 1; }
	@mv build-setup.log build/meson-setup.log

run:
	@scripts/deps build image
	@$(MAKE) --no-print-directory all
	@scripts/deps criu && scripts/criu || :
	@scripts/deps vm && scripts/vm-kernel || :
	@scripts/run build/box

# Prints as its last line how many passed and failed. One part: scripts/test e2e
test: criu vm-kernel
	@scripts/deps build image test lint
	@scripts/test-registry
	@scripts/test

check:
	@scripts/deps build test
	@scripts/test --werror build format includes unit

asan: criu vm-kernel
	@scripts/deps build image test
	@scripts/test-registry
	@scripts/test asan

e2e: criu vm-kernel
	@scripts/deps build image test
	@scripts/test-registry
	@scripts/test build e2e

# The end-to-end tests with boxes that have a kernel of their own. Hours without KVM; a short form
# is part of make test.
test-vm: criu vm-kernel
	@scripts/deps build image test
	@scripts/test-registry
	@scripts/test build vm leftovers

# Root in a box against a daemon and an internet made for it; needs no image and leaves nothing.
attack:
	@scripts/deps build
	@$(MAKE) --no-print-directory all
	@build/box attack

soak: criu vm-kernel
	@scripts/deps build image test
	@scripts/test-registry
	@BOX_TEST_CYCLES=$${BOX_TEST_CYCLES:-3000} BOX_TEST_KILLS=$${BOX_TEST_KILLS:-300} \
	  BOX_TEST_SUSPENDS=$${BOX_TEST_SUSPENDS:-1000} BOX_TEST_HIBERNATES=$${BOX_TEST_HIBERNATES:-200} \
	  BOX_TEST_COPIES=$${BOX_TEST_COPIES:-100} BOX_TEST_STATE_KILLS=$${BOX_TEST_STATE_KILLS:-30} \
	  BOX_TEST_DEPTH=$${BOX_TEST_DEPTH:-20} BOX_TEST_FORKS=$${BOX_TEST_FORKS:-100} BOX_TEST_SOAK=1 scripts/test build crash leaks chain

# Real programs (redis while it saves, PostgreSQL, MariaDB, a JVM, Go, Chromium, vite, three coding
# agents and others) through random forks,
# rollbacks, hibernations and kills, 50 each; BOX_TEST_ALONE=redis,go takes some. Podman in a nested
# box. Builds images with them first, and fetches from npm; what
# cannot be had is skipped, aloud. Hours; its short form is part of make test.
soak-real: criu vm-kernel
	@scripts/deps build image test
	@scripts/test build
	@BOX_TEST_REAL=$${BOX_TEST_REAL:-50} /usr/bin/python3 -m pytest -q -rs -p no:cacheprovider tests/soak/test_soak_real.py tests/soak/test_nested.py

# Packages from the hosts this machine uses, from a box: the one target that leaves the machine, no
# part of make test.
clients:
	@scripts/deps build image test
	@$(MAKE) --no-print-directory all
	@/usr/bin/python3 -m pytest -q -p no:cacheprovider tests/clients

# Hibernated boxes go on after a restart of the machine: one with Debian's kernel and cgroup v2
# alone. Some minutes; no part of make test.
restart: criu
	@scripts/deps build image test restart
	@scripts/test build
	@PYTHONPATH=tests/e2e /usr/bin/python3 -c 'import boxtest; boxtest.ensure_image()'
	@scripts/test-restart

fuzz:
	@scripts/deps build test
	@FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/test fuzz

lint:
	@scripts/deps build lint
	@scripts/lint

# PEERS=1 installs the other sandboxes to compare with first.
bench:
	@scripts/deps build image $(if $(PEERS),peers)
	@$(MAKE) --no-print-directory all criu vm-kernel
	@scripts/bench build/box

format:
	@scripts/deps lint
	@scripts/format --write

install: all criu vm-kernel
	install -D -m 0755 build/box $(DESTDIR)$(BINDIR)/box
	@if [ -x build/criu/criu ]; then install -D -m 0755 build/criu/criu $(DESTDIR)$(PREFIX)/lib/boxyard/criu; \
	  install -m 0644 build/criu/key $(DESTDIR)$(PREFIX)/lib/boxyard/criu.key; \
	  else echo "without CRIU: boxes are not hibernated or forked with their processes; 'make criu' builds it"; fi
	@if [ -r build/vm/vmlinuz ]; then rm -rf $(DESTDIR)$(PREFIX)/lib/boxyard/vm; mkdir -p $(DESTDIR)$(PREFIX)/lib/boxyard/vm; \
	  cp -a build/vm/vmlinuz build/vm/lib build/vm/key $(DESTDIR)$(PREFIX)/lib/boxyard/vm; \
	  else echo "without a kernel for VMs: all boxes share the machine's; 'make vm-kernel' gets it"; fi
	mkdir -p $(DESTDIR)$(UNITDIR) $(DESTDIR)$(COMPDIR) $(DESTDIR)$(ZSHDIR) $(DESTDIR)$(FISHDIR) $(DESTDIR)$(MANDIR) $(DESTDIR)$(DOCDIR)/docs
	sed -e 's|@BINDIR@|$(BINDIR)|g' -e 's|@DOCDIR@|$(DOCDIR)|g' dist/boxyard.service >$(DESTDIR)$(UNITDIR)/boxyard.service
	build/box completion bash >$(DESTDIR)$(COMPDIR)/box
	build/box completion zsh >$(DESTDIR)$(ZSHDIR)/_box
	build/box completion fish >$(DESTDIR)$(FISHDIR)/box.fish
	build/box help --man $(DESTDIR)$(MANDIR)
	install -m 0644 README.md ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md LICENSE $(DESTDIR)$(DOCDIR)
	install -m 0644 docs/*.md $(DESTDIR)$(DOCDIR)/docs
	@if [ -z "$(DESTDIR)" ]; then groupadd --system --force boxyard; \
	  if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi; \
	  echo "installed; start it with 'systemctl enable --now boxyard' or 'box up'"; fi

uninstall:
	rm -f $(DESTDIR)$(BINDIR)/box $(DESTDIR)$(UNITDIR)/boxyard.service $(DESTDIR)$(COMPDIR)/box \
	  $(DESTDIR)$(ZSHDIR)/_box $(DESTDIR)$(FISHDIR)/box.fish $(DESTDIR)$(MANDIR)/box.1 $(DESTDIR)$(MANDIR)/box-*.1
	rm -rf $(DESTDIR)$(DOCDIR) $(DESTDIR)$(PREFIX)/lib/boxyard
	@echo "boxes, images and the group boxyard are left; 'box down --purge' before uninstalling removes them"

# The image the tests use is kept: it takes a minute to make. 'rm -r build' removes it too.
clean:
	rm -rf build-asan build-check build-fuzz
	@if [ -d build ]; then find build -mindepth 1 -maxdepth 1 ! -name 'test-images*' -exec rm -rf {} +; fi
	@rmdir build 2>/dev/null || :
