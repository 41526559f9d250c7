# Atoll: `make up` to use it, `make test` before a change is handed in.

SHELL := /bin/sh
.DEFAULT_GOAL := help

# Where `make up` keeps its islands and shows its volume.
DATA ?= .atoll
MOUNT ?= mnt
ISLANDS ?= 4

# rustup's default place counts even if the shell has not been started anew since.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help
help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST)

.PHONY: up
up: tools fuse build ## Build Atoll and mount a volume of 4 islands at ./mnt (DATA=, MOUNT=, ISLANDS=)
# A daemon that was killed leaves a dead mount, in whose place no folder can be made.
	@mkdir -p "$(MOUNT)" 2>/dev/null || { \
	  fusermount3 -uz "$(MOUNT)" 2>/dev/null || umount -l "$(MOUNT)" 2>/dev/null || :; mkdir -p "$(MOUNT)"; }
# Ctrl-C is for atoll, which unmounts and stops; the shell only waits for it. A handler, not
# "ignore", because that would be inherited.
	@trap : INT TERM; \
	"$(BIN)/atoll" up --data "$(DATA)" --islands "$(ISLANDS)" --mount "$(MOUNT)"; code=$$?; \
	case $$code in 130|143) code=0;; esac; exit $$code

.PHONY: build
build: tools ## Build the release binary
	cargo build --release --locked --package atoll-cli

.PHONY: bin
bin: ## Print the folder of the release binary, for PATH
	@echo "$(abspath $(BIN))"

.PHONY: test
test: tools ## Everything that CI checks: formatting, rules, licences, lints, docs, tests
	@cargo xtask ci

# The conformance suites that tests run: tools, never linked. Results are known of these versions only.
SUITES = pjdfstest@0.2.2 fsx@0.3.2

.PHONY: suites
suites: tools ## Install the conformance suites that tests run (pjdfstest, fsx), in the versions that are expected
	@for suite in $(SUITES); do \
	  have=$$("$${suite%@*}" --version 2>/dev/null || :); \
	  [ "$$have" = "$${suite%@*} $${suite#*@}" ] || cargo install --quiet --locked --force "$$suite" || exit; done

# Where things are installed. DESTDIR goes in front of all of them.
PREFIX ?= /usr/local
SBINDIR ?= /sbin
UNITDIR ?= $(PREFIX)/lib/systemd/system
SHARE = $(DESTDIR)$(PREFIX)/share
# What install(1) is told about symbols: packagers who keep them apart say STRIP=.
STRIP ?= -s
# The program that is installed.
BINARY ?= $(BIN)/atoll

.PHONY: install
install: build ## Install Atoll below /usr/local (PREFIX=, DESTDIR=, SBINDIR=, UNITDIR=, STRIP=)
	@$(MAKE) --no-print-directory install-built

.PHONY: install-built
install-built: # The same with a program that is there, BINARY=
	install -D $(STRIP) -m 755 "$(BINARY)" "$(DESTDIR)$(PREFIX)/bin/atoll"
	install -d "$(DESTDIR)$(SBINDIR)" "$(DESTDIR)$(UNITDIR)" "$(SHARE)/man/man1" "$(SHARE)/man/man8"
	for name in mount.atoll mount.fuse.atoll; do \
	  ln -sf "$(PREFIX)/bin/atoll" "$(DESTDIR)$(SBINDIR)/$$name" || exit; done
	@pages=$$(mktemp -d) && trap 'rm -rf "$$pages"' EXIT && "$(BINARY)" man --out "$$pages" && \
	install -m 644 "$$pages"/*.1 "$(SHARE)/man/man1" && install -m 644 "$$pages"/*.8 "$(SHARE)/man/man8"
	install -d "$(SHARE)/bash-completion/completions" "$(SHARE)/zsh/site-functions" \
	  "$(SHARE)/fish/vendor_completions.d"
	"$(BINARY)" completions bash > "$(SHARE)/bash-completion/completions/atoll"
	"$(BINARY)" completions zsh > "$(SHARE)/zsh/site-functions/_atoll"
	"$(BINARY)" completions fish > "$(SHARE)/fish/vendor_completions.d/atoll.fish"
	@for unit in packaging/systemd/*.service; do \
	  sed 's|@BINDIR@|$(PREFIX)/bin|' "$$unit" > "$(DESTDIR)$(UNITDIR)/$${unit##*/}" || exit; \
	  chmod 644 "$(DESTDIR)$(UNITDIR)/$${unit##*/}"; done
	install -D -m 644 -t "$(SHARE)/doc/atoll/examples" packaging/systemd/srv-home.mount.example \
	  packaging/prometheus/atoll.rules.yml packaging/grafana/atoll.json
	install -m 644 -t "$(SHARE)/doc/atoll" README.md CHANGELOG.md LICENSE docs/OPERATIONS.md

# Where `make deb` puts its packages.
DEBS ?= $(or $(CARGO_TARGET_DIR),target)/deb

.PHONY: deb
deb: build ## Make the Debian packages atoll and atoll-client (DEBS=)
	packaging/deb/build "$(BIN)/atoll" "$(DEBS)"

.PHONY: uninstall
uninstall: ## Remove what `make install` has installed
	rm -f "$(DESTDIR)$(PREFIX)/bin/atoll" "$(DESTDIR)$(SBINDIR)/mount.atoll" "$(DESTDIR)$(SBINDIR)/mount.fuse.atoll"
	rm -rf "$(SHARE)/doc/atoll"
	rm -f "$(SHARE)"/man/man1/atoll.1 "$(SHARE)"/man/man1/atoll-*.1 "$(SHARE)/man/man8/mount.atoll.8" \
	  "$(SHARE)/man/man8/mount.fuse.atoll.8"
	rm -f "$(SHARE)/bash-completion/completions/atoll" "$(SHARE)/zsh/site-functions/_atoll" \
	  "$(SHARE)/fish/vendor_completions.d/atoll.fish"
	rm -f "$(DESTDIR)$(UNITDIR)/atoll.service" "$(DESTDIR)$(UNITDIR)/atoll@.service" "$(DESTDIR)$(UNITDIR)/atoll-union@.service"

# Where cargo puts release binaries.
BIN = $(or $(CARGO_TARGET_DIR),target)/release

.PHONY: tools
tools:
	@command -v cargo >/dev/null || { \
	  echo "Atoll is built with Rust, and cargo was not found. Install it from https://rustup.rs"; exit 1; }
	@command -v cc >/dev/null || { \
	  echo "A linker is needed and cc was not found. Install gcc or clang."; exit 1; }

.PHONY: fuse
fuse:
	@[ -e /dev/fuse ] || { \
	  echo "There is no /dev/fuse: load the kernel module (modprobe fuse), or give it to the container."; exit 1; }
	@if command -v fusermount3 >/dev/null || [ "$$(id -u)" = 0 ]; then exit 0; fi; \
	sudo=$$(command -v sudo) || sudo=; \
	if   command -v apt-get >/dev/null; then how="apt-get install -y fuse3"; \
	elif command -v dnf     >/dev/null; then how="dnf install -y fuse3"; \
	elif command -v pacman  >/dev/null; then how="pacman -S --noconfirm fuse3"; \
	elif command -v apk     >/dev/null; then how="apk add fuse3"; \
	else echo "Mounting needs fusermount3: install your system's fuse3 package."; exit 1; fi; \
	if [ -z "$$sudo" ]; then echo "Mounting needs fusermount3. As root, run: $$how"; exit 1; fi; \
	echo "Mounting needs fusermount3; installing it: sudo $$how"; \
	$$sudo $$how || { echo "That failed. Install your system's fuse3 package and try again."; exit 1; }
