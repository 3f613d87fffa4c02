# SPDX-License-Identifier: Apache-2.0
# Steadfast: out-of-tree build in build/<variant>/.
#   make | check | test | check-all | check-san | lint | sim-soak | chaos-soak | bench | demo | interop
#   make compile_commands.json | install DESTDIR= PREFIX= | clean
#   V=1 shows commands, WERROR=1 makes warnings errors, SAN=address,undefined or SAN=thread.
#   CUDA=0 is accepted: there is no CUDA backend to leave out yet.

MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.SECONDARY:
.DELETE_ON_ERROR:

SAN ?=
V ?= 0
WERROR ?= 0
PREFIX ?= /usr/local
DESTDIR ?=

VARIANT ?=
ifneq ($(VARIANT),)
else ifeq ($(SAN),)
VARIANT := release
else ifeq ($(SAN),thread)
VARIANT := tsan
else
VARIANT := asan
endif
B := build/$(VARIANT)
Q := $(if $(filter 1,$(V)),,@)

CLANG ?= clang
CC ?= gcc
ifeq ($(origin CC),default)
CC := gcc
endif
WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
	-Wwrite-strings -Wundef -Wvla -Wformat=2 -Wno-format-truncation \
	-Werror=implicit-function-declaration -Werror=int-conversion -Werror=incompatible-pointer-types
WARN += $(if $(findstring clang,$(CC)),-Wno-unknown-warning-option)
ifeq ($(WERROR),1)
WARN += -Werror
endif
OPT := $(if $(SAN),-O1 -fno-omit-frame-pointer,-O2)
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) $(if $(filter thread,$(SAN)),,-fno-sanitize-recover=all))
CPPFLAGS_ALL := -D_GNU_SOURCE -I. -I$B/gen $(CPPFLAGS)
# -ffp-contract=off: the same bits from every instruction set the run-time dispatch picks.
CFLAGS_ALL := -std=gnu17 $(OPT) -g -ffp-contract=off -fno-math-errno -pthread $(SANFLAGS) $(CFLAGS)
LDFLAGS_ALL := -pthread $(SANFLAGS) -Wl,--as-needed $(LDFLAGS)
LDLIBS := -lgrpc -lgpr -lprotobuf-c -luv -ljansson -lsqlite3 -lz -ldnnl -lgomp -lm

ROOMS := common proto models kernels client coordinatord psd workerd trainctl
DIRS := $(sort $(patsubst %/,%,$(dir $(wildcard $(foreach r,$(ROOMS),$r/*.c $r/*/*.c)))))
DAEMONS := coordinatord psd workerd trainctl
PROTOS := $(wildcard proto/*.proto)
GEN_SRC := $(PROTOS:proto/%.proto=$B/gen/proto/%.pb-c.c)
GEN_OBJ := $(GEN_SRC:.c=.o)
GEN_HDR := $(GEN_SRC:.c=.h)
DESCSET := $B/gen/proto/descriptors.h
SRC := $(filter-out %/main.c,$(sort $(foreach d,$(DIRS),$(wildcard $d/*.c))))
OBJ := $(SRC:%.c=$B/obj/%.o)
LIB := $B/libsteadfast_all.a
BINS := $(foreach d,$(DAEMONS),$(if $(wildcard $d/main.c),$B/bin/$d))
TEST_SRC := $(sort $(wildcard tests/unit/test_*.c) $(wildcard tests/parity/test_*.c) $(wildcard tests/fault/test_*.c))
TEST_BINS := $(TEST_SRC:tests/%.c=$B/tests/%)
SIM_OBJ := $(patsubst %.c,$B/obj/%.o,$(wildcard tests/sim/*.c))
BENCH_SRC := $(sort $(wildcard bench/bench_*.c))
BENCH_BINS := $(BENCH_SRC:bench/%.c=$B/bench/%)

.PHONY: all
all: $(BINS)
	@:

# ---- flags stamp: rewritten only when the compile command changes --------------------------------
STAMP := $B/flags.stamp
FLAGS_NOW := $(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(WARN) $(LDFLAGS_ALL)
$(shell mkdir -p $B && printf '%s\n' '$(FLAGS_NOW)' | cmp -s - $(STAMP) || printf '%s\n' '$(FLAGS_NOW)' > $(STAMP))

# ---- generated protobuf-c code -------------------------------------------------------------------
$B/gen/proto/%.pb-c.c $B/gen/proto/%.pb-c.h &: proto/%.proto
	@mkdir -p $B/gen
	@command -v protoc-c >/dev/null || { echo 'protoc-c is missing: run "make deps" first' >&2; exit 1; }
	$(Q)protoc-c --c_out=$B/gen $<

$B/gen/proto/descriptors.pb: $(PROTOS)
	@mkdir -p $(@D)
	$(Q)protoc --include_imports --descriptor_set_out=$@ $(PROTOS)

$(DESCSET): $B/gen/proto/descriptors.pb
	$(Q){ echo '/* generated: the serialised FileDescriptorSet of proto/ */'; \
	  echo 'static const unsigned char proto_descriptors[] = {'; \
	  od -An -v -tx1 $< | sed 's/ \([0-9a-f][0-9a-f]\)/0x\1,/g'; echo '};'; } > $@

$(GEN_OBJ): $B/gen/%.o: $B/gen/%.c $(STAMP) | $(GEN_HDR)
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) -w -MMD -MP -c -o $@ $<

# ---- our objects ---------------------------------------------------------------------------------
$B/obj/%.o: %.c $(STAMP) | $(GEN_HDR) $(DESCSET)
	@mkdir -p $(@D)
	$(if $(filter 1,$(V)),,@echo '  CC      $<')
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(WARN) -MMD -MP -c -o $@ $<

# The optimizer, vector and device loops are the only code where the compiler's vectoriser carries the speed.
$B/obj/psd/optim/optim%.o $B/obj/kernels/device/vec.o $B/obj/kernels/cpu/cpu_kernels.o: CFLAGS_ALL += $(if $(SAN),,-O3)

$(LIB): $(OBJ) $(GEN_OBJ)
	@rm -f $@
	$(Q)ar rcs $@ $^

$B/bin/%: $B/obj/%/main.o $(LIB)
	@mkdir -p $(@D)
	$(if $(filter 1,$(V)),,@echo '  LINK    $@')
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $< $(LIB) $(LDLIBS)

$B/tests/%: $B/obj/tests/%.o $B/obj/tests/harness.o $(LIB)
	@mkdir -p $(@D)
	$(if $(filter 1,$(V)),,@echo '  LINK    $@')
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(filter %.o,$^) $(LIB) $(LDLIBS)

$B/tests/unit/test_sim: $(SIM_OBJ)

$B/bench/%: $B/obj/bench/%.o $(LIB)
	@mkdir -p $(@D)
	$(if $(filter 1,$(V)),,@echo '  LINK    $@')
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $< $(LIB) $(LDLIBS)

-include $(OBJ:.o=.d) $(GEN_OBJ:.o=.d) $(TEST_SRC:%.c=$B/obj/%.d) $(BENCH_SRC:%.c=$B/obj/%.d) $(DAEMONS:%=$B/obj/%/main.d) $B/obj/tests/harness.d $(SIM_OBJ:.o=.d)

# ---- what people type ----------------------------------------------------------------------------
.PHONY: deps tests check check-all test check-san lint sim-soak chaos-soak bench demo interop install clean
deps:
	@deploy/deps.sh

tests: all $(TEST_BINS)

# Before each commit: under a minute on two cores once built.
check:
	@$(MAKE) --no-print-directory -j$$(nproc) tests
	@tests/lint/lint.sh --quick $B; lint=$$?; tests/run.sh --quick $B || exit 1; \
	[ $$lint = 0 ] || { echo "check: lint failed, see its words above the tests"; exit 1; }

# make test without looking for packages.
check-all:
	@$(MAKE) --no-print-directory -j$$(nproc) tests
	@tests/run.sh $B

test: deps
	@$(MAKE) --no-print-directory -j$$(nproc) tests
	@tests/run.sh $B

check-san: deps
	@$(MAKE) --no-print-directory -j$$(nproc) SAN=address,undefined tests && tests/run.sh --san build/asan
	@$(MAKE) --no-print-directory -j$$(nproc) SAN=thread tests && tests/run.sh --san build/tsan

lint: $(GEN_HDR) $(DESCSET)
	@deploy/deps.sh lint
	@tests/lint/lint.sh $B
	@$(MAKE) --no-print-directory check-clang

# The second compiler: everything builds without a warning, and its loops give the bits that GCC's do.
CLANG_TESTS := parity/test_widths parity/test_threads parity/test_ops_cpu unit/test_vec unit/test_optim
.PHONY: check-clang
check-clang:
	@$(MAKE) --no-print-directory -j$$(nproc) VARIANT=clang CC="$(CLANG)" WERROR=1 all $(CLANG_TESTS:%=build/clang/tests/%)
	@tests/run.sh build/clang $(notdir $(CLANG_TESTS))

# For editors: every compile command as make would run it, with the flags of this call.
.PHONY: compile_commands.json
compile_commands.json: $(GEN_HDR) $(DESCSET)
	@$(MAKE) --no-print-directory -Bn V=1 tests $(BENCH_BINS) | tests/lint/compile_commands.sh > $@.new
	@mv $@.new $@

# A night of schedules; SIM_FIRST=n goes on where another one ended.
sim-soak: $B/tests/unit/test_sim
	@SIM_SCHEDULES=$${SIM_SCHEDULES:-200000} TEST_TIME_SCALE=1000 $B/tests/unit/test_sim schedules

# Real daemons killed at random; SEEDS="1 2 3" names schedules. About 20 s each.
chaos-soak: all
	@CHAOS_SEEDS="$(or $(SEEDS),$(shell seq 1 30))" tests/cluster/test_chaos.py

bench: all $(BENCH_BINS)
	@bench/run.sh $B

demo: deps
	@$(MAKE) --no-print-directory -j$$(nproc) all
	@deploy/demo.sh $B

interop: deps
	@$(MAKE) --no-print-directory -j$$(nproc) all
	@tests/interop/run.sh $B

install: all
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,bin lib/systemd/system lib/sysusers.d lib/tmpfiles.d)
	install -m 755 $(BINS) $(DESTDIR)$(PREFIX)/bin
	for u in systemd/*.service systemd/*.target; do \
	  sed 's|@PREFIX@|$(PREFIX)|g' $$u > $(DESTDIR)$(PREFIX)/lib/systemd/system/$$(basename $$u) || exit 1; done
	install -m 644 systemd/steadfast.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/steadfast.conf
	install -m 644 systemd/steadfast.tmpfiles $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/steadfast.conf

clean:
	rm -rf build
